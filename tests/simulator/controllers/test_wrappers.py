"""Objects that bring manifests along: an AppWrapper, and what runs Jobs and Workflows by a clock."""

from __future__ import annotations

from typing import Any

import pytest

from kube.client.resources import PODS
from simulator.manifests import MalformedManifest, Reader

TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "c", "image": "x"}]}}
WORKFLOW: dict[str, Any] = {"entrypoint": "a", "templates": [{"name": "a", "container": {"image": "x"}}]}
POD_TEXT = '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}'
CREATES: dict[str, Any] = {
    "entrypoint": "a",
    "templates": [{"name": "a", "resource": {"action": "create", "manifest": POD_TEXT}}],
}
JOB: dict[str, Any] = {"tasks": [{"name": "t", "replicas": 2, "template": TEMPLATE}]}


def wrapper(*components: Any) -> dict[str, Any]:
    meta = {"name": "w", "namespace": "team"}
    spec = {"components": list(components)}
    return {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": meta, "spec": spec}


def cron(**spec: Any) -> dict[str, Any]:
    meta = {"name": "c", "namespace": "team"}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "CronJob", "metadata": meta, "spec": spec}


def cron_workflow(**spec: Any) -> dict[str, Any]:
    meta = {"name": "c", "namespace": "team"}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "CronWorkflow", "metadata": meta, "spec": spec}


def disaggregated(*roles: Any, **spec: Any) -> dict[str, Any]:
    meta = {"name": "d", "namespace": "team"}
    spec = {"roles": list(roles), **spec}
    return {"apiVersion": "disaggregatedset.x-k8s.io/v1", "kind": "DisaggregatedSet", "metadata": meta, "spec": spec}


def role(name: str, **spec: Any) -> dict[str, Any]:
    return {"name": name, "spec": {"leaderWorkerTemplate": {"size": 1, "workerTemplate": TEMPLATE}, **spec}}


def made(obj: dict[str, Any]) -> list[tuple[str, str]]:
    found = Reader().read([obj], origin="f")
    return [(each.namespace, each.body["metadata"]["name"]) for each in found if each.resource is PODS]


def pod(**meta: Any) -> dict[str, Any]:
    return {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", **meta}, **TEMPLATE}}


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (wrapper(pod(), pod(name="q", namespace="other")), [("team", "p"), ("other", "q")]),
        (wrapper(), []),
        (cron(jobTemplate={"spec": JOB}), [("team", "c-0-t-0"), ("team", "c-0-t-1")]),
        (cron(jobTemplate={"spec": JOB}, suspend=True), []),
        (cron(template=JOB), [("team", "c-0-t-0"), ("team", "c-0-t-1")]),
        (wrapper({"template": wrapper(pod())}), []),
        (cron_workflow(schedules=["* * * * *"], workflowSpec=WORKFLOW), [("team", "c-0")]),
        (cron_workflow(workflowSpec=WORKFLOW, suspend=True), []),
        (cron_workflow(workflowSpec=CREATES), [("team", "p")]),
        (disaggregated(role("a", replicas=2), role("b")), [("team", "d-a-0"), ("team", "d-a-1"), ("team", "d-b-0")]),
        (disaggregated(role("a"), slices=2), [("team", "d-0-a-0"), ("team", "d-1-a-0")]),
    ],
)
def test_what_the_controller_creates_is_read_in_the_namespace_of_the_wrapper(
    obj: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert made(obj) == expected


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (wrapper("x"), r"AppWrapper: spec.components is \['x'\]; a list of objects with a template"),
        (cron(jobTemplate="x"), "CronJob: spec.jobTemplate is 'x'; an object is allowed"),
        (disaggregated(role("")), r"DisaggregatedSet: spec.roles\[0\].name is ''; a name is allowed"),
        (
            disaggregated(role("a"), role("b"), slices=10**9),
            "DisaggregatedSet: spec.slices is 1000000000 with 2 roles; 10000 as a product are allowed",
        ),
        (cron_workflow(workflowSpec="x"), "CronWorkflow: spec.workflowSpec is 'x'; an object is allowed"),
    ],
)
def test_a_wrapper_that_holds_no_manifest_is_refused_with_what_is_allowed(obj: dict[str, Any], message: str) -> None:
    with pytest.raises(MalformedManifest, match=message):
        made(obj)
