"""What the scheduler does about attempts that the binder carries, ends, or loses."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from gpu.bind_request import Handover, PlannedDevice, parse
from gpu.dialects import kai
from gpu.request import GpuRequest
from kube.client.api import Api
from kube.client.resources import BIND_REQUESTS, NAMESPACES, PODS
from kube.client.retry import Retry
from scheduler.commit.bind_requests import HandedOver, NotHanded, create_request, request_manifest
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Placement
from scheduler.core.model.settings import Settings
from scheduler.watch.cache import Cache
from simulator.apiserver.faults import Fault, once
from simulator.apiserver.server import MemoryApiServer
from simulator.clock import VirtualClock
from simulator.world import World
from tests.scheduler import stage
from tests.scheduler.stage import create, find, is_call, phases, pod, settle, share, waits_because, writes
from wire import names
from wire.core import Pod


async def test_a_failed_attempt_is_tried_on_another_node() -> None:
    async with stage.stage("2x1x80GiB") as world:
        for kubelet in world.nodes.kubelets.values():
            kubelet.reject_next(1)
        await create(world, share("a"))
        await settle(60)
        assert phases(world) == {"a": "Running"}
        assert find(world, "a")["metadata"]["annotations"][names.FENCED]


async def test_a_share_whose_hand_over_was_broken_off_is_handed_over_again() -> None:
    async with stage.stage("1x1x80GiB") as world:
        struck = stage.break_off(world, is_call("scheduler", "create", "bindrequests"))
        await create(world, share("a"), share("b"))
        await settle(5)
        assert struck == ["create bindrequests"]
        await settle(60)
        assert phases(world) == {"a": "Running", "b": "Running"}


async def test_a_request_that_is_seen_is_not_asked_for() -> None:
    async with stage.stage("1x1x80GiB") as world:
        world.binder.crash()
        await create(world, share("a"))
        await settle(60)
        asked = [entry for entry in world.server.audit if entry.user == "scheduler" and entry.verb == "get"]
        assert [entry for entry in asked if entry.resource == "bindrequests"] == []


async def _kept(world: World) -> None:
    """Hand a share over, and have a finalizer keep its BindRequest, as a foreground deletion can."""
    world.binder.crash()
    await create(world, share("a", "0.9"))
    await settle(60)
    kept = {"metadata": {"finalizers": ["example.com/kept"]}}
    await stage.api_of(world, "scheduler").patch(BIND_REQUESTS, "a", kept, namespace=stage.TEAM)


@pytest.mark.parametrize("is_bound", [True, False])
async def test_a_request_that_is_kept_while_it_is_deleted_holds_no_device(*, is_bound: bool) -> None:
    async with stage.stage("1x1x80GiB") as world:
        await _kept(world)
        if is_bound:
            await world.restart(world.binder)
            await settle(30)
            assert phases(world) == {"a": "Running"}
        else:
            await world.api.delete(BIND_REQUESTS, "a", namespace=stage.TEAM)
        await world.api.delete(PODS, "a", namespace=stage.TEAM)
        if not is_bound:
            await world.restart(world.binder)
        await create(world, share("b", "0.9"))
        await settle(300)
        assert phases(world) == {"b": "Running"}
        (request,) = (await world.api.list(BIND_REQUESTS)).items
        assert (request.metadata.name, request.metadata.deletion_timestamp is None) == ("a", False)


async def test_a_pod_whose_request_can_not_be_created_beside_one_that_is_kept_waits_and_holds_nothing() -> None:
    async with stage.stage("1x1x80GiB") as world:
        await _kept(world)
        await world.api.delete(BIND_REQUESTS, "a", namespace=stage.TEAM)
        await world.restart(world.binder)
        await settle(120)
        assert phases(world) == {"a": "Pending"}
        assert "BindRequest a is being deleted, and its finalizers keep it: example.com/kept" in waits_because(
            world, "a"
        )
        await create(world, share("b", "0.9"))
        await settle(300)
        assert phases(world) == {"a": "Pending", "b": "Running"}
        await world.api.delete(PODS, "b", namespace=stage.TEAM)
        await world.api.patch(BIND_REQUESTS, "a", {"metadata": {"finalizers": None}}, namespace=stage.TEAM)
        await settle(900)
        assert phases(world) == {"a": "Running"}


async def test_a_request_deleted_by_hand_is_made_again() -> None:
    async with stage.stage("1x1x80GiB") as world:
        world.binder.crash()
        await create(world, share("a"))
        await settle(1)
        await world.api.delete(BIND_REQUESTS, "a", namespace=stage.TEAM)
        await settle(30)
        await world.restart(world.binder)
        await settle(30)
        assert phases(world) == {"a": "Running"}


async def test_a_restarted_scheduler_counts_what_its_predecessor_handed_over() -> None:
    async with stage.stage("1x1x80GiB") as world:
        world.binder.crash()
        await create(world, share("a", "0.6"))
        await settle(1)
        await world.restart(world.scheduler)
        await create(world, share("b", "0.6"))
        await settle(20)
        assert len(writes(world, "scheduler", "bindrequests", verb="create")) == 1
        await world.restart(world.binder)
        await settle(30)
        assert phases(world) == {"a": "Running", "b": "Pending"}


async def test_a_device_whose_reservation_never_comes_is_used_after_a_while() -> None:
    async with stage.stage("1x1x80GiB") as world:
        world.binder.crash()
        await create(world, share("a"))
        await settle(1)
        await world.api.delete(PODS, "a", namespace=stage.TEAM)
        await create(world, pod("w", gpus=1))
        await settle(10)
        assert phases(world) == {"w": "Pending"}
        await settle(30)
        assert phases(world) == {"w": "Running"}
        await world.restart(world.binder)


@pytest.mark.parametrize("jump_s", [-3600, 3600])
async def test_a_back_off_lasts_as_long_as_it_should_though_the_wall_clock_jumps(jump_s: int) -> None:
    async with stage.stage("1x2x80GiB") as world:
        world.nodes["node-0"].reject_next(3)
        await create(world, share("p"))
        await settle(3.0)
        assert phases(world) == {"p": "Pending"}
        world.clocks["scheduler"].ahead_ns += jump_s * 10**9
        await settle(900.0)
        assert phases(world) == {"p": "Running"}


@pytest.mark.parametrize("turns", range(8))
async def test_a_term_ends_though_a_request_is_made_so_many_turns_of_the_loop_after_it_was_lost(turns: int) -> None:
    """An answer may come, and a watch tell of something, while the term's tasks are being cancelled."""
    clock = VirtualClock(asyncio.get_running_loop())
    api = Api(MemoryApiServer(clock=clock, rng=random.Random(1)).transport(), retry=Retry(random.Random(2)))
    handed = HandedOver(api, Cache(Cluster(Settings())), clock=clock, orphan_s=60.0)
    placement = Placement(pod_uid="u", namespace="team", name="a", rv="1", node="n")
    term, over = anyio.CancelScope(), anyio.Event()

    async def lead() -> None:
        with term:
            async with anyio.create_task_group() as work:
                work.start_soon(anyio.sleep_forever)
                with handed.watching_in(work):
                    await anyio.sleep_forever()
        over.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lead)
        await anyio.sleep(1.0)
        term.cancel()
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        handed.add(placement, "r")
        with anyio.fail_after(60.0):
            await over.wait()


