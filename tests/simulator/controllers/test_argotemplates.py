"""Workflows that have the templates of another object, wherever it stands among the manifests."""

from __future__ import annotations

from typing import Any

import pytest

from kube.client.resources import PODS
from simulator.manifests import MalformedManifest, Reader

TEMPLATES: dict[str, Any] = {
    "entrypoint": "main",
    "arguments": {"parameters": [{"name": "image", "value": "old"}, {"name": "tag", "value": "1"}]},
    "templates": [
        {"name": "main", "steps": [[{"name": "s", "template": "work", "withItems": [1, 2]}]]},
        {"name": "other", "container": {"image": "y"}},
        {"name": "work", "container": {"image": "x"}},
    ],
}


def argo(kind: str, name: str, spec: Any, **meta: Any) -> dict[str, Any]:
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}


def workflow(ref: Any, *, namespace: str = "team", **spec: Any) -> dict[str, Any]:
    return argo("Workflow", "w", {"workflowTemplateRef": ref, **spec}, namespace=namespace)


OF_TEAM = argo("WorkflowTemplate", "t", TEMPLATES, namespace="team")
OF_CLUSTER = argo("ClusterWorkflowTemplate", "t", TEMPLATES)


def read(*objects: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Images of the pods that are made, and the lines about what was passed over."""
    reader = Reader()
    found = reader.grouped([each for obj in objects for each in reader.read([obj], origin="f")])
    images = [each.body["spec"]["containers"][0]["image"] for each in found if each.resource is PODS]
    return images, list(reader.passed.lines())


@pytest.mark.parametrize(
    ("objects", "images"),
    [
        ((OF_TEAM, workflow({"name": "t"})), ["x", "x"]),
        ((workflow({"name": "t"}), OF_TEAM), ["x", "x"]),
        ((workflow({"name": "t", "clusterScope": True}), OF_CLUSTER), ["x", "x"]),
        ((OF_TEAM, workflow({"name": "t"}, entrypoint="other")), ["y"]),
        ((OF_TEAM, workflow({"name": "t"}, suspend=True)), []),
        (
            (
                OF_TEAM,
                argo("CronWorkflow", "c", {"workflowSpec": {"workflowTemplateRef": {"name": "t"}}}, namespace="team"),
            ),
            ["x", "x"],
        ),
    ],
)
def test_pods_of_a_workflow_are_those_of_the_templates_that_it_names(
    objects: tuple[dict[str, Any], ...], images: list[str]
) -> None:
    assert read(*objects)[0] == images


@pytest.mark.parametrize(
    ("objects", "missing"),
    [
        ((workflow({"name": "t"}),), "WorkflowTemplate t"),
        ((OF_TEAM, workflow({"name": "t"}, namespace="others")), "WorkflowTemplate t"),
        ((OF_TEAM, workflow({"name": "t", "clusterScope": True})), "ClusterWorkflowTemplate t"),
        ((OF_CLUSTER, workflow({"name": "t"})), "WorkflowTemplate t"),
    ],
)
def test_templates_that_are_missing_are_named(objects: tuple[dict[str, Any], ...], missing: str) -> None:
    images, lines = read(*objects)
    assert images == []
    (line,) = [line for line in lines if line.startswith("no pods for")]
    assert line.endswith(f"/w: {missing} is not among the manifests")


def test_arguments_of_the_workflow_replace_those_of_the_same_name() -> None:
    manifest = (
        '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c",'
        ' "image": "{{workflow.parameters.image}}:{{workflow.parameters.tag}}"}]}}'
    )
    creates = {"name": "main", "resource": {"action": "create", "manifest": manifest}}
    templates = argo("WorkflowTemplate", "t", {**TEMPLATES, "templates": [creates]}, namespace="team")
    arguments = {"parameters": [{"name": "image", "value": "new"}]}
    assert read(templates, workflow({"name": "t"}, arguments=arguments))[0] == ["new:1"]


def test_many_workflows_without_templates_are_counted() -> None:
    _, lines = read(*(workflow({"name": f"t{at}"}) for at in range(12)))
    assert lines[-1] == "no pods for 2 more Workflows"


@pytest.mark.parametrize("ref", [{}, {"name": 3}, "t"])
def test_a_reference_without_a_name_is_refused(ref: Any) -> None:
    with pytest.raises(MalformedManifest, match=r"f: Workflow team/w: spec.workflowTemplateRef.name is "):
        read(workflow(ref))
