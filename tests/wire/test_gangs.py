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
        # Their pods are in parts, or their groups are named otherwise.
        ([{**TF, "kind": "PyTorchJob"}], {}, ""),
        ([{**JOB, "apiVersion": "apps/v1", "kind": "ReplicaSet"}], {}, ""),
        ([{**JOB, "apiVersion": "example.com/v1"}], {}, ""),
        ([{**JOB, "uid": ""}], {}, ""),
        ([{**JOB, "name": 7}], {}, ""),
        ([{}], {}, ""),
    ],
)
def test_the_group_is_told_by_an_owner_that_names_it(owners: Any, labels: dict[str, str], expected: str) -> None:
    assert gangs.told_group(owners, labels) == expected
