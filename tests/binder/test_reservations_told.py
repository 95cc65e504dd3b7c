"""Reservations whose device the agent of their node tells before their process runs (docs/design/protocol.md)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import anyio
import pytest

from gpu import bind_request, reservation
from gpu.bind_request import Handover, PlannedDevice
from gpu.reservation import Reservation
from kube.client.resources import BIND_REQUESTS, EVENTS, PODS
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from tests.binder.cluster import BINDER, HALF, RESERVATIONS, TEAM, Cluster, cluster
from wire import names

PULLING = [{"name": "resource-reservation", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]
CRASHED = [{"name": "resource-reservation", "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
RUNNING = [{"name": "resource-reservation", "state": {"running": {}}, "ready": True}]


async def appears(it: Cluster, *, unlike: str = "") -> Reservation:
    """The reservation of group g, once it is there and is another one."""
    with anyio.fail_after(300):
        while True:
            for pod in await it.reservations():
                if pod.metadata.uid != unlike and pod.metadata.deletion_timestamp is None:
                    return reservation.read(pod)
            await anyio.sleep(0.05)


async def tell(it: Cluster, uuid: str, *, by: str = names.REPORTER_KUBELET, **status: Any) -> None:
    """Kubelet has admitted the reservation, and somebody tells its device."""
    name = (await it.reservation()).metadata.name
    await it.kubelet.status(name, **{"phase": "Pending", "startTime": "2026-01-01T00:00:00Z", **status})
    annotations = {names.RESERVE_FOR_GPU_INDEX: uuid, **({names.DEVICE_REPORTER: by} if by else {})}
    await it.api.patch(PODS, name, {"metadata": {"annotations": annotations}}, namespace=RESERVATIONS)


@pytest.mark.parametrize(
    ("by", "statuses", "is_bound"),
    [
        (names.REPORTER_KUBELET, [], True),
        (names.REPORTER_KUBELET, PULLING, True),
        (names.REPORTER_KUBELET, CRASHED, False),
        ("", PULLING, False),
        ("somebody", PULLING, False),
    ],
)
async def test_a_first_share_is_bound_as_soon_as_kubelets_device_is_known(
    by: str, statuses: list[dict[str, Any]], is_bound: bool
) -> None:
    async with cluster() as it:
        it.kubelet.silent = {"node-1"}
        await it.hand_over(await it.pod(), "g")
        await appears(it)
        await tell(it, "GPU-1", by=by, containerStatuses=statuses)
        await anyio.sleep(2)
        assert await it.is_bound() is is_bound
        if is_bound:
            assert ((await it.get()).metadata.annotations or {})["moorage.dev/visible-devices.c0"] == "GPU-1"
            assert it.writes(BINDER).count("create pods/binding") == 1


async def test_a_device_that_another_reservation_tells_is_disputed_whoever_told_it_first() -> None:
    async with cluster() as it:
        await it.bound("p", "g0")
        it.kubelet.silent = {"node-1"}
        await it.hand_over(await it.pod("q"), "g")
        (taken,) = [reservation.read(pod) for pod in await it.reservations() if pod.metadata.name]
        await appears(it, unlike=taken.uid)
        await tell(it, taken.uuid)
        await anyio.sleep(60)
        assert not await it.is_bound("q")


async def test_a_process_that_tells_another_device_is_a_loss_and_nobody_joins() -> None:
    async with cluster() as it:
        it.kubelet.silent = {"node-1"}
        await it.hand_over(await it.pod(), "g")
        await appears(it)
        await tell(it, "GPU-1", containerStatuses=PULLING)
        await it.until(it.is_bound)
        await tell(it, "GPU-2", by="", phase="Running", containerStatuses=RUNNING)
        await anyio.sleep(5)
        events = (await it.api.list(EVENTS, namespace=TEAM)).items
        assert [event.regarding.name for event in events if event.regarding and event.reason == "GPULost"] == ["p"]
        await it.hand_over(await it.pod("q"), "g")
        await anyio.sleep(60)
        assert not await it.is_bound("q")


async def test_one_that_is_deleted_over_and_over_before_it_ran_is_made_again_ever_later() -> None:
    """Kubelet's word alone does not show that it can live."""
    async with cluster() as it:
        it.kubelet.silent = {"node-1"}
        await it.hand_over(await it.pod(), "g")
        one = await appears(it)
        await tell(it, "GPU-1", containerStatuses=PULLING)
        await it.until(it.is_bound)
        pauses = []
        for _ in range(4):
            await anyio.sleep(2)
            await it.api.patch(PODS, one.name, {"metadata": {"finalizers": None}}, namespace=RESERVATIONS)
            await it.api.delete(PODS, one.name, namespace=RESERVATIONS, grace_s=0)
            gone_s = anyio.current_time()
            one = await appears(it, unlike=one.uid)
            pauses.append(round(anyio.current_time() - gone_s))
            await tell(it, "GPU-1", containerStatuses=PULLING)
        assert pauses == sorted(pauses)
        assert pauses[-1] >= 4 * pauses[0]
        assert await it.tenants() == {"p"}