PLACEMENT = Placement(
    pod_uid="uid-1",
    namespace="team-a",
    name="trainer",
    rv="17",
    node="node-1",
    devices=(PlannedDevice("group-1", 500_000_000),),
)


def _request(wanted: dict[str, Any]) -> GpuRequest:
    translated = kai.translate(msgspec.convert(wanted, Pod))
    assert isinstance(translated, GpuRequest)
    return translated


def test_a_share_is_handed_over_as_kai_writes_it_with_exact_charges_beside() -> None:
    made = request_manifest(PLACEMENT, _request(share("trainer")), plan="p", members=8)
    assert made["metadata"]["name"] == "trainer"
    assert made["metadata"]["labels"] == {"selected-node": "node-1"}
    assert made["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "trainer", "uid": "uid-1"}
    ]
    assert made["spec"] == {
        "podName": "trainer",
        "selectedNode": "node-1",
        "receivedResourceType": "Fraction",
        "receivedGPU": {"count": 1, "portion": "0.50"},
        "selectedGPUGroups": ["group-1"],
    }
    assert parse(made["metadata"]["annotations"][names.HANDOVER]) == Handover("17", PLACEMENT.devices, "p", 8)


def test_the_portion_of_memory_is_rounded_up_as_kai_does() -> None:
    placement = msgspec.structs.replace(PLACEMENT, devices=(PlannedDevice("group-1", 132_371_435, mem_mib=2000),))
    made = request_manifest(placement, _request(share("trainer")))
    assert made["spec"]["receivedGPU"] == {"count": 1, "portion": "0.14"}


