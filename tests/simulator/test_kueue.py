"""Workloads that Kueue would hold back until it admits them."""

from __future__ import annotations

from typing import Any

import pytest

from kube.client.resources import PODS
from simulator.manifests import QUEUE, Reader, admitted_by_kueue

TEMPLATE: dict[str, Any] = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}
LABELS = {QUEUE: "team"}


def job(spec: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", **meta},
        "spec": {**spec, "template": TEMPLATE},
    }


def pod(*gates: str, **meta: Any) -> dict[str, Any]:
    spec = {**TEMPLATE["spec"], "schedulingGates": [{"name": gate} for gate in gates]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", **meta}, "spec": spec}


def pytorch(**policy: Any) -> dict[str, Any]:
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": TEMPLATE}}, "runPolicy": policy}
    meta = {"name": "t", "labels": LABELS}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}


@pytest.mark.parametrize(
    ("obj", "pods", "kind"),
    [
        (job({"suspend": True, "parallelism": 3}, labels=LABELS), 3, "Job"),
        (pytorch(suspend=True), 2, "PyTorchJob.kubeflow.org"),
        (pod("kueue.x-k8s.io/admission", labels=LABELS), 1, "Pod"),
    ],
)
def test_what_kueue_holds_back_is_taken_as_admitted_and_a_line_says_so(
    obj: dict[str, Any], pods: int, kind: str
) -> None:
    reader = Reader()
    found = reader.read([obj], origin="f")
    assert sum(each.resource is PODS for each in found) == pods
    assert f"taken as admitted, because Kueue is not simulated: 1 {kind}" in list(reader.passed.lines())


@pytest.mark.parametrize(
    "obj",
    [
        job({"suspend": True}),
        job({}, labels=LABELS),
        pod("kueue.x-k8s.io/admission"),
        pod("another.example/gate", labels=LABELS),
        pod(labels=LABELS),
        pytorch(),
    ],
    ids=[
        "no queue",
        "not suspended",
        "a pod without queue",
        "another gate",
        "a pod without gate",
        "not suspended itself",
    ],
)
def test_what_kueue_does_not_hold_back_stays_as_it_is(obj: dict[str, Any]) -> None:
    assert admitted_by_kueue(obj) is obj


def test_other_gates_of_a_pod_stay() -> None:
    left = admitted_by_kueue(pod("kueue.x-k8s.io/admission", "another.example/gate", labels=LABELS))["spec"][
        "schedulingGates"
    ]
    assert left == [{"name": "another.example/gate"}]
