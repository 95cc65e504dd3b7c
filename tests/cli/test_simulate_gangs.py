"""Workloads whose PodGroups are trees, from their manifests to running pods: grouping, scheduler, binder and nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.main import main
from tests.quick import few_rows

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
    return run, sorted({pod["verdict"] for pod in pods if pod["phase"] != "Running"})


TREE = jobset(("a", 2, 2, 1), ("b", 1, 1, 1))


@pytest.mark.parametrize(
    ("workload", "gpus", "count"),
    few_rows(
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
        4,
    ),
)
def test_enough_of_a_workload_starts_or_nothing(
    workload: dict[str, Any], gpus: int, count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, told = running(tmp_path, capsys, workload, gpus)
    assert len(run) == count, (run, told)
    assert not any("not supported" in each for each in told)


MINIMUM = {"kai.scheduler/batch-min-member": "4"}


def batch(kind: str, **annotations: str) -> dict[str, Any]:
    """A workload of Kubernetes itself of four pods, with a GPU each."""
    made = template(labels={"app": "web"})
    of_job = {"parallelism": 4, "template": {**made, "spec": {**made["spec"], "restartPolicy": "Never"}}}
    serving = {"replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": made}
    specs = {
        "Job": of_job,
        "CronJob": {"schedule": "@daily", "jobTemplate": {"spec": of_job}},
        "StatefulSet": {**serving, "podManagementPolicy": "Parallel"},
    }
    version = "batch/v1" if kind.endswith("Job") else "apps/v1"
    spec = specs.get(kind, serving)
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "w", "annotations": annotations}, "spec": spec}


def test_a_set_that_makes_pods_one_after_the_other_asks_for_no_gang(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = batch("StatefulSet", **MINIMUM)
    del workload["spec"]["podManagementPolicy"]
    (path := tmp_path / "set.yaml").write_text(yaml.safe_dump(workload))
    assert main(["simulate", "--nodes", "1x4x80GiB", str(path)]) == 2
    assert "podManagementPolicy: Parallel" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "annotations", "gpus", "count"),
    few_rows(
        [
            pytest.param("Job", MINIMUM, 3, 0, id="no pod of a Job below its minimum"),
            pytest.param("Job", MINIMUM, 4, 4, id="its minimum"),
            pytest.param("Job", {}, 3, 3, id="a Job without one"),
            pytest.param("CronJob", MINIMUM, 3, 0, id="a CronJob"),
            pytest.param("StatefulSet", MINIMUM, 3, 0, id="a StatefulSet"),
            pytest.param("ReplicaSet", MINIMUM, 3, 0, id="a ReplicaSet"),
            pytest.param("Deployment", MINIMUM, 3, 3, id="pods of a Deployment each alone"),
        ],
        4,
    ),
)
def test_pods_of_kubernetes_own_workloads_start_together_where_these_say_so(
    kind: str, annotations: dict[str, str], gpus: int, count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, told = running(tmp_path, capsys, batch(kind, **annotations), gpus)
    assert len(run) == count, told
    assert not any("not supported" in each for each in told)


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet"])
def test_pods_of_controllers_that_are_not_simulated_run(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template(labels={"app": "web"})}
    workload = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}, "spec": spec}
    run, told = running(tmp_path, capsys, workload, 2)
    assert (len(run), told) == (2, [])


def test_of_replicated_jobs_in_order_a_whole_one_starts_and_not_some_pods_of_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = jobset(("a", 1, 4, 1), ("b", 1, 3, 1), order="InOrder")
    run, _ = running(tmp_path, capsys, workload, 3)
    assert len(run) == 3
    assert all(name.startswith("set-b-") for name in run)


def test_a_job_that_depends_on_others_starts_whole_and_these_do_not_wait_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = jobset(("driver", 1, 1, 1), ("worker", 1, 4, 1))
    workload["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "driver", "status": "Ready"}]
    run, _ = running(tmp_path, capsys, workload, 3)
    assert [name.rpartition("-")[0] for name in run] == ["set-driver-0-0"]


def test_segments_of_a_leader_worker_set_wait_for_their_topology(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = leader_worker_set(4, 2)
    asked = {"kai.scheduler/topology": "hall", "kai.scheduler/segment-topology-required-placement": "rack"}
    workload["spec"]["leaderWorkerTemplate"]["workerTemplate"] = template(annotations=asked)
    run, told = running(tmp_path, capsys, workload, 8)
    assert run == []
    (why,) = told
    assert why.startswith("topology hall doesn't exist")


@pytest.mark.parametrize("completions", [2, 5])
def test_a_job_of_a_jobset_ends_whose_completions_are_not_its_parallelism(
    completions: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = jobset(("map", 1, 4, 1))
    spec = workload["spec"]["replicatedJobs"][0]["template"]["spec"]
    spec |= {"completions": completions, "template": template(annotations={"simulator.moorage.dev/run-s": "20"})}
    path = tmp_path / "w.yaml"
    path.write_text(yaml.safe_dump(workload), encoding="utf-8")
    assert main(["simulate", "--nodes", "1x4x80GiB", "--until", "3m", str(path), "-o", "json"]) == 0
    pods = json.loads(capsys.readouterr().out)["pods"]
    assert [pod["phase"] for pod in pods] == ["Succeeded"] * completions
