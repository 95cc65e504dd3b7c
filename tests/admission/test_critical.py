"""System priority classes are not for a tenant's GPU pods."""

from __future__ import annotations

import random

import pytest

from admission.review import PodAdmission
from admission.settings import Settings
from wire import names

CHOSEN = Settings(critical_namespaces=("team-a", "monitoring"))


@pytest.mark.parametrize("name", ["system-cluster-critical", "system-node-critical"])
@pytest.mark.parametrize(
    ("namespace", "limits", "settings", "is_allowed"),
    [
        ("team-a", "1", Settings(), False),
        ("team-a", None, Settings(), True),
        ("kube-system", "1", Settings(), True),
        ("team-a", "1", CHOSEN, True),
        ("kube-system", "1", CHOSEN, False),
    ],
    ids=["GPUs of a tenant", "no GPUs", "GPUs in kube-system", "a chosen namespace", "kube-system was not chosen"],
)
def test_a_system_priority_class_with_gpus_is_for_chosen_namespaces(
    name: str, namespace: str, limits: str | None, settings: Settings, is_allowed: bool
) -> None:
    resources = {"limits": {names.GPU_RESOURCE: limits}} if limits else {}
    container = {"name": "main", "image": "x", "resources": resources}
    spec = {"schedulerName": names.SCHEDULER_NAME, "priorityClassName": name, "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": namespace}, "spec": spec}
    request = {"uid": "1", "operation": "CREATE", "namespace": namespace, "object": pod}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}

    answer = PodAdmission(settings, rng=random.Random(1)).validating(review)["response"]

    assert answer["allowed"] is is_allowed
    assert is_allowed or name in answer["status"]["message"]
