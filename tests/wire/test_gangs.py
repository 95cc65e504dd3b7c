"""The PodGroup of a pod, as far as the pod itself tells it."""

from __future__ import annotations

from typing import Any

import pytest

from wire import gangs

JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}
TF = {**JOB, "apiVersion": "kubeflow.org/v1", "kind": "TFJob"}


@pytest.mark.parametrize(
    ("owners", "labels", "expected"),
    [
        ([JOB], {}, "pg-j-u"),
        ([JOB], {"app": "x"}, "pg-j-u"),
        ([TF], {gangs.KUBEFLOW_JOB_NAME: "j"}, "pg-j-u"),
        # What stands above the Job names the group.
        ([JOB], {gangs.JOBSET_NAME: "set"}, ""),
        ([JOB], {gangs.KUBEFLOW_JOB_NAME: "mpi"}, ""),
        ([], {}, ""),
        ([JOB, TF], {}, ""),
        # Their pods are in parts, or their groups have other names.
        ([{**TF, "kind": "PyTorchJob"}], {}, ""),
        ([{**JOB, "apiVersion": "apps/v1", "kind": "ReplicaSet"}], {}, ""),
        ([{**JOB, "apiVersion": "example.com/v1"}], {}, ""),
        ([{**JOB, "uid": ""}], {}, ""),
        ([{**JOB, "name": 7}], {}, ""),
        ([{}], {}, ""),
    ],
)
def test_the_group_is_told_by_an_owner_that_names_it(owners: Any, labels: dict[str, str], expected: str) -> None:
    assert gangs.told_group(owners, labels, {}, {}) == expected


@pytest.mark.parametrize(
    ("owner", "expected"),
    # Pods of a TFJob start together by the job's own numbers, even if they name another group.
    [(JOB, ""), ({**TF, "kind": "Notebook"}, ""), (TF, "pg-j-u")],
)
def test_a_pod_that_asks_for_a_gang_of_another_scheduler_is_of_another_group(owner: Any, expected: str) -> None:
    words = {"gang.scheduling.koordinator.sh/name": "g"}
    assert gangs.told_group([owner], {}, words, {}) == expected
    assert gangs.told_group([owner], {}, {}, {"schedulingGroup": {"podGroupName": "g"}}) == expected
    assert gangs.told_group([owner], {"scheduling.x-k8s.io/pod-group": "g"}, {}, {}) == expected
