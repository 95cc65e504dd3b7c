"""Devices that are not their tenants' any more: guarded where that helps, and left by those who have to go."""

from __future__ import annotations

import json
from typing import Any

import anyio
import msgspec
import pytest

from gpu import grant as grants
from gpu.grant import DeviceGrant, Grant
from kube.client.resources import EVENTS, NODES, PODS
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from tests.binder.cluster import BINDER, RESERVATIONS, TEAM, Cluster, cluster
from tests.quick import few
from wire import names
from wire.core import Pod


async def gpus(it: Cluster, count: int) -> None:
    """How many GPUs the node has."""
    await it.api.patch(NODES, "node-1", {"status": {"capacity": {names.GPU_RESOURCE: count}}}, subresource="status")


async def lose(it: Cluster, *uuids: str) -> None:
    """The reservation of group g is gone, and the next ones get these devices."""
    it.kubelet.uuids = list(uuids)
    await it.api.delete(PODS, (await it.reservation()).metadata.name, namespace=RESERVATIONS, grace_s=0)


def words(*uuids: str) -> list[dict[str, Any]]:
    """What kubelet says of a container that runs and was given these devices."""
    told = [{"name": names.GPU_RESOURCE, "resources": [{"resourceID": uuid, "health": "Healthy"} for uuid in uuids]}]
    return [{"name": "main", "state": {"running": {}}, "ready": True, "allocatedResourcesStatus": told}]


async def whole(it: Cluster, name: str, *uuids: str, phase: str = "Running") -> None:
    """A pod of another scheduler that was given a whole GPU; which, kubelet may say."""
    limits = {"limits": {names.GPU_RESOURCE: "1"}, "requests": {names.GPU_RESOURCE: "1"}}
    spec = {"nodeName": "node-1", "containers": [{"name": "main", "image": "work", "resources": limits}]}
    await it.api.create(PODS, {"metadata": {"name": name}, "spec": spec}, namespace="elsewhere")
    await it.kubelet.status(
        name, namespace="elsewhere", phase=phase, **({"containerStatuses": words(*uuids)} if uuids else {})
    )


async def held(it: Cluster) -> dict[str, set[str]]:
    """UUID -> tenants in the book of the reservation that holds it."""
    found: dict[str, set[str]] = {}
    for pod in await it.reservations():
        annotations = pod.metadata.annotations or {}
        entries = json.loads(annotations[names.TENANTS])
        found[annotations.get(names.RESERVE_FOR_GPU_INDEX, "")] = {entry["pod"] for entry in entries.values()}
    return found


async def going(it: Cluster) -> set[str]:
    pods = (await it.api.list(PODS, namespace=TEAM)).items
    return {pod.metadata.name for pod in pods if pod.metadata.deletion_timestamp is not None}


async def told(it: Cluster, reason: str) -> list[str]:
    events = (await it.api.list(EVENTS, namespace=TEAM)).items
    return sorted(
        f"{event.regarding.name}: {event.note}" for event in events if event.regarding and event.reason == reason
    )


async def give(it: Cluster, name: str, uuid: str) -> Pod:
    """Have a bound pod use another device."""
    pod = await it.get(name)
    given = grants.read(pod.metadata.annotations)
    assert given is not None
    devices = tuple(DeviceGrant(d.group, d.reservation, uuid, d.nano) for d in given.devices)
    text = msgspec.json.encode(Grant(given.attempt, devices)).decode()
    return await it.api.patch(PODS, name, {"metadata": {"annotations": {names.GRANT: text}}}, namespace=TEAM)


def evictions(it: Cluster) -> list[str]:
    return [entry.name for entry in it.server.audit if entry.user == BINDER and entry.subresource == "eviction"]


# --- guards ----------------------------------------------------------------------------------------------------------
async def test_a_device_that_was_lost_is_guarded_and_its_tenants_stay() -> None:
    async with cluster() as it:
        await gpus(it, 4)
        await it.bound()
        await lose(it, "GPU-b", "GPU-c", "GPU-d", "GPU-0")
        await anyio.sleep(60)
        assert await held(it) == {"GPU-b": {"team/p"}, "GPU-0": set()}
        assert evictions(it) == []


async def test_a_guard_goes_with_the_last_tenant() -> None:
    async with cluster() as it:
        await gpus(it, 2)
        await it.bound()
        await lose(it, "GPU-b", "GPU-0")
        await anyio.sleep(600)
        assert set(await held(it)) == {"GPU-b", "GPU-0"}
        await it.kubelet.status("p", namespace=TEAM, phase="Succeeded")
        await anyio.sleep(60)
        assert await it.reservations() == []


async def forget(it: Cluster, uuid: str) -> None:
    """Kubelet has told of a device that it gave it to the reservation of group g, and does not any more."""
    name = (await it.reservation()).metadata.name
    for given in ([uuid], []):
        await it.kubelet.status(name, containerStatuses=words(*given))
        await anyio.sleep(1)


