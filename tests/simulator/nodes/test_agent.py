"""Devices that are told before the processes of their reservations run: on simulated nodes with an agent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anyio
import msgspec
from typing_extensions import override

from gpu import reservation
from gpu.reservation import Reservation
from kube.client.api import Api
from kube.client.resources import PODS
from kube.client.retry import Retry
from nodeagent.core.report.devices import Annotations
from simulator.checks.violations import NOT_JUDGED
from simulator.clock import VirtualClock
from simulator.components import PRODUCT, Parts
from simulator.nodes import shape
from simulator.nodes.device_manager import Device
from simulator.nodes.node_set import NodeAgent
from simulator.nodes.shape import NO_FAULT, ReservationFault
from simulator.policies import AGENT
from simulator.world import World, WorldSettings
from tests.simulator.test_world import HALF, pods
from verification.hostile.faults.ground import LAWLESS
from wire import names
from wire.core import Pod

VIRTUAL_TIME = True

NODE = "node-0"
UNPULLABLE = ReservationFault(no_image=True)
KUBELETS = "system:nodes"


def world(*nodes: str, parts: Parts = PRODUCT, agents: tuple[str, ...] = (NODE,), **settings: Any) -> World:
    clock = VirtualClock(asyncio.get_running_loop())
    wanted = WorldSettings(agents=frozenset(agents), **settings)
    return World(shape.parse(nodes or ["1x2x80GiB"]), clock=clock, settings=wanted, parts=parts)


async def reservations(running: World) -> list[Pod]:
    return (await running.api.list(PODS, namespace=names.RESERVATION_NAMESPACE)).items


async def held(running: World) -> Reservation:
    (pod,) = await reservations(running)
    return reservation.read(pod)


async def phase(running: World, name: str) -> str:
    return (await running.api.get(PODS, name, namespace="default")).status.phase


def kubelets_device(running: World, uid: str) -> str:
    (device,) = running.nodes[NODE].intake.manager.held_by_pod(uid)
    return device.uuid


def told_by(running: World) -> list[str]:
    """Who wrote into reservations which device they hold, in order."""
    return [
        entry.user
        for entry in running.server.audit
        if entry.verb == "patch" and entry.user in {AGENT, "reservation"} and entry.code < 300
    ]


async def settled(running: World) -> None:
    """All runs; then nothing is left over, and nothing was broken."""
    for kubelet in running.nodes.kubelets.values():
        kubelet.faults.reservation = NO_FAULT
    await running.until_idle()
    await running.clear()
    assert holds(running.finish())


def holds(report: Mapping[str, str]) -> bool:
    """Whether nothing is broken, and what is judged at rest either holds or was not looked at."""
    return set(report.values()) <= {"held", NOT_JUDGED}


async def test_a_share_is_bound_before_the_process_of_its_reservation_runs() -> None:
    async with world() as running:
        running.nodes[NODE].faults.reservation = UNPULLABLE
        await running.apply(pods(1, HALF))
        await anyio.sleep(1.0)
        one = await held(running)
        assert (one.phase, one.is_reported, one.is_learned, one.is_told) == ("Pending", True, False, True)
        assert one.uuid == kubelets_device(running, one.uid)
        assert (await running.api.get(PODS, "p-0", namespace="default")).spec.node_name == NODE
        running.nodes[NODE].faults.reservation = NO_FAULT
        await anyio.sleep(20)
        # The process finds its device told already, and has nothing to write.
        assert told_by(running) == [AGENT]
        assert (await held(running)).is_learned
        await settled(running)


async def test_a_process_that_keeps_failing_closes_its_device_though_kubelet_named_it() -> None:
    """A lost GPU shows as a container that keeps ending. Who is there stays; who comes waits or goes elsewhere."""
    async with world() as running:
        running.nodes[NODE].faults.reservation = ReservationFault(broken="GPU is lost")
        await running.apply(pods(1, HALF))
        await anyio.sleep(15)
        first = await held(running)
        assert await phase(running, "p-0") == "Running"
        assert (first.uuid != "", first.is_told) == (True, False)
        await running.apply(pods(1, HALF, prefix="q"))
        await anyio.sleep(3)
        assert await phase(running, "q-0") == "Pending"
        running.nodes[NODE].faults.reservation = NO_FAULT
        # Once its process runs, the device takes tenants again.
        await anyio.sleep(120)
        await running.apply(pods(2, HALF, prefix="r"))
        await anyio.sleep(30)
        assert [await phase(running, name) for name in ("q-0", "r-0", "r-1")] == ["Running"] * 3
        assert len(await reservations(running)) == 2
        await settled(running)


async def test_a_kubelet_that_is_dead_leaves_what_was_told_and_nobody_joins_there() -> None:
    async with world("2x1x80GiB", agents=("node-0", "node-1")) as running:
        for kubelet in running.nodes.kubelets.values():
            kubelet.faults.reservation = UNPULLABLE
        await running.apply(pods(1, 'gpu-fraction: "0.4"'))
        await anyio.sleep(5)
        one = await held(running)
        running.nodes[one.node].die()
        await anyio.sleep(60)
        assert (await held(running)).is_told
        running.nodes[one.node].boot()
        await anyio.sleep(30)
        await running.apply(pods(1, 'gpu-fraction: "0.4"', prefix="q"))
        await anyio.sleep(10)
        assert await phase(running, "q-0") == "Running"
        assert len(await reservations(running)) == 1
        await settled(running)


async def test_a_device_that_kubelet_took_from_its_reservation_is_not_given_to_a_stranger() -> None:
    """Its tenants run there: until the reservation names the new device, everybody takes the old one for held."""
    async with world("1x4x80GiB") as running:
        kubelet = running.nodes[NODE]
        kubelet.faults.reservation = UNPULLABLE
        await running.apply(pods(1, HALF))
        await anyio.sleep(5)
        first = await held(running)
        kubelet.intake.lose_checkpoint_of(first.uid)
        lost = first_device(running, first.uuid)
        others = tuple(device for device in kubelet.devices if device != lost)
        kubelet.intake.manager.order = (*others, lost)
        assert kubelet.intake.allocate_again(first.uid)
        # The next pod gets the device of the tenant.
        kubelet.intake.manager.order = (lost, *others)
        await anyio.sleep(20)
        await running.apply(pods(1, prefix="whole", limits="nvidia.com/gpu: 1"))
        await anyio.sleep(30)
        assert await phase(running, "whole-0") == "Running"
        assert not [text for text in strangers(running) if "is the whole GPU of" in text]


def strangers(running: World) -> list[str]:
    return [found.text for found in running.checker.findings.found.values()]


def first_device(running: World, uuid: str) -> Device:
    return next(device for device in running.nodes[NODE].devices if device.uuid == uuid)


async def vanish(running: World, one: Reservation) -> None:
    """Delete a reservation by force, as an administrator without policies."""
    lawless = Api(running.server.transport(LAWLESS), retry=Retry(random.Random(0)))
    where = {"namespace": names.RESERVATION_NAMESPACE}
    await lawless.patch(PODS, one.name, {"metadata": {"finalizers": None}}, **where)
    await lawless.delete(PODS, one.name, grace_s=0, **where)


# --- an agent that is wrong ------------------------------------------------------------------------------------------
class TakesOverFromPredecessors(NodeAgent):
    """Asks at once, and takes whatever the name means to kubelet."""

    @override
    def _word(self, pod: Pod) -> Annotations | None:
        admitted = msgspec.structs.replace(pod.status, start_time="2026-01-01T00:00:00Z")
        is_told = bool(reservation.read(pod).uuid)
        return None if is_told else super()._word(msgspec.structs.replace(pod, status=admitted))

    @override
    async def _write(self, pod: Pod, patch: Mapping[str, object]) -> None:
        await self._api.patch(PODS, pod.metadata.name, patch, namespace=pod.metadata.namespace)


async def forced(parts: Parts) -> list[str]:
    """A reservation is deleted by force and made again, kubelet hears of it late, and then a whole GPU is asked."""
    async with world(parts=parts, seed=3) as running:
        kubelet = running.nodes[NODE]
        kubelet.faults.reservation = UNPULLABLE
        await running.apply(pods(1, HALF))
        await anyio.sleep(5)
        first = await held(running)
        running.server.faults.on_watch_line.append(lambda call, _: 4.0 if call.user == KUBELETS else 0.0)
        kubelet.intake.manager.order = tuple(sorted(kubelet.devices, key=lambda device: device.uuid == first.uuid))
        await vanish(running, first)
        await anyio.sleep(20)
        running.server.faults.on_watch_line.clear()
        await running.apply(pods(1, prefix="whole", limits="nvidia.com/gpu: 1"))
        await anyio.sleep(60)
        assert running.finish()["S1"] == "held"
        return [found.text for found in running.checker.findings.found.values() if "is the whole GPU of" in found.text]


async def test_an_identity_that_was_taken_over_from_a_predecessor_is_found() -> None:
    """Its tenants' device looks held, so it is not guarded, and kubelet gives it to a stranger."""
    assert await forced(replace(PRODUCT, agent=TakesOverFromPredecessors)) != []


