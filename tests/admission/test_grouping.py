"""New pods are given the name of their PodGroup where it can be told from them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from admission.mutate import Mutated, grouped, mutated
from admission.settings import Choices, Settings
from tests.admission.pods import Raw, pod
from wire import names

JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}


def new_pod(**metadata: Any) -> Raw:
    made = pod()
    return {**made, "metadata": {**made["metadata"], **metadata}}


def stored(settings: Settings, **metadata: Any) -> dict[str, str]:
    result = mutated(new_pod(**metadata), choices=Choices(), settings=settings, rng=random.Random(1))
    assert isinstance(result, Mutated)
    return result.pod["metadata"].get("annotations") or {}


def test_a_pod_of_a_job_is_named_its_pod_group_where_workloads_are_grouped() -> None:
    named = stored(Settings(are_grouped=True), ownerReferences=[JOB])
    assert named[names.POD_GROUP_NAME] == "pg-j-u"
    # Nobody would make it.
    assert names.POD_GROUP_NAME not in stored(Settings(), ownerReferences=[JOB])


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"ownerReferences": None},
        {"ownerReferences": [JOB], "annotations": {names.POD_GROUP_NAME: "mine"}},
        {"ownerReferences": [JOB], "annotations": {names.POD_GROUP_NAME: ""}},
        {"ownerReferences": [JOB], "annotations": {names.SKIP_POD_GROUPER: "true"}},
        {"ownerReferences": [JOB], "labels": {"jobset.sigs.k8s.io/jobset-name": "set"}},
        {"ownerReferences": [JOB], "labels": {"scheduling.x-k8s.io/pod-group": "gang"}},
        {"ownerReferences": [JOB], "annotations": {"scheduling.k8s.io/group-name": "gang"}},
    ],
)
def test_other_pods_stay_as_they_are(metadata: dict[str, Any]) -> None:
    made = new_pod(**metadata)
    assert grouped(made) is made
