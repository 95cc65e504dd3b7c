"""System priority classes are not for a tenant's GPU pods."""

from __future__ import annotations

import random

import pytest

from admission.review import PodAdmission
from admission.settings import Settings
from wire import names


@pytest.mark.parametrize("name", ["system-cluster-critical", "system-node-critical"])
@pytest.mark.parametrize(
    ("namespace", "limits", "is_allowed"),
    [("team-a", "1", False), ("team-a", None, True), ("kube-system", "1", True)],
    ids=["GPUs of a tenant", "no GPUs", "GPUs in kube-system"],
)
def test_a_system_priority_class_with_gpus_is_for_kube_system(
    name: str, namespace: str, limits: str | None, is_allowed: bool
) -> None:
    resources = {"limits": {names.GPU_RESOURCE: limits}} if limits else {}
    container = {"name": "main", "image": "x", "resources": resources}
    spec = {"schedulerName": names.SCHEDULER_NAME, "priorityClassName": name, "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": namespace}, "spec": spec}
    request = {"uid": "1", "operation": "CREATE", "namespace": namespace, "object": pod}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}

    answer = PodAdmission(Settings(), rng=random.Random(1)).validating(review)["response"]

    assert answer["allowed"] is is_allowed
    assert is_allowed or name in answer["status"]["message"]
