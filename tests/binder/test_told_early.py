"""Reservations whose device the agent of their node tells before their process runs (docs/design/protocol.md)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from gpu import reservation
from gpu.reservation import Reservation
from kube.client.resources import EVENTS, PODS
from tests.binder.cluster import BINDER, RESERVATIONS, TEAM, Cluster, cluster
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


async def tell(it: Cluster, uuid: str, *, by: str = names.WITNESS_KUBELET, **status: Any) -> None:
    """Kubelet has admitted the reservation, and somebody tells its device."""
    name = (await it.reservation()).metadata.name
    await it.kubelet.status(name, **{"phase": "Pending", "startTime": "2026-01-01T00:00:00Z", **status})
    annotations = {names.RESERVE_FOR_GPU_INDEX: uuid, **({names.WITNESS: by} if by else {})}
    await it.api.patch(PODS, name, {"metadata": {"annotations": annotations}}, namespace=RESERVATIONS)


@pytest.mark.parametrize(
    ("by", "statuses", "is_bound"),
    [
        (names.WITNESS_KUBELET, [], True),
        (names.WITNESS_KUBELET, PULLING, True),
        (names.WITNESS_KUBELET, CRASHED, False),
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