async def test_a_reservation_that_kubelet_forgot_is_made_anew_and_its_tenants_stay() -> None:
    async with cluster() as it:
        await gpus(it, 4)
        await it.bound()
        before = await it.reservation()
        it.kubelet.uuids = ["GPU-b", "GPU-0"]
        await forget(it, "GPU-0")
        await anyio.sleep(60)
        assert (await it.reservation()).metadata.uid != before.metadata.uid
        assert await held(it) == {"GPU-b": {"team/p"}, "GPU-0": set()}
        assert evictions(it) == []


async def test_a_reservation_is_left_alone_where_kubelet_never_says_what_it_gave() -> None:
    async with cluster() as it:
        await it.bound()
        before = await it.reservation()
        await it.kubelet.status(before.metadata.name, containerStatuses=words())
        await anyio.sleep(60)
        assert [pod.metadata.uid for pod in await it.reservations()] == [before.metadata.uid]


async def test_tenants_go_when_kubelet_says_that_it_gave_their_device_to_a_stranger() -> None:
    async with cluster() as it:
        await gpus(it, 9)
        await it.bound()
        await whole(it, "stranger", "GPU-0")
        it.kubelet.uuids = ["GPU-b"]
        await forget(it, "GPU-0")
        await anyio.sleep(20)
        assert evictions(it) == []
        await anyio.sleep(30)
        assert evictions(it) == ["p"]


async def test_a_reservation_that_gets_the_lost_device_by_chance_is_kept_as_its_guard() -> None:
    async with cluster() as it:
        await it.bound()
        await lose(it, "GPU-b", "GPU-0")
        await anyio.sleep(1.8)
        await it.hand_over(await it.pod("q"), "h")
        await it.until(it.is_fenced, "q")
        await anyio.sleep(120)
        assert await held(it) == {"GPU-b": {"team/p"}, "GPU-0": set()}


async def test_a_node_without_a_free_device_is_asked_ever_more_rarely() -> None:
    async with cluster() as it:
        await gpus(it, 4)
        await it.bound()
        await lose(it, "GPU-b")
        await anyio.sleep(2)
        it.kubelet.rejects = 10**6
        await anyio.sleep(3600)
        assert 3 < it.writes(BINDER).count("create pods") < 20
        assert await held(it) == {"GPU-b": {"team/p"}}
        assert evictions(it) == []


async def test_a_guard_that_never_tells_its_device_is_given_back_and_asked_for_again() -> None:
    async with cluster() as it:
        await gpus(it, 4)
        await it.bound()
        await lose(it, "GPU-b", "GPU-0")
        await anyio.sleep(2)
        it.kubelet.silent.add("node-1")
        await anyio.sleep(100)
        assert [pod.metadata.deletion_timestamp is None for pod in await it.reservations()] == [True, True]
        await anyio.sleep(50)
        assert sum(pod.metadata.deletion_timestamp is None for pod in await it.reservations()) == 1
        it.kubelet.silent.clear()
        await anyio.sleep(120)
        assert await held(it) == {"GPU-b": {"team/p"}, "GPU-0": set()}


async def test_a_new_leader_keeps_the_guard() -> None:
    async with cluster() as it:
        await gpus(it, 2)
        await it.bound()
        await lose(it, "GPU-b", "GPU-0")
        await anyio.sleep(60)
        it.kill()
        await it.start()
        await anyio.sleep(60)
        assert set(await held(it)) == {"GPU-b", "GPU-0"}


# --- moves -----------------------------------------------------------------------------------------------------------
async def test_tenants_of_a_device_that_a_stranger_has_go_one_by_one_the_youngest_first() -> None:
    async with cluster() as it:
        await gpus(it, 2)
        await it.bound("a")
        await anyio.sleep(5)
        await it.bound("b")
        await whole(it, "stranger")
        await lose(it, "GPU-b")
        await anyio.sleep(25)
        assert await going(it) == set()
        await anyio.sleep(15)
        assert await going(it) == {"b"}
        await anyio.sleep(300)
        assert await going(it) == {"b"}, "the next one waits until it is gone"
        await it.api.delete(PODS, "b", namespace=TEAM, grace_s=0)
        await anyio.sleep(30)
        assert await going(it) == {"a"}
        lost = "evicted: GPU GPU-0 was lost by the pod's reservation and given to another pod"
        assert await told(it, "GPUMoved") == [f"a: {lost}", f"b: {lost}"]


async def test_a_tenant_that_does_not_end_holds_up_the_others_for_five_minutes_only() -> None:
    async with cluster() as it:
        await gpus(it, 2)
        await it.bound("a")
        await anyio.sleep(5)
        await it.bound("b")
        await whole(it, "stranger")
        await lose(it, "GPU-b")
        await anyio.sleep(300)
        assert await going(it) == {"b"}
        await anyio.sleep(60)
        assert await going(it) == {"a", "b"}


