"""Workloads whose PodGroups are trees, from their manifests to running pods: grouping, scheduler, binder and nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.main import main

KAI = {"schedulerName": "kai-scheduler"}


def template(gpus: int = 1, **meta: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {"metadata": meta, "spec": {**KAI, "containers": [container]}}


def jobset(*jobs: tuple[str, int, int, int], order: str = "AnyOrder", **annotations: str) -> dict[str, Any]:
    """Replicated Jobs: name, replicas, pods of each, and GPUs of a pod."""
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set", "annotations": annotations},
        "spec": {
            "startupPolicy": {"startupPolicyOrder": order},
            "replicatedJobs": [
                {
                    "name": name,
                    "replicas": replicas,
                    "template": {"spec": {"parallelism": pods, "template": template(gpus)}},
                }
                for name, replicas, pods, gpus in jobs
            ],
        },
    }


def elastic_torch(workers: int, least: int, segment: int) -> dict[str, Any]:
    """A PyTorchJob that starts with some of its workers, placed in segments."""
    annotations = {"kai.scheduler/segment-size": str(segment)}
    specs = {"Worker": {"replicas": workers, "template": template(annotations=annotations)}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "bert"},
        "spec": {"pytorchReplicaSpecs": specs, "elasticPolicy": {"minReplicas": least}},
    }


def leader_worker_set(size: int, segment: int) -> dict[str, Any]:
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "vllm"},
        "spec": {
            "replicas": 2,
            "leaderWorkerTemplate": {
                "size": size,
                "subGroupPolicy": {"subGroupSize": segment},
                "workerTemplate": template(),
            },
        },
    }


def running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], workload: dict[str, Any], gpus: int
) -> tuple[list[str], list[str]]:
    """Names of the pods that run, and what the others are told."""
    path = tmp_path / "w.yaml"
    path.write_text(yaml.safe_dump(workload), encoding="utf-8")
    assert main(["simulate", "--nodes", f"1x{gpus}x80GiB", str(path), "-o", "json"]) == 0
    pods = json.loads(capsys.readouterr().out)["pods"]
    run = [pod["name"] for pod in pods if pod["phase"] == "Running"]
    return run, sorted({pod.get("message", "") for pod in pods if pod["phase"] != "Running"})


TREE = jobset(("a", 2, 2, 1), ("b", 1, 1, 1))


@pytest.mark.parametrize(
    ("workload", "gpus", "count"),
    [
        pytest.param(TREE, 5, 5, id="a JobSet of two levels is whole"),
        pytest.param(TREE, 4, 0, id="or not there at all"),
        pytest.param(
            jobset(("a", 1, 4, 1), ("b", 1, 2, 1), order="InOrder"), 3, 3, id="one of two that can start alone"
        ),
        pytest.param(jobset(("a", 1, 4, 1), ("b", 1, 2, 9), order="InOrder"), 3, 0, id="no part of one"),
        pytest.param(
            jobset(("a", 1, 2, 1), ("b", 1, 2, 9), ("c", 1, 2, 1), **{"kai.scheduler/batch-min-member": "2"}),
            4,
            4,
            id="two of three, without the one that fits nowhere",
        ),
        pytest.param(elastic_torch(8, least=4, segment=2), 8, 8, id="all of an elastic job where there is room"),
        pytest.param(elastic_torch(8, least=4, segment=2), 5, 5, id="its minimum and more"),
        pytest.param(elastic_torch(8, least=4, segment=2), 3, 0, id="nobody below its minimum"),
        pytest.param(leader_worker_set(4, 2), 8, 8, id="both groups of a LeaderWorkerSet"),
        pytest.param(leader_worker_set(4, 2), 7, 4, id="one of them"),
    ],
)
def test_enough_of_a_workload_starts_or_nothing(
    workload: dict[str, Any], gpus: int, count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, told = running(tmp_path, capsys, workload, gpus)
    assert len(run) == count, (run, told)
    assert not any("not supported" in each for each in told)


def test_of_replicated_jobs_in_order_a_whole_one_starts_and_not_some_pods_of_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = jobset(("a", 1, 4, 1), ("b", 1, 3, 1), order="InOrder")
    run, _ = running(tmp_path, capsys, workload, 3)
    assert len(run) == 3
    assert all(name.startswith("set-b-") for name in run)
