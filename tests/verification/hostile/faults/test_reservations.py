"""Reservation processes that go wrong and reservation pods that go: what really happens, and that work goes on."""

from __future__ import annotations

import msgspec
import pytest

from simulator.apiserver.calls import Call
from simulator.nodes.ground_truth import Started
from tests.verification.hostile.faults import grounds
from tests.verification.hostile.faults.grounds import stage
from verification.hostile.faults.ground import Timed
from verification.hostile.faults.nodes import NodeCordoned
from verification.hostile.faults.reservations import (
    BookLost,
    ReservationDeleted,
    ReservationEvicted,
    ReservationFails,
    ReservationKilled,
    ReservationLies,
    ReservationLiesAfar,
    ReservationSilent,
    ReservationSlow,
    ReservationVanishes,
    Stage,
)
from wire import names
from wire.core import Pod

pytestmark = pytest.mark.thorough


async def reservations(on: grounds.Stage) -> list[Pod]:
    return await on.ground.reservations()


def told(pod: Pod) -> str:
    return (pod.metadata.annotations or {}).get(names.RESERVE_FOR_GPU_INDEX, "")


def book_in(raw: bytes) -> str | None:
    annotations = msgspec.json.decode(raw)["metadata"].get("annotations") or {}
    return annotations.get(names.TENANTS)


def is_making(call: Call) -> bool:
    is_reservation = call.namespace == names.RESERVATION_NAMESPACE
    return is_reservation and (call.verb, call.kind.plural, call.subresource) == ("create", "pods", "")


def starts(on: grounds.Stage) -> int:
    """How often reservation processes were started."""
    history = on.world.nodes.ground_truth.history
    return sum(isinstance(r, Started) and r.container == names.RESERVATION_CONTAINER for r in history)


async def test_a_reservation_that_fails_is_started_again_and_in_the_end_the_share_runs() -> None:
    async with stage() as on:
        on.strike(ReservationFails(at_s=0, for_s=25, node="node-0"))
        await on.until(1)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(24)
        assert starts(on) >= 2
        assert [told(pod) for pod in await reservations(on)] == [""]
        await on.until(120)
        assert await on.phase("p") == "Running"


async def test_a_liar_tells_the_card_it_was_told_to_until_the_end() -> None:
    async with stage("1x2x40GiB", "1x1x40GiB") as on:
        lie = on.world.nodes["node-1"].devices[0].uuid
        on.strike(NodeCordoned(at_s=0, for_s=100, node="node-1"))
        on.strike(ReservationLiesAfar(at_s=0, for_s=20, node="node-0", of_node="node-1", card=5))
        await on.until(1)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(19)
        assert [told(pod) for pod in await reservations(on)] == [lie]
        await on.until(60)
        (truth,) = {told(pod) for pod in await reservations(on)}
        assert truth in {device.uuid for device in on.world.nodes["node-0"].devices}


async def test_two_reservations_that_tell_one_card_are_not_both_used() -> None:
    async with stage() as on:
        card = on.world.nodes["node-0"].devices[0].uuid
        on.strike(ReservationLies(at_s=0, for_s=60, node="node-0", card=0))
        await on.until(1)
        await on.pod("p", gpu_fraction="0.9")
        await on.pod("q", gpu_fraction="0.9")
        await on.until(59)
        seen = [record.pod for record in on.world.nodes.ground_truth.running if card in record.devices]
        users = [pod for pod in seen if pod.startswith(grounds.NAMESPACE)]
        assert len(users) <= 1
        assert on.world.checker.report["S1"] == "held"


@pytest.mark.parametrize("at", ["made", "running", "told", "used"])
@pytest.mark.parametrize("kind", [ReservationDeleted, ReservationVanishes, ReservationEvicted])
async def test_a_reservation_pod_goes_and_the_share_runs_in_the_end(kind: type[Timed], at: Stage) -> None:
    async with stage() as on:
        made: list[str] = []
        on.world.server.faults.on_answer.append(lambda call, _: made.append(call.verb) if is_making(call) else None)
        on.strike(kind(at_s=0, for_s=60, stage=at))  # type: ignore[call-arg] # all have it
        await on.until(1)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(200)
        assert len(made) > 1
        assert await on.phase("p") == "Running"


@pytest.mark.parametrize("is_empty", [False, True])
async def test_a_device_whose_book_was_lost_is_not_given_to_more_than_it_holds(is_empty: bool) -> None:
    async with stage("1x1x40GiB") as on:
        await on.pod("p", gpu_fraction="0.7")
        await on.until(20)
        books: list[str | None] = []
        on.world.server.listen(lambda kind, raw, _: books.append(book_in(raw)) if kind.plural == "pods" else None)
        books.clear()
        on.strike(BookLost(at_s=20, for_s=5, stage="used", is_empty=is_empty))
        await on.until(21)
        assert ("{}" if is_empty else None) in books
        await on.pod("q", gpu_fraction="0.7")
        await on.until(200)
        assert (await on.phase("p"), (await on.read("q")).spec.node_name) == ("Running", "")


async def test_a_silent_reservation_says_nothing_even_later_and_is_given_up() -> None:
    async with stage() as on:
        on.strike(ReservationSilent(at_s=0, for_s=10, node="node-0"))
        await on.until(1)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(12)
        (silent,) = await reservations(on)
        assert told(silent) == ""
        await on.until(300)
        assert await on.phase("p") == "Running"
        assert silent.metadata.uid not in [pod.metadata.uid for pod in await reservations(on)]


async def test_a_slow_reservation_answers_late() -> None:
    async with stage() as on:
        on.strike(ReservationSlow(at_s=0, for_s=5, node="node-0", slow_s=15.0))
        await on.until(1)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(16)
        assert [told(pod) for pod in await reservations(on)] == [""]
        await on.until(18)
        assert [bool(told(pod)) for pod in await reservations(on)] == [True]


async def test_killed_processes_are_started_again() -> None:
    async with stage() as on:
        await on.pod("p", gpu_fraction="0.5")
        await on.until(10)
        assert starts(on) == 1
        on.strike(ReservationKilled(at_s=10, for_s=60, node="node-0", every_s=25.0))
        await on.until(65)
        assert starts(on) == 3
        await on.until(200)
        assert starts(on) == 4
        assert await on.phase("p") == "Running"


async def test_a_reservation_that_vanishes_leaves_no_object_behind() -> None:
    async with stage() as on:
        await on.pod("p", gpu_fraction="0.5")
        await on.until(10)
        (before,) = await reservations(on)
        await ReservationVanishes(at_s=10, for_s=5).strike(on.ground)
        assert before.metadata.uid not in on.world.observers["pods"].latest


async def test_an_evicted_reservation_has_failed() -> None:
    async with stage() as on:
        await on.pod("p", gpu_fraction="0.5")
        await on.until(10)
        told: list[bytes] = []
        on.world.server.faults.on_answer.append(lambda call, _: told.append(call.body or b""))
        await ReservationEvicted(at_s=10, for_s=5, stage="used").strike(on.ground)
        await on.until(12)
        assert any(b'"phase":"Failed"' in body and b'"reason":"Evicted"' in body for body in told)


async def test_where_there_is_no_reservation_pod_nothing_happens() -> None:
    async with stage() as on:
        await ReservationDeleted(at_s=0, for_s=5).strike(on.ground)
        assert on.now_s == 5