def test_a_gang_member_with_whole_gpus_is_handed_over_as_regular() -> None:
    placement = msgspec.structs.replace(PLACEMENT, devices=())
    made = request_manifest(placement, _request(pod("trainer", gpus=2)))
    assert made["spec"]["receivedResourceType"] == "Regular"
    assert made["spec"]["receivedGPU"] == {"count": 2, "portion": "1.00"}
    assert "selectedGPUGroups" not in made["spec"]


async def _ready() -> tuple[MemoryApiServer, Api, Placement]:
    """A server with the pod that is placed: a request whose owner is not there would be collected."""
    server = MemoryApiServer(clock=VirtualClock(asyncio.get_running_loop()), rng=random.Random(1))
    api = Api(server.transport("scheduler"), retry=Retry(random.Random(1)), timeout_s=1.0)
    await api.create(NAMESPACES, {"metadata": {"name": "team-a"}})
    owner = await api.create(PODS, {"apiVersion": "v1", "kind": "Pod", **share("trainer")}, namespace="team-a")
    return server, api, msgspec.structs.replace(PLACEMENT, pod_uid=owner.metadata.uid)


@pytest.mark.parametrize("lost", ["request", "answer"])
async def test_a_request_without_an_answer_is_there_once(lost: str) -> None:
    server, api, placement = await _ready()
    fault = Fault(lost=lost)  # type: ignore[arg-type] # parametrised with the literals
    server.faults.on_request.append(once(fault, when=is_call("scheduler", "create", "bindrequests")))
    made = await create_request(api, request_manifest(placement, _request(share("trainer"))))
    listed = await api.list(BIND_REQUESTS)
    assert [item.metadata.uid for item in listed.items] == [made.metadata.uid]


async def test_an_older_request_of_that_name_goes_first() -> None:
    _, api, placement = await _ready()
    older = msgspec.structs.replace(placement, node="node-0")
    await create_request(api, request_manifest(older, _request(share("trainer"))))
    made = await create_request(api, request_manifest(placement, _request(share("trainer"))))
    listed = await api.list(BIND_REQUESTS)
    assert [item.spec.selected_node for item in listed.items] == ["node-1"]
    assert listed.items[0].metadata.uid == made.metadata.uid


async def test_a_request_refused_for_good_is_not_asked_for_again() -> None:
    server, api, placement = await _ready()
    refuse = is_call("scheduler", "create", "bindrequests")
    server.faults.on_request.append(lambda call: Fault(refuse_with=403) if refuse(call) else None)
    with pytest.raises(NotHanded):
        await create_request(api, request_manifest(placement, _request(share("trainer"))))