# What another version has written onto our objects stays there: each write is a patch of our own keys.

LATER = "moorage.dev/of-a-later-version"


async def test_keys_of_a_later_version_stay_where_they_are_and_nothing_is_written_back_whole() -> None:
    async with cluster() as it:
        await it.bound("p")
        name = (await it.reservation()).metadata.name
        said = {"metadata": {"annotations": {LATER: "said"}}}
        for written, namespace in ((name, RESERVATIONS), ("p", TEAM)):
            await it.api.patch(PODS, written, said, namespace=namespace)
        await it.pod("q")
        waiting = await it.api.patch(PODS, "q", said, namespace=TEAM)
        await it.hand_over(waiting, "g")
        await it.until(it.is_bound, "q")
        assert await it.tenants() == {"p", "q"}
        for pod in (await it.reservation(), await it.get("p"), await it.get("q")):
            assert (pod.metadata.annotations or {})[LATER] == "said"
        assert not any(write.startswith("update") for write in it.writes(BINDER))


async def test_an_order_of_a_later_version_waits_for_a_binder_that_understands_it() -> None:
    async with cluster() as it:
        pod = await it.pod("p")
        handed = Handover(pod.metadata.resource_version, (PlannedDevice("g", HALF),))
        text = bind_request.render(handed)
        later = text.replace('"nano":', '"ofALaterVersion":1,"nano":')
        assert later != text
        body = {
            "metadata": {
                "name": "p",
                "annotations": {"moorage.dev/handover": later},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod.metadata.uid}],
            },
            "spec": {"podName": "p", "selectedNode": "node-1", "selectedGPUGroups": ["g"]},
        }
        await it.api.create(BIND_REQUESTS, body, namespace=TEAM)
        await it.bound("q")
        assert not await it.is_bound("p")
        assert await it.requests() == ["p"]
        assert await it.tenants() == {"q"}


# A pod that others change again and again costs little, and is bound, or told, when it comes to rest.

#: Shorter than what lies between a read and the Binding that rests on it: four calls of 10 ms.
EVERY_S = 0.01
LASTS_S = 30.0
#: Pauses of 0, 50, 100, 200, 400 and 800 ms, then of a second each.
MOST_ROUNDS = 36


def _slow(call: Call) -> Fault | None:
    return Fault(delay_s=0.01) if call.user == BINDER else None


@asynccontextmanager
async def _changing(it: Cluster, name: str = "p") -> AsyncIterator[None]:
    async def change() -> None:
        for number in count():
            patch = {"metadata": {"annotations": {"example.com/note": str(number)}}}
            await it.api.patch(PODS, name, patch, namespace=TEAM)
            await anyio.sleep(EVERY_S)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(change)
        yield
        tasks.cancel_scope.cancel()


def _renewals(it: Cluster) -> int:
    return it.writes(BINDER).count("patch pods")


async def test_a_pod_that_is_changed_all_the_time_is_renewed_ever_more_slowly_and_bound_when_that_ends() -> None:
    async with cluster() as it:
        it.kubelet.start_s = 1.0
        await it.hand_over(await it.pod(), "g")
        await anyio.sleep(0.5)
        it.server.faults.on_request.append(_slow)
        async with _changing(it):
            await anyio.sleep(1.5)
            before = _renewals(it)
            await anyio.sleep(LASTS_S)
            assert not await it.is_bound()
            assert 10 < _renewals(it) - before <= MOST_ROUNDS
        await it.until(it.is_bound, limit_s=2)
        (entry,) = (await it.book()).entries.values()
        assert await it.tenants() == {"p"}
        assert entry.rv


@pytest.mark.thorough
async def test_a_failed_attempt_asks_ever_more_slowly_for_the_fence_of_a_pod_that_is_changed_all_the_time() -> None:
    async with cluster(learn_timeout_s=5.0) as it:
        it.kubelet.silent.add("node-1")
        await it.hand_over(await it.pod(), "g")
        await anyio.sleep(0.5)
        it.server.faults.on_request.append(_slow)
        async with _changing(it):
            await anyio.sleep(6)
            before = _requests(it)
            await anyio.sleep(LASTS_S)
            assert not await it.is_fenced()
            # A read, and the fence: which reads before it writes, and again when it was refused.
            assert 10 < _requests(it) - before <= 4 * MOST_ROUNDS
        await it.until(it.is_fenced, limit_s=2)
        await anyio.sleep(5)
        assert await it.requests() == []


def _requests(it: Cluster) -> int:
    return sum((entry.user, entry.resource, entry.name) == (BINDER, "pods", "p") for entry in it.server.audit)


async def test_a_pod_that_is_changed_once_on_its_way_does_not_wait() -> None:
    async with cluster() as it:
        it.kubelet.start_s = 1.0
        await it.hand_over(await it.pod(), "g")
        await anyio.sleep(0.5)
        await it.api.patch(PODS, "p", {"metadata": {"labels": {"mine": "1"}}}, namespace=TEAM)
        held_s = anyio.current_time() + 0.75
        await it.until(it.is_bound)
        assert anyio.current_time() < held_s
