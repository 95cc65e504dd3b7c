"""Workloads of Kubernetes' own controllers, edited, scaled and cleaned up: none waits for ever, and none runs in part.

The grace time of a gang below its minimum is so short that an eviction shows.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio
import pytest
from kubernetes_asyncio import client

from simulator.nodes.containers import EXIT_CODE, RUN_S
from tests.controllers.workloads import shown, uids
from tests.e2e.cluster import PATIENCE_S, Pod, eventually, pod, scene
from tests.e2e.grouped import Workloads
from tests.e2e.workloads import PLURALS, Json
from tools.cluster.deployment import GROUPING, Deployment, Options
from tools.cluster.plane import ControlPlane
from wire import names

pytestmark = pytest.mark.cluster

_MERGE: Final = "application/merge-patch+json"
LEAST: Final = names.BATCH_MIN_MEMBER


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


class Life(Workloads):
    """A scene of a node with four GPUs, and one workload ``w`` of pods of one GPU."""

    async def start(
        self,
        kind: str,
        spec: Json,
        *,
        least: int | None = None,
        ends_s: float | None = None,
        of_pods: Mapping[str, str] | None = None,
    ) -> None:
        """Create a workload. ``of_pods``: annotations of its pods."""
        gang = {} if least is None else {LEAST: str(least), names.STALENESS_GRACE_PERIOD: "3s"}
        annotations = {} if ends_s is None else {RUN_S: str(ends_s), EXIT_CODE: "0"}
        container = {"name": "main", "image": "app", "resources": {"limits": {names.GPU_RESOURCE: "1"}}}
        template = {
            "metadata": {"labels": {"app": "w"}, "annotations": {**annotations, **(of_pods or {})}},
            "spec": {
                "schedulerName": names.SCHEDULER_NAME,
                "nodeSelector": {"scene": self.on.namespace},
                "terminationGracePeriodSeconds": 1,
                "containers": [container],
                **({"restartPolicy": "Never"} if kind == "Job" else {}),
            },
        }
        selector = {} if kind == "Job" else {"selector": {"matchLabels": {"app": "w"}}}
        body = {"template": template, **selector, **spec}
        version = "batch/v1" if kind == "Job" else "apps/v1"
        meta = {"name": "w", "annotations": gang}
        await self.make({"apiVersion": version, "kind": kind, "metadata": meta, "spec": body})

    async def edit(self, kind: str, patch: Json) -> None:
        """Change the workload."""
        group = "batch" if kind == "Job" else "apps"
        place = (group, "v1", self.on.namespace, PLURALS[group, kind], "w")
        await self.on.custom.patch_namespaced_custom_object(*place, patch, _content_type=_MERGE)

    async def runs(self, count: int, *, waiting: int = 0) -> dict[str, Pod]:
        """Wait until exactly so many of its pods run and so many wait."""
        seen: dict[str, Pod] = {}

        async def probe() -> dict[str, Pod] | None:
            found = {name: each for name, each in (await self.on.pods()).items() if name.startswith("w-")}
            seen.clear()
            seen.update({name: each for name, each in found.items() if _is_alive(each)})
            running = [name for name, each in seen.items() if each["status"]["phase"] == "Running"]
            return dict(seen) if (len(running), len(seen)) == (count, count + waiting) else None

        try:
            return await eventually(probe, f"{count} pods to run, {waiting} to wait", within_s=PATIENCE_S)
        except AssertionError as waited:
            raise AssertionError(f"{waited}; its pods: {shown(seen)}") from None

    async def stays(self, count: int, *, waiting: int = 0) -> None:
        """The same, for longer than it takes to evict what is left of a gang."""
        before = uids(await self.runs(count, waiting=waiting))
        await anyio.sleep(6)
        assert uids(await self.runs(count, waiting=waiting)) == before

    async def busy(self, gpus: int) -> None:
        """Have somebody else's pod on so many GPUs."""
        await self.on.create(pod("other", gpus=gpus))

        async def probe() -> bool | None:
            return (await self.on.pod("other"))["status"].get("phase") == "Running" or None

        await eventually(probe, "the other pod to run", within_s=PATIENCE_S)


def _is_alive(found: Pod) -> bool:
    return found["status"].get("phase") in {"Pending", "Running"} and "deletionTimestamp" not in found["metadata"]


