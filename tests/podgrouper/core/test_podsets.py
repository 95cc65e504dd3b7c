"""Which templates a workload has, and which part of its PodGroup each is for."""

from __future__ import annotations

from typing import Any

import pytest

from podgrouper.core import kueue, owner_chain
from podgrouper.core.kinds import kind_of
from podgrouper.core.rule_input import Case
from tests.podgrouper.objects import chained, obj, pod


def template(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


def found(owner: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Of each part: the name of its template, and where that is."""
    bottom, read = chained(pod(), owner)
    chain = owner_chain.chain(bottom, read)
    kind = kind_of(owner["apiVersion"], owner["kind"])[0]
    case = Case(bottom, chain[-1], chain, kind, read)
    return {
        each.part: (each.template.get("metadata", {}).get("name", ""), each.place.removeprefix("spec."))
        for each in kueue.pod_sets(case)
    }


RAY = {
    "headGroupSpec": {"template": template("h")},
    "workerGroupSpecs": [{"groupName": "Small", "template": template("s")}, {"template": template("o")}],
}
RAY_PARTS = {
    "headgroup": ("h", "headGroupSpec.template"),
    "small": ("s", "workerGroupSpecs[0].template"),
    "worker-group-1": ("o", "workerGroupSpecs[1].template"),
}


@pytest.mark.parametrize(
    ("api", "kind", "spec", "expected"),
    [
        ("batch/v1", "Job", {"template": template("t")}, {"": ("t", "template")}),
        ("apps/v1", "StatefulSet", {"template": template("t")}, {"": ("t", "template")}),
        ("example.com/v1", "Whatever", {"template": "a text"}, {"": ("", "template")}),
        ("example.com/v1", "Whatever", None, {"": ("", "template")}),
        (
            "kubeflow.org/v1",
            "PyTorchJob",
            {"pytorchReplicaSpecs": {"Master": {"template": template("m")}, "Worker": {"template": template("w")}}},
            {
                "master": ("m", "pytorchReplicaSpecs.Master.template"),
                "worker": ("w", "pytorchReplicaSpecs.Worker.template"),
            },
        ),
        (
            "kubeflow.org/v2beta1",
            "MPIJob",
            {"mpiReplicaSpecs": {"Worker": {"template": template("w")}}},
            {"worker": ("w", "mpiReplicaSpecs.Worker.template")},
        ),
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            {"replicatedJobs": [{"name": "workers", "template": {"spec": {"template": template("w")}}}]},
            {"workers": ("w", "replicatedJobs[0].template.spec.template")},
        ),
        ("ray.io/v1", "RayCluster", RAY, RAY_PARTS),
        (
            "ray.io/v1",
            "RayJob",
            {"rayClusterSpec": RAY},
            {part: (name, f"rayClusterSpec.{place}") for part, (name, place) in RAY_PARTS.items()},
        ),
        (
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            {"leaderWorkerTemplate": {"workerTemplate": template("w")}},
            {"": ("w", "leaderWorkerTemplate.workerTemplate")},
        ),
        (
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            {"leaderWorkerTemplate": {"leaderTemplate": template("l"), "workerTemplate": template("w")}},
            {
                "leader": ("l", "leaderWorkerTemplate.leaderTemplate"),
                "workers": ("w", "leaderWorkerTemplate.workerTemplate"),
            },
        ),
    ],
)
def test_each_template_is_for_the_part_of_its_pods(api: str, kind: str, spec: Any, expected: Any) -> None:
    assert found(obj(api, kind, "top", spec=spec)) == expected


def test_a_pod_that_nothing_stands_above_is_its_own_template() -> None:
    alone = pod()
    case = Case(alone, alone, [], kind_of("v1", "Pod")[-1], owner_chain.Read())
    (found,) = kueue.pod_sets(case)
    assert (found.template, found.part, found.place) == (alone, "", "")
