"""Workflows of Argo: the objects of their steps, and templates of other objects."""

from __future__ import annotations

from typing import Any

import pytest

from kube.client.resources import JOBS, PODS
from simulator.controllers.pods import Malformed
from simulator.controllers.wrappers import MOST_CHARS, first, rendered
from simulator.manifests import MalformedManifest, Reader

# Steps of a Workflow with their parameters, and the objects that its ``resource`` templates create.

JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: {{workflow.name}}-{{inputs.parameters.task}}
  ownerReferences:
  - {apiVersion: argoproj.io/v1alpha1, kind: Workflow, name: "{{workflow.name}}", uid: "{{workflow.uid}}"}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: "{{workflow.parameters.who}}", image: x}]}}
"""


def parameters(**values: str) -> dict[str, Any]:
    return {"parameters": [{"name": name, "value": value} for name, value in values.items()]}


def resource(manifest: str = JOB, action: str = "create", **inputs: str) -> dict[str, Any]:
    return {"name": "work", "inputs": parameters(**inputs), "resource": {"action": action, "manifest": manifest}}


def step(**more: Any) -> dict[str, Any]:
    return {"name": "s", "template": "work", **more}


def inline(name: str, *, image: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inline": {"container": {"image": image}}, **more}


def workflow(work: dict[str, Any], *steps: dict[str, Any], **spec: Any) -> dict[str, Any]:
    main = {"name": "main", "steps": [list(steps)]}
    meta = {"name": "w", "namespace": "team"}
    all_of_it = {"entrypoint": "main", "arguments": parameters(who="me"), "templates": [main, work], **spec}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": meta, "spec": all_of_it}


def jobs(obj: dict[str, Any]) -> list[str]:
    """The Jobs that come of it, each with its namespace, and with the container of its pod."""
    found = Reader().read([obj], origin="f")
    containers = [each.body["spec"]["containers"][0]["name"] for each in found if each.resource is PODS]
    named = [f"{each.namespace}/{each.body['metadata']['name']}" for each in found if each.resource is JOBS]
    return [f"{name} {container}" for name, container in zip(named, containers, strict=True)]


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (workflow(resource(), step(arguments=parameters(task="a"))), ["team/w-a me"]),
        (workflow(resource(task="default"), step()), ["team/w-default me"]),
        (workflow(resource(task="default"), step(arguments=parameters(task="b"))), ["team/w-b me"]),
        (
            workflow(resource(), step(arguments=parameters(task="n{{item}}"), withItems=[1, 2])),
            ["team/w-n1 me", "team/w-n2 me"],
        ),
        (
            workflow(resource(), step(arguments=parameters(task="{{item.of}}"), withItems=[{"of": "map"}])),
            ["team/w-map me"],
        ),
        (workflow(resource(action="apply", task="a"), step()), ["team/w-a me"]),
        (workflow(resource(action="delete", task="a"), step()), []),
        (workflow(resource(task="a"), step(), suspend=True), []),
        (workflow(resource(f"---\n{JOB}---\n", task="a"), step()), ["team/w-a me"]),
    ],
)
def test_objects_of_the_first_steps_are_read_with_their_parameters(obj: dict[str, Any], expected: list[str]) -> None:
    assert jobs(obj) == expected


def test_the_object_has_no_owner_as_the_workflow_itself_is_not_created() -> None:
    found = Reader().read([workflow(resource(task="a"), step())], origin="f")
    assert [each.body["metadata"].get("ownerReferences") for each in found if each.resource is JOBS] == [None]


def test_a_later_step_creates_nothing() -> None:
    obj = workflow(resource(task="a"), step())
    obj["spec"]["templates"][0]["steps"].append([step(arguments=parameters(task="later"))])
    assert jobs(obj) == ["team/w-a me"]


def test_a_parameter_is_passed_on_through_templates() -> None:
    obj = workflow(resource(), step(arguments=parameters(task="{{inputs.parameters.given}}")))
    inner = {**obj["spec"]["templates"][0], "name": "inner"}
    outer = {"name": "main", "dag": {"tasks": [step(template="inner", arguments=parameters(given="deep"))]}}
    obj["spec"]["templates"] = [outer, inner, obj["spec"]["templates"][1]]
    assert jobs(obj) == ["team/w-deep me"]


def test_a_variable_that_only_a_running_workflow_knows_stays_in_the_text() -> None:
    assert rendered("{{ pod.name }} of {{a}}", {"a": "b"}) == "{{ pod.name }} of b"


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (workflow(resource("a: [", task="a"), step()), r"spec.templates\[1\].resource.manifest: not YAML"),
        (
            workflow(resource("just text", task="a"), step()),
            r"resource.manifest is 'just text'; an object with metadata",
        ),
        (workflow(resource(JOB + "#" * (MOST_CHARS // 2), task="a"), step(), step(), step()), "all together have"),
    ],
)
def test_a_manifest_that_can_not_be_read_is_refused_with_its_place(obj: dict[str, Any], message: str) -> None:
    with pytest.raises(MalformedManifest, match=f"f: Workflow: .*{message}"):
        Reader().read([obj], origin="f")


@pytest.mark.parametrize(
    "obj",
    [
        workflow(resource("{{inputs.parameters.task}}" * 1000, task="x" * 10_000), step()),
        workflow(resource(), *[step(arguments=parameters(task="x" * (MOST_CHARS // 2)))] * 40),
        workflow(resource(**{f"p{n}": "" for n in range(5000)}), step(withItems=list(range(9000)))),
        workflow(resource(), step(arguments=parameters(task="a"), withItems=list(range(20_000)))),
    ],
)
def test_texts_that_grow_by_their_variables_are_bounded(obj: dict[str, Any]) -> None:
    with pytest.raises(MalformedManifest):
        Reader().read([obj], origin="f")


def test_a_step_runs_the_template_that_it_brings_along() -> None:
    main = {"name": "main", "dag": {"tasks": [inline("a", image="x"), inline("b", depends="a", image="y")]}}
    deep = {"name": "deep", "steps": [[inline("a", image="z"), {"name": "m", "template": "main"}]]}
    meta = {"name": "w", "namespace": "team"}
    obj = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": meta}
    found = Reader().read([{**obj, "spec": {"entrypoint": "deep", "templates": [deep, main]}}], origin="f")
    assert [each.body["spec"]["containers"][0]["image"] for each in found if each.resource is PODS] == ["z", "x"]


def test_templates_that_steps_bring_along_end_at_a_depth() -> None:
    step = inline("last", image="x")
    for _ in range(40):
        step = {"name": "s", "inline": {"steps": [[step]]}}
    with pytest.raises(Malformed, match="call each other without end"):
        first({"spec": {"entrypoint": "main", "templates": [{"name": "main", "steps": [[step]]}]}})


def test_a_workflow_that_calls_itself_ends() -> None:
    obj = workflow({"name": "work", "steps": [[step()]]}, step())
    with pytest.raises(Malformed, match="call each other without end"):
        first(obj)


# Workflows that have the templates of another object, wherever it stands among the manifests.

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


def argotemplates_workflow(ref: Any, *, namespace: str = "team", **spec: Any) -> dict[str, Any]:
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
        ((OF_TEAM, argotemplates_workflow({"name": "t"})), ["x", "x"]),
        ((argotemplates_workflow({"name": "t"}), OF_TEAM), ["x", "x"]),
        ((argotemplates_workflow({"name": "t", "clusterScope": True}), OF_CLUSTER), ["x", "x"]),
        ((OF_TEAM, argotemplates_workflow({"name": "t"}, entrypoint="other")), ["y"]),
        ((OF_TEAM, argotemplates_workflow({"name": "t"}, suspend=True)), []),
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
        ((argotemplates_workflow({"name": "t"}),), "WorkflowTemplate t"),
        ((OF_TEAM, argotemplates_workflow({"name": "t"}, namespace="others")), "WorkflowTemplate t"),
        ((OF_TEAM, argotemplates_workflow({"name": "t", "clusterScope": True})), "ClusterWorkflowTemplate t"),
        ((OF_CLUSTER, argotemplates_workflow({"name": "t"})), "WorkflowTemplate t"),
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
    assert read(templates, argotemplates_workflow({"name": "t"}, arguments=arguments))[0] == ["new:1"]


def test_many_workflows_without_templates_are_counted() -> None:
    _, lines = read(*(argotemplates_workflow({"name": f"t{at}"}) for at in range(12)))
    assert lines[-1] == "no pods for 2 more workloads"


@pytest.mark.parametrize("ref", [{}, {"name": 3}, "t"])
def test_a_reference_without_a_name_is_refused(ref: Any) -> None:
    with pytest.raises(MalformedManifest, match=r"f: Workflow team/w: spec.workflowTemplateRef.name is "):
        read(argotemplates_workflow(ref))