@asynccontextmanager
async def life(plane: ControlPlane, namespace: str) -> AsyncIterator[Life]:
    async with scene(plane, namespace, ["1x4x80GiB"]) as on:
        made = Life(on)
        try:
            yield made
        finally:
            await made.end_owners()


async def a_stateful_set_is_scaled_below_its_minimum_and_up_again(at: Life) -> None:
    await at.start("StatefulSet", {"replicas": 3, "podManagementPolicy": "Parallel", "serviceName": "w"}, least=3)
    await at.runs(3)
    await at.edit("StatefulSet", {"spec": {"replicas": 1}})
    await at.stays(1)
    await at.busy(2)
    await at.edit("StatefulSet", {"spec": {"replicas": 4}})
    await at.stays(1, waiting=3)
    await at.on.delete("other")
    await at.runs(4)


async def a_replica_set_that_is_too_large_starts_once_it_is_made_smaller(at: Life) -> None:
    await at.busy(2)
    await at.start("ReplicaSet", {"replicas": 3}, least=3)
    await at.stays(0, waiting=3)
    await at.edit("ReplicaSet", {"spec": {"replicas": 2}})
    await at.stays(2)


async def a_job_is_given_more_pods_and_a_larger_minimum_and_then_fewer_pods(at: Life) -> None:
    await at.busy(2)
    await at.start("Job", {"parallelism": 2, "completions": 8}, least=2)
    await at.runs(2)
    await at.edit("Job", {"spec": {"parallelism": 4}, "metadata": {"annotations": {LEAST: "4"}}})
    await at.stays(2, waiting=2)
    await at.on.delete("other")
    await at.runs(4)
    await at.edit("Job", {"spec": {"parallelism": 1}})
    await at.stays(1)


async def the_last_pods_of_a_job_whose_others_were_cleaned_away_are_fewer_than_its_minimum(at: Life) -> None:
    await at.start("Job", {"parallelism": 3, "completions": 4}, least=3, ends_s=3)

    async def is_over() -> bool | None:
        for name, found in (await at.on.pods()).items():
            if found["status"].get("phase") == "Succeeded":
                with contextlib.suppress(client.ApiException):  # it may be gone
                    await at.on.delete(name)
        job = await client.BatchV1Api(at.on.core.api_client).read_namespaced_job("w", at.on.namespace)
        return job.status.succeeded == 4 or None

    await eventually(is_over, "the Job to be over", within_s=PATIENCE_S)


async def a_deployment_with_a_minimum_runs_and_is_rolled_over(at: Life) -> None:
    strategy = {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}}
    await at.start("Deployment", {"replicas": 4, "strategy": strategy}, least=4)
    before = uids(await at.runs(4))
    await at.edit("Deployment", {"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}})

    async def is_new() -> bool | None:
        return not before & uids(await at.runs(4)) or None

    await eventually(is_new, "all pods to be new", within_s=PATIENCE_S)


async def pods_of_a_job_that_says_skip_podgrouper_start_without_a_pod_group(at: Life) -> None:
    await at.start("Job", {"parallelism": 2, "completions": 2, "suspend": True})
    await at.edit("Job", {"metadata": {"annotations": {names.SKIP_POD_GROUPER: "true"}}, "spec": {"suspend": False}})
    await at.runs(2)
    assert await at.groups() == {}


async def pods_that_say_skip_podgrouper_themselves_start_without_a_pod_group(at: Life) -> None:
    await at.start("Job", {"parallelism": 2, "completions": 2}, of_pods={names.SKIP_POD_GROUPER: "true"})
    await at.runs(2)
    assert await at.groups() == {}


Story = Callable[[Life], Awaitable[None]]
STORIES: Final[list[Story]] = [
    a_stateful_set_is_scaled_below_its_minimum_and_up_again,
    a_replica_set_that_is_too_large_starts_once_it_is_made_smaller,
    a_job_is_given_more_pods_and_a_larger_minimum_and_then_fewer_pods,
    the_last_pods_of_a_job_whose_others_were_cleaned_away_are_fewer_than_its_minimum,
    a_deployment_with_a_minimum_runs_and_is_rolled_over,
    pods_of_a_job_that_says_skip_podgrouper_start_without_a_pod_group,
    pods_that_say_skip_podgrouper_themselves_start_without_a_pod_group,
]


@pytest.mark.usefixtures("deployment")
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_a_workload_never_waits_for_ever_and_never_runs_in_part(plane: ControlPlane, story: Story) -> None:
    async with life(plane, f"life-{STORIES.index(story)}") as at:
        await story(at)
