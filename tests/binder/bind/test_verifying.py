"""One look at a node answers for all devices that were wanted before it began."""

from __future__ import annotations

import anyio

from binder.bind.actions import Verifier
from binder.core.reservation_pod import ReservationTemplate
from gpu import reservation as reservations
from gpu.reservation import Reservation
from sharing.outcome import Disputed, Failed, Verified
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from tests.binder.cluster import HALF, Cluster, cluster

Answers = dict[str, Verified | Disputed | Failed]


def _verifier(it: Cluster) -> Verifier:
    return Verifier(it.api, ReservationTemplate(), at_once=4)


async def _held(it: Cluster, *groups: str) -> list[Reservation]:
    """Reservations that the binder has made and verified; what comes now asks for them once more."""
    for group in groups:
        await it.bound(f"p-{group}", group)
    return [reservations.read(await it.reservation(group)) for group in groups]


async def _verified(verifier: Verifier, *held: Reservation) -> Answers:
    answers: Answers = {}

    async def ask(one: Reservation) -> None:
        answers[one.group] = await verifier.verify(one)

    async with anyio.create_task_group() as tasks:
        for one in held:
            tasks.start_soon(ask, one)
    return answers


def _lists(it: Cluster) -> int:
    return sum(entry.user == "test" and entry.verb == "list" for entry in it.server.audit)


def _slow_lists(it: Cluster) -> None:
    def rule(call: Call) -> Fault | None:
        return Fault(delay_s=0.5) if (call.user, call.verb) == ("test", "list") else None

    it.server.faults.on_request.append(rule)


async def test_devices_that_are_wanted_during_a_look_share_the_next() -> None:
    async with cluster() as it:
        held = await _held(it, "a", "b", "c", "d")
        _slow_lists(it)
        before = _lists(it)
        answers = await _verified(_verifier(it), *held)
        assert answers == {group: Verified(group) for group in "abcd"}
        assert _lists(it) - before <= 2


async def test_one_claimed_device_does_not_speak_for_the_others_of_its_look() -> None:
    async with cluster() as it:
        held = await _held(it, "a", "b")
        uuid = held[1].uuid
        await it.kubelet.tell((await it.reservation("a")).metadata.name, uuid)
        answers = await _verified(_verifier(it), reservations.read(await it.reservation("a")), held[1])
        assert {group: type(answer) for group, answer in answers.items()} == {"a": Failed, "b": Failed}
        other = await _held(it, "c")
        assert await _verified(_verifier(it), *other) == {"c": Verified("c")}


async def test_a_pod_that_joins_and_is_bound_while_a_look_is_under_way_is_no_claim() -> None:
    """Its entry and its Binding are shown at one version: never the Binding without the entry."""
    async with cluster() as it:
        (held,) = await _held(it, "a")
        _slow_lists(it)
        before = _lists(it)
        answers: Answers = {}

        async def verify() -> None:
            answers.update(await _verified(_verifier(it), held))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(verify)
            await anyio.sleep(0.1)
            await it.bound("q", "a")
        assert answers == {"a": Verified("a")}
        assert _lists(it) - before == 1


async def test_a_claim_is_found_by_one_list() -> None:
    async with cluster() as it:
        held = await _held(it, "a", "b")
        await it.kubelet.tell((await it.reservation("a")).metadata.name, held[1].uuid)
        before = _lists(it)
        answers = await _verified(_verifier(it), held[1])
        assert isinstance(answers["b"], Failed)
        assert _lists(it) - before == 1


async def test_a_device_that_nobody_claims_costs_one_list() -> None:
    async with cluster() as it:
        (held,) = await _held(it, "a")
        before = _lists(it)
        assert await _verified(_verifier(it), held) == {"a": Verified("a")}
        assert _lists(it) - before == 1


async def test_a_look_goes_on_for_others_when_its_first_asker_is_cancelled() -> None:
    async with cluster() as it:
        first, second, third = await _held(it, "a", "b", "c")
        _slow_lists(it)
        verifier = _verifier(it)
        scope = anyio.CancelScope()

        async def ask_in_vain() -> None:
            with scope:
                await verifier.verify(second)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(verifier.verify, first)
            await anyio.sleep(0.1)
            tasks.start_soon(ask_in_vain)  # leads the next look
            await anyio.sleep(0.1)
            answer = _verified(verifier, third)
            tasks.start_soon(_cancel_later, scope)
            assert await answer == {"c": Verified("c")}


async def _cancel_later(scope: anyio.CancelScope) -> None:
    await anyio.sleep(0.2)
    scope.cancel()


async def test_nobody_waits_for_the_look_at_another_node() -> None:
    async with cluster() as it:
        await it.node("node-2")
        (here,) = await _held(it, "a")
        pod = await it.pod("there")
        await it.hand_over(pod, "z", node="node-2", nano=HALF)
        await it.until(it.is_bound, "there")
        there = reservations.read(await it.reservation("z"))
        _slow_lists(it)
        started = anyio.current_time()
        assert set(await _verified(_verifier(it), here, there)) == {"a", "z"}
        assert anyio.current_time() - started < 1.5