async def test_where_a_reservation_is_told_what_is_its_own_no_stranger_gets_the_device() -> None:
    assert await forced(PRODUCT) == []


async def test_another_device_that_kubelet_gives_before_the_process_ran_is_told_and_closes_both() -> None:
    """Kubelet lost its checkpoint while the image was pulled: the tenants stay, and somebody holds their device."""
    async with world("1x4x80GiB") as running:
        kubelet = running.nodes[NODE]
        kubelet.faults.reservation = UNPULLABLE
        await running.apply(pods(1, HALF))
        await anyio.sleep(5)
        first = await held(running)
        kubelet.intake.lose_checkpoint_of(first.uid)
        others = [device for device in kubelet.devices if device.uuid != first.uuid]
        kubelet.intake.manager.order = (*others, *kubelet.intake.manager.order)
        assert kubelet.intake.allocate_again(first.uid)
        await anyio.sleep(40)
        there = [reservation.read(pod) for pod in await reservations(running)]
        now = next(one for one in there if one.uid == first.uid)
        assert now.uuid == kubelets_device(running, first.uid) != first.uuid
        assert first.uuid in {one.uuid for one in there}
        await running.apply(pods(1, HALF, prefix="q"))
        await anyio.sleep(10)
        assert await phase(running, "q-0") == "Running"
        assert all(not one.is_told or one.uuid == kubelets_device(running, one.uid) for one in there)


async def test_a_patch_that_lands_after_its_reservation_was_made_again_changes_nothing() -> None:
    async with world() as running:
        running.nodes[NODE].faults.reservation = UNPULLABLE
        await running.apply(pods(1, HALF))
        await anyio.sleep(5)
        first = await held(running)
        running.agents.of[NODE].faults.slow_s = 20.0
        await vanish(running, first)
        await anyio.sleep(10)
        second = await held(running)
        assert (second.name, second.is_told) == (first.name, False)
        await vanish(running, second)
        await anyio.sleep(15)
        patches = [entry.code for entry in running.server.audit if (entry.user, entry.verb) == (AGENT, "patch")]
        assert patches == [200, 409]
        there = [reservation.read(pod) for pod in await reservations(running)]
        assert all(one.uuid in {"", kubelets_device(running, one.uid)} for one in there)
        running.agents.of[NODE].faults.slow_s = 0.0
        await settled(running)
