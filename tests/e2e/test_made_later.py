"""Workloads whose controllers make some pods later, or fewer, on the real control plane. The test makes their objects.

Pods of Jobs are made by Kubernetes' own controller. Written after JobSet v0.11.1 and LeaderWorkerSet v0.8.0.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from tests.e2e.cluster import PATIENCE_S, eventually, pod, scene
from tests.e2e.grouped import Workloads, reference
from tests.e2e.workloads import Json
from tools.cluster.deployment import GROUPING, Deployment, Options
from tools.cluster.plane import ControlPlane

pytestmark = pytest.mark.cluster

TEMPLATE: Final[Json] = {"spec": {"containers": [{"name": "main", "image": "app"}]}}
JOBSET: Final = ("jobset.x-k8s.io", "JobSet", "jobsets", "v1alpha2")
LWS: Final = ("leaderworkerset.x-k8s.io", "LeaderWorkerSet", "leaderworkersets", "v1")
#: No pods of its own: the test makes them.
NONE: Final[Json] = {
    "replicas": 0,
    "serviceName": "s",
    "selector": {"matchLabels": {"a": "b"}},
    "template": {"metadata": {"labels": {"a": "b"}}, **TEMPLATE},
}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane() as made:
        yield made


@pytest.fixture(scope="module")
def deployment(plane: ControlPlane) -> Iterator[Deployment]:
    options = Options(arguments={"binder": ["--idle-s", "1"]}, components=GROUPING)
    with Deployment(plane, options) as made:
        yield made
        made.check()


@asynccontextmanager
async def at(plane: ControlPlane, namespace: str, shape: str) -> AsyncIterator[Workloads]:
    async with scene(plane, namespace, [shape]) as on:
        made = Workloads(on)
        for kind in (JOBSET, LWS):
            await made.define(*kind)
        try:
            yield made
        finally:
            await made.end_owners()


def jobset(*jobs: Json, **annotations: str) -> Json:
    meta = {"name": "tune", "annotations": annotations}
    listed = [{**job, "template": {"spec": {"template": TEMPLATE, **job["template"]}}} for job in jobs]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": meta,
        "spec": {"replicatedJobs": listed},
    }


def of_job(name: str) -> dict[str, str]:
    return {
        "jobset.sigs.k8s.io/jobset-name": "tune",
        "jobset.sigs.k8s.io/replicatedjob-name": name,
        "jobset.sigs.k8s.io/job-index": "0",
    }


async def bound(on: Workloads) -> list[str]:
    return sorted(name for name, found in (await on.on.pods()).items() if found["spec"].get("nodeName"))


@pytest.mark.usefixtures("deployment")
async def test_a_job_of_a_jobset_runs_and_the_job_that_depends_on_it_starts_whole(plane: ControlPlane) -> None:
    async with at(plane, "later-jobs", "1x1x80GiB") as on:
        driver = {"name": "driver", "template": {}}
        worker = {
            "name": "worker",
            "dependsOn": [{"name": "driver", "status": "Ready"}],
            "template": {"parallelism": 2},
        }
        top = await on.make(jobset(driver, worker))
        await on.job("tune-driver-0", 1, above=top, pod_labels=of_job("driver"))
        await on.on.running(1)
        await on.job("tune-worker-0", 2, above=top, pod_labels=of_job("worker"))

        async def workers() -> list[str] | None:
            found = [name for name in await on.on.pods() if name.startswith("tune-worker")]
            return found if len(found) == 2 else None

        for name in await eventually(workers, "two workers", within_s=PATIENCE_S):
            await on.on.says(name, "for gang scheduling")
        assert all(name.startswith("tune-driver") for name in await bound(on)), "half of a GPU is free"
        await on.end_job("tune-driver-0")
        await on.on.running(2)


@pytest.mark.usefixtures("deployment")
async def test_a_job_of_a_jobset_starts_with_the_pods_that_kubernetes_makes(plane: ControlPlane) -> None:
    async with at(plane, "later-fewer", "1x2x80GiB") as on:
        top = await on.make(jobset({"name": "map", "template": {"parallelism": 4, "completions": 2}}))
        await on.job("tune-map-0", 4, completions=2, above=top, pod_labels=of_job("map"))
        assert len(await on.on.running(2)) == 2


@pytest.mark.usefixtures("deployment")
async def test_the_leader_of_a_job_in_an_exclusive_domain_does_not_wait_for_pods_after_it(plane: ControlPlane) -> None:
    async with at(plane, "later-exclusive", "1x2x80GiB") as on:
        exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "kubernetes.io/hostname"}
        top = await on.make(jobset({"name": "work", "template": {"parallelism": 2}}, **exclusive))
        await on.job("tune-work-0", 1, above=top, pod_labels=of_job("work"))
        await on.on.running(1)


@pytest.mark.usefixtures("deployment")
@pytest.mark.parametrize("by", ["annotation", "policy"])
async def test_workers_of_a_leader_worker_set_follow_a_leader_that_runs_and_its_pod_group_goes_with_the_group(
    plane: ControlPlane, by: str
) -> None:
    async with at(plane, f"later-leader-{by}", "1x3x80GiB") as on:
        exclusive = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "kubernetes.io/hostname"}
        top = await on.make(
            {
                "apiVersion": "leaderworkerset.x-k8s.io/v1",
                "kind": "LeaderWorkerSet",
                "metadata": {"name": "llm", "annotations": exclusive if by == "annotation" else {}},
                "spec": {
                    "replicas": 1,
                    "leaderWorkerTemplate": {"size": 3, "workerTemplate": TEMPLATE},
                    **({"startupPolicy": "LeaderReady"} if by == "policy" else {}),
                },
            }
        )

        def member(number: int, above: Json) -> Any:
            labels = {
                "leaderworkerset.sigs.k8s.io/name": "llm",
                "leaderworkerset.sigs.k8s.io/group-index": "0",
                "leaderworkerset.sigs.k8s.io/worker-index": str(number),
            }
            name = f"llm-0-{number}" if number else "llm-0"
            return pod(name, gpus=1, labels=labels, ownerReferences=[reference(above)])

        def of_pods(name: str) -> Json:
            return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": NONE}

        leaders = await on.make(of_pods("llm"), top)
        await on.on.create(member(0, leaders))
        leader = (await on.on.running(1))["llm-0"]
        workers = await on.make(of_pods("llm-0"), {**leader, "apiVersion": "v1", "kind": "Pod"})
        await on.on.create(member(1, workers), member(2, workers))
        await on.on.running(3)
        (group,) = (await on.groups()).values()
        assert group["spec"]["minMember"] == 3

        await on.on.custom.patch_namespaced_custom_object(
            "leaderworkerset.x-k8s.io",
            "v1",
            on.on.namespace,
            "leaderworkersets",
            "llm",
            {"spec": {"replicas": 0}},
            _content_type="application/merge-patch+json",
        )
        await on.on.delete("llm-0")

        async def gone() -> bool | None:
            return None if await on.groups() else True

        await eventually(gone, "the PodGroup to be deleted", within_s=PATIENCE_S)
        assert not await on.on.pods()
