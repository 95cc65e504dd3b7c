"""The rules take no more time for each part of a workload the more parts it has: a tenant writes thousands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from podgrouper.core.answers import Group
from podgrouper.core.grouping import group
from tests.podgrouper.objects import chained, obj, pod
from tests.steps import counted

SLICES = {"kueue.x-k8s.io/podset-slice-required-topology": "rack"}
BLOCK = {"kueue.x-k8s.io/podset-required-topology": "block"}


def template(annotations: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"annotations": annotations}}


def jobset(count: int, *, annotations: dict[str, str] | None = None, **of_job: Any) -> dict[str, Any]:
    spec = {"template": template(annotations or {})}
    jobs = [{"name": f"a{number}", "template": {"spec": spec}, **of_job} for number in range(count)]
    return obj("jobset.x-k8s.io/v1alpha2", "JobSet", "set", spec={"replicatedJobs": jobs})


def ray(count: int) -> dict[str, Any]:
    groups = [{"groupName": f"g{n}", "replicas": 1, "template": template(BLOCK)} for n in range(count)]
    return obj("ray.io/v1", "RayCluster", "ray", spec={"workerGroupSpecs": groups})


def tf(count: int) -> dict[str, Any]:
    roles = {f"r{number}": {"replicas": 1, "template": template(BLOCK)} for number in range(count)}
    return obj("kubeflow.org/v1", "TFJob", "tf", spec={"tfReplicaSpecs": roles})


def pytorch(count: int) -> dict[str, Any]:
    slices = {**SLICES, "kueue.x-k8s.io/podset-slice-size": "1"}
    roles = {"Master": {"replicas": 1}, "Worker": {"replicas": count, "template": template(slices)}}
    return obj("kubeflow.org/v1", "PyTorchJob", "pt", spec={"pytorchReplicaSpecs": roles})


def volcano(count: int) -> dict[str, Any]:
    tasks = [{"name": f"t{number}", "replicas": 2, "minAvailable": 1} for number in range(count)]
    return obj("batch.volcano.sh/v1alpha1", "Job", "v", spec={"tasks": tasks})


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(jobset, id="jobset"),
        pytest.param(lambda count: jobset(count, annotations=SLICES), id="jobset-slices"),
        pytest.param(lambda count: jobset(count, annotations=BLOCK), id="jobset-topology"),
        pytest.param(lambda count: jobset(count, dependsOn=[{"name": "b", "status": "Ready"}]), id="jobset-depends"),
        pytest.param(lambda count: jobset(1, replicas=count), id="jobset-replicas"),
        pytest.param(ray, id="ray"),
        pytest.param(tf, id="tf"),
        pytest.param(pytorch, id="pytorch-slices"),
        pytest.param(volcano, id="volcano"),
    ],
)
def test_a_workload_of_four_times_the_parts_takes_four_times_the_steps(made: Callable[[int], dict[str, Any]]) -> None:
    def steps(count: int) -> int:
        asked = chained(pod(labels={"jobset.sigs.k8s.io/replicatedjob-name": "a0"}), made(count))
        with counted() as taken:
            found = group(*asked)
        assert isinstance(found, Group)
        return taken.taken

    steps(1)
    assert steps(200) < 4.5 * steps(50)