async def test_a_stranger_is_found_where_the_reservation_can_not_be_made_anew() -> None:
    async with cluster() as it:
        await gpus(it, 1)
        await it.bound()
        await whole(it, "stranger")
        it.kubelet.rejects = 10**6
        await lose(it)
        await anyio.sleep(40)
        assert await going(it) == {"p"}


async def test_a_stranger_is_found_where_all_else_is_held_and_what_was_held_for_that_is_given_back() -> None:
    async with cluster() as it:
        await gpus(it, 4)
        await it.bound()
        await whole(it, "stranger")
        await lose(it, "GPU-b", "GPU-c", "GPU-d")

        async def has_all() -> bool:
            return set(await held(it)) >= {"GPU-b", "GPU-c", "GPU-d"}

        await it.until(has_all)
        it.kubelet.rejects = 10**6
        await anyio.sleep(20)
        assert set(await held(it)) == {"GPU-b"}
        await anyio.sleep(30)
        assert await going(it) == {"p"}


async def test_what_a_search_got_is_kept_until_a_look_has_seen_whether_the_node_is_full() -> None:
    async with cluster(idle_s=0.5) as it:
        await gpus(it, 3)
        await it.bound()
        await whole(it, "stranger")
        await lose(it)
        it.kubelet.free = ["GPU-b", "GPU-c"]
        with anyio.move_on_after(45):
            while True:  # the binder looks at a reservation pod when it changes, and not only now and then
                await anyio.sleep(0.3)
                for pod in await it.reservations():
                    patch = {"metadata": {"labels": {"changed": str(anyio.current_time())}}}
                    await it.api.patch(PODS, pod.metadata.name, patch, namespace=RESERVATIONS)
        assert await going(it) == {"p"}
        assert set(await held(it)) == {"GPU-b"}


async def test_a_device_that_a_stranger_leaves_is_guarded() -> None:
    async with cluster(contended_s=100.0) as it:
        await gpus(it, 2)
        await it.bound()
        await whole(it, "stranger")
        await lose(it, "GPU-b", "GPU-0")
        await anyio.sleep(60)
        await it.kubelet.status("stranger", namespace="elsewhere", phase="Succeeded")
        await anyio.sleep(300)
        assert await going(it) == set()
        assert set(await held(it)) == {"GPU-b", "GPU-0"}


async def test_a_pod_that_waits_for_its_device_is_no_stranger_yet() -> None:
    async with cluster() as it:
        await gpus(it, 2)
        await it.bound()
        await whole(it, "stranger", phase="Pending")
        await lose(it, "GPU-b", "GPU-0")
        await anyio.sleep(120)
        assert await going(it) == set()
        assert set(await held(it)) == {"GPU-b", "GPU-0"}


async def test_of_two_groups_on_one_device_the_one_that_holds_it_stays() -> None:
    async with cluster() as it:
        await it.bound("old", "g")
        await it.bound("young", "h")
        await give(it, "old", "GPU-1")
        await anyio.sleep(60)
        assert await going(it) == {"old"}
        (note,) = await told(it, "GPUMoved")
        assert note == "old: evicted: GPU GPU-1 is that of group h, and pods of two groups must not share one"


async def test_tenants_of_an_unhealthy_device_go_and_it_takes_nobody_in() -> None:
    async with cluster() as it:
        await it.bound("a", "g")
        await it.bound("b", "h")
        await it.fall_ill()
        await it.hand_over(await it.pod("c"), "g")
        await it.until(it.is_fenced, "c")
        await anyio.sleep(20)
        assert await going(it) == set()
        await anyio.sleep(20)
        assert await going(it) == {"a"}
        assert await told(it, "GPUMoved") == ["a: evicted: GPU GPU-0 is unhealthy, as its device plugin says"]


async def test_a_device_that_is_well_again_keeps_its_tenants() -> None:
    async with cluster() as it:
        await it.bound()
        for health in ("Unhealthy", "Healthy"):
            await it.fall_ill(health=health)
            await anyio.sleep(20)
        await anyio.sleep(60)
        assert await going(it) == set()


@pytest.mark.parametrize("code", few([429, 403], 2))
async def test_an_eviction_that_is_refused_is_told_once_and_asked_for_ever_more_rarely(code: int) -> None:
    async with cluster() as it:
        await it.bound("old", "g")
        await it.bound("young", "h")
        await give(it, "old", "GPU-1")

        def refuse(call: Call) -> Any:
            return Fault(refuse_with=code) if call.subresource == "eviction" else None

        it.server.faults.on_request.append(refuse)
        asked: list[float] = []
        it.server.faults.on_strike.append(lambda call, _: asked.append(anyio.current_time()))
        await anyio.sleep(3600)
        assert 5 < len(asked) < 25
        (note,) = await told(it, "GPUMoved")
        assert note.startswith("old: has to go, and can't be evicted yet (")
        it.server.faults.clear()
        await anyio.sleep(310)
        assert await going(it) == {"old"}
