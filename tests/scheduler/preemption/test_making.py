"""Preemption: written before anybody is evicted, kept for its nominated pod, and nobody asked for what is over."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest

from kube.client.resources import CONFIG_MAPS, POD_GROUPS, PODS
from scheduler.core.model.preemption import Action, Ended, Evicted, Nomination, Place
from scheduler.core.preemption import nomination_record
from scheduler.telemetry.events import Answer, Evicts
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from tests.scheduler.preemption.preemption_stage import (
    BUDGETS,
    NODE,
    NS,
    Process,
    Stage,
    is_write_of_room,
    name_of,
    stage,
)
from tests.simulator.apiserver.calls import send
from wire import names
from wire.core import Binding, ObjectMeta, ObjectReference

TAKEN = tuple(f"v{i}" for i in range(8))
SWEEP_S = 11


@asynccontextmanager
async def making(*nominees: str) -> AsyncIterator[tuple[Stage, Process]]:
    """A full node, pods that wait, and a process that leads: it has written the record once."""
    async with stage(*TAKEN) as (at, tasks):
        for name in nominees or ("h",):
            await at.pod(name, is_bound=False)
        process = Process(at, "scheduler")
        await process.start(tasks)
        assert at.writes("scheduler") == 1
        yield at, process


async def another(at: Stage, name: str = "scheduler-2") -> Process:
    """A process that leads from now on, beside whatever else runs."""
    process = Process(at, name)
    await process.start(at.tasks)
    return process


def is_record(call: Call) -> bool:
    return is_write_of_room(call) and name_of(call) == names.NOMINATIONS


def strike(at: Stage, fault: Fault, times: int = 1, verb: str = "") -> None:
    left = [fault] * times
    at.server.faults.on_request.append(
        lambda call: (
            left.pop()
            if left and call.kind.plural == "configmaps" and (call.verb == verb if verb else is_record(call))
            else None
        )
    )


# --- written, then evicted


async def test_all_nominations_of_a_decision_are_one_write_and_then_their_victims_go_in_order() -> None:
    async with making("h", "i") as (at, process):
        process.decide(at.nomination("h-0", "h", "v3", "v1"), at.nomination("i-0", "i", "v2"))
        await anyio.sleep(5)
        assert at.evictions() == ["v3", "v1", "v2"]
        assert (at.writes("scheduler"), at.piece_writes("scheduler")) == (1 + 1, 1)
        assert [nomination.id for nomination in at.record.nominations] == ["h-0", "i-0"]
        assert process.counted.answers == [(Evicts.RECLAIM, Answer.EVICTED)] * 3


async def test_a_nomination_is_charged_at_once_and_what_its_victims_leave_is_kept_until_its_nominee_is_bound() -> None:
    async with making() as (at, process):
        process.decide(at.nomination("h-0", "h", "v0", "v1"))
        assert [nomination.id for nomination in process.nominations] == ["h-0"]
        await anyio.sleep(5)
        assert process.free_gpus() == 1  # two are gone, one of them is the nominated pod's
        await at.api.delete(PODS, "h", namespace=NS, grace_s=0)
        await anyio.sleep(1)
        process.give_up(process.nominations[0], Ended.NOMINEE_GONE)
        assert (process.nominations, process.free_gpus()) == ([], 2)


async def test_nobody_is_evicted_while_the_write_is_under_way() -> None:
    async with making() as (at, process):
        strike(at, Fault(delay_s=3.0))
        process.decide(at.nomination("h-0", "h", "v0"))
        await anyio.sleep(2.5)
        assert at.evictions() == []
        await anyio.sleep(1)
        assert at.evictions() == ["v0"]


async def test_a_nomination_that_is_given_up_while_it_is_written_evicts_nobody_and_leaves_the_record() -> None:
    async with making() as (at, process):
        strike(at, Fault(answer_delay_s=3.0))
        nomination = at.nomination("h-0", "h", "v0")
        process.decide(nomination)
        await anyio.sleep(1)
        process.give_up(nomination)
        await anyio.sleep(SWEEP_S)
        assert at.evictions() == []
        assert at.record.nominations == ()


async def test_what_is_over_leaves_the_record_with_the_next_write() -> None:
    async with making("h", "i") as (at, process):
        first = at.nomination("h-0", "h", "v0")
        process.decide(first)
        await anyio.sleep(1)
        process.give_up(first, Ended.BOUND)
        process.decide(at.nomination("i-0", "i", "v1"))
        await anyio.sleep(1)
        assert [nomination.id for nomination in at.record.nominations] == ["i-0"]
        assert at.writes("scheduler") == 1 + 2


async def test_what_is_over_leaves_the_record_within_ten_seconds_and_nothing_is_written_after_that() -> None:
    async with making() as (at, process):
        nomination = at.nomination("h-0", "h", "v0")
        process.decide(nomination)
        await anyio.sleep(1)
        process.give_up(nomination, Ended.BOUND)
        await anyio.sleep(SWEEP_S)
        assert at.record.nominations == ()
        assert at.writes("scheduler") == 1 + 2
        await anyio.sleep(10_000)
        assert at.writes("scheduler") == 1 + 2


async def test_a_nomination_that_is_decided_again_with_others_is_written_again_before_they_go() -> None:
    async with making("h", "i") as (at, process):
        process.decide(at.nomination("h-0", "h", "v0"), at.nomination("i-0", "i", "v5"))
        await anyio.sleep(1)
        process.decide(at.nomination("h-0", "h", "v0", "v1"))
        await anyio.sleep(1)
        assert at.evictions() == ["v0", "v5", "v1"]
        assert [nomination.id for nomination in at.record.nominations] == ["h-0", "i-0"]  # it keeps its age


# --- who is spared


async def test_a_victim_is_spared_when_nobody_waits_for_its_place_any_more() -> None:
    async with making() as (at, process):
        await protect(at, 0)
        process.decide(at.nomination("h-0", "h", "v0", "v1"))
        await anyio.sleep(1)
        await at.api.delete(PODS, "h", namespace=NS)
        await allow(at, 8)
        await anyio.sleep(60)
        assert at.evictions() == []


async def test_evictions_for_which_nobody_started_are_counted() -> None:
    async with making("h", "i") as (at, process):
        lost, found = at.nomination("h-0", "h", "v0", "v1"), at.nomination("i-0", "i", "v2")
        process.decide(lost, found)
        await anyio.sleep(1)
        process.give_up(lost, Ended.NOMINEE_GONE)
        process.give_up(found, Ended.BOUND)
        assert process.counted.in_vain == 2


# --- an end


async def test_what_is_given_up_stays_kept_for_nominees_that_wait_until_its_end_is_on_record() -> None:
    async with making("h", "i") as (at, process):
        first = at.nomination("h-0", "h", "v0", "v1")
        process.decide(first)
        await anyio.sleep(1)
        assert process.free_gpus() == 1
        strike(at, Fault(delay_s=3.0))
        process.give_up(first)
        process.give_up(first)  # a plan may come again
        await anyio.sleep(2.5)
        assert process.free_gpus() == 1
        assert [nomination.id for nomination in at.record.nominations] == ["h-0"]
        await anyio.sleep(1)  # long before the sweep
        assert (process.free_gpus(), process.nominations, at.record.nominations) == (2, [], ())
        assert process.counted.in_vain == 2


async def test_nobody_goes_any_more_for_what_was_given_up() -> None:
    async with making() as (at, process):
        await protect(at, 0)
        first = at.nomination("h-0", "h", "v0")
        process.decide(first)
        await anyio.sleep(1)
        strike(at, Fault(refuse_with=403), times=100)
        process.give_up(first)
        await allow(at, 8)
        await anyio.sleep(25)
        assert [nomination.id for nomination in process.nominations] == ["h-0"]
        assert at.evictions() == []


@pytest.mark.parametrize("fault", [Fault(refuse_with=403), Fault(refuse_with=500)], ids=["refused", "no answer"])
async def test_an_end_that_cannot_be_written_keeps_room_for_a_minute_and_not_for_ever(fault: Fault) -> None:
    async with making() as (at, process):
        first = at.nomination("h-0", "h", "v0")
        process.decide(first)
        await anyio.sleep(1)
        strike(at, fault, times=100_000)
        process.give_up(first)
        await anyio.sleep(58)
        assert [nomination.id for nomination in process.nominations] == ["h-0"]
        await anyio.sleep(SWEEP_S + 2)
        assert process.nominations == []


async def test_evictions_on_their_way_are_answered_before_the_end_of_their_nomination_is_written() -> None:
    async with making() as (at, process):
        at.server.faults.on_request.append(lambda call: Fault(delay_s=5.0) if call.subresource == "eviction" else None)
        first = at.nomination("h-0", "h", "v0")
        process.decide(first)
        await anyio.sleep(1)
        process.give_up(first)
        await anyio.sleep(3)
        assert [nomination.id for nomination in at.record.nominations] == ["h-0"]
        await anyio.sleep(3)
        assert at.evictions() == ["v0"]  # the stage looks whether it stood on the record then
        assert (at.record.nominations, process.nominations, process.counted.in_vain) == ((), [], 1)


async def test_a_pod_of_a_nomination_that_is_leaving_the_record_is_in_no_other_one_until_that_has_left() -> None:
    async with making("h", "i") as (at, process):
        at.server.faults.on_request.append(lambda call: Fault(delay_s=5.0) if call.subresource == "eviction" else None)
        first = at.nomination("h-0", "h", "v0")
        process.decide(first)
        await anyio.sleep(1)
        target = ObjectReference(api_version="v1", kind="Node", name=NODE)
        await at.api.bind(NS, "h", Binding(metadata=ObjectMeta(name="h"), target=target))
        await anyio.sleep(1)
        process.give_up(first, Ended.BOUND)
        process.decide(at.nomination("i-0", "i", "h"))
        await anyio.sleep(2)
        assert [nomination.id for nomination in at.record.nominations] == ["h-0"]
        await anyio.sleep(3)
        assert [nomination.id for nomination in at.record.nominations] == ["i-0"]


async def test_an_eviction_of_unknown_outcome_is_on_its_way_until_its_pod_was_read() -> None:
    async with making() as (at, process):
        struck, may_read = [Fault(refuse_with=500)], [False]
        at.server.faults.on_request.append(
            lambda call: struck.pop() if struck and call.subresource == "eviction" else None
        )
        at.server.faults.on_request.append(
            lambda call: (
                Fault(refuse_with=500)
                if call.user == "scheduler" and call.verb == "get" and call.kind.plural == "pods" and not may_read[0]
                else None
            )
        )
        first = at.nomination("h-0", "h", "v0")
        process.decide(first)
        await anyio.sleep(1)
        process.give_up(first)
        await anyio.sleep(25)
        assert [nomination.id for nomination in at.record.nominations] == ["h-0"]
        may_read[0] = True
        await anyio.sleep(12)
        assert (at.record.nominations, at.evictions()) == ((), [])


async def test_a_revision_without_a_victim_that_is_being_asked_is_written_when_that_is_answered() -> None:
    async with making() as (at, process):
        slow = [Fault(delay_s=5.0)]
        at.server.faults.on_request.append(lambda call: slow.pop() if slow and call.subresource == "eviction" else None)
        process.decide(at.nomination("h-0", "h", "v0"))
        await anyio.sleep(1)
        process.decide(at.nomination("h-0", "h", "v1"))
        await anyio.sleep(3)
        assert at.evictions() == []
        await anyio.sleep(3)
        assert at.evictions() == ["v0", "v1"]  # the first one stood on the record, as the stage looks


# --- will it fit


async def test_nobody_goes_for_a_nominee_that_does_not_fit_any_more_and_one_is_asked_again_when_it_does() -> None:
    async with making() as (at, process):
        await at.pod("big", gpus=2, is_bound=False)
        await protect(at, 1)
        process.decide(at.nomination("big-0", "big", "v0", "v1"))
        await anyio.sleep(1)
        assert at.evictions() == ["v0"]
        await at.pod("foreign", schedulerName="another")  # it takes the place beside the other one
        await allow(at, 8)
        await anyio.sleep(60)
        assert at.evictions() == ["v0"]
        await at.api.delete(PODS, "foreign", namespace=NS, grace_s=0)
        await anyio.sleep(SWEEP_S)
        assert at.evictions() == ["v0", "v1"]


async def test_nobody_goes_for_a_gang_of_which_one_is_gone() -> None:
    async with making("h", "i") as (at, process):
        await protect(at, 0)
        both = at.nomination("h-0", "h", "v0", "v1")
        both = msgspec.structs.replace(both, places=(*both.places, Place(at.uids["i"], NODE)))
        process.decide(both)
        await anyio.sleep(1)
        await at.api.delete(PODS, "i", namespace=NS, grace_s=0)
        await allow(at, 8)
        await anyio.sleep(60)
        assert at.evictions() == []


# --- writes that fail


@pytest.mark.parametrize(
    "fault",
    [
        Fault(refuse_with=500),
        Fault(refuse_with=500, carried_out=True),
        Fault(lost="request"),
        Fault(lost="answer"),
        Fault(lost="request", lands_after_s=4.0),
        Fault(refuse_with=429, retry_after_s=2),
    ],
    ids=["500", "500 that lies", "request lost", "answer lost", "late", "429"],
)
async def test_a_write_whose_outcome_is_not_known_is_settled_and_then_the_victims_go(fault: Fault) -> None:
    async with making() as (at, process):
        strike(at, fault)
        process.decide(at.nomination("h-0", "h", "v0"))
        await anyio.sleep(60)
        assert at.evictions() == ["v0"]
        assert [nomination.id for nomination in at.record.nominations] == ["h-0"]


async def test_what_may_not_be_written_evicts_nobody_and_is_dropped_after_a_pause_that_grows() -> None:
    async with making() as (at, process):
        strike(at, Fault(refuse_with=403), times=3)
        for pause_s in (1, 2, 4):
            process.decide(at.nomination("h-0", "h", "v0"))
            await anyio.sleep(pause_s - 0.5)
            assert [nomination.id for nomination in process.nominations] == ["h-0"]
            await anyio.sleep(1)
            assert process.nominations == []
        assert at.evictions() == []
        process.decide(at.nomination("h-0", "h", "v0"))
        await anyio.sleep(1)
        assert at.evictions() == ["v0"]


async def test_a_revised_nomination_that_may_not_be_written_stands_and_is_written_later() -> None:
    async with making() as (at, process):
        process.decide(at.nomination("h-0", "h", "v0"))
        await anyio.sleep(1)
        strike(at, Fault(refuse_with=403))
        process.decide(at.nomination("h-0", "h", "v1"))
        await anyio.sleep(0.5)
        assert at.evictions() == ["v0"]
        await anyio.sleep(0.6)  # the pause is over, after which one that was never written is dropped
        assert [nomination.id for nomination in process.nominations] == ["h-0"]
        await anyio.sleep(2)
        assert at.evictions() == ["v0", "v1"]
        assert [nomination.id for nomination in at.record.nominations] == ["h-0"]


def _bytes_of(*nominations: Nomination) -> int:
    return nomination_record.sent_bytes(nomination_record.written(nomination_record.Record(nominations)).encode())


async def test_one_that_does_not_fit_waits_until_another_one_is_over() -> None:
    async with making("h", "i") as (at, process):
        first, second = at.nomination("h-0", "h", "v0"), at.nomination("i-0", "i", "v1")
        most = _bytes_of(first) * 9 // 4
        process.making.most_bytes = most
        process.decide(first, second)
        await anyio.sleep(120)
        assert at.evictions() == ["v0"]
        assert len(at.text()) <= most
        process.give_up(first, Ended.BOUND)
        await anyio.sleep(1)
        assert at.evictions() == ["v0", "v1"]


async def test_a_full_record_is_not_written_again_for_each_nomination_that_is_over() -> None:
    names = [f"h{at}" for at in range(6)]
    async with making(*names) as (at, process):
        found = [at.nomination(f"{name}-0", name, f"v{number}") for number, name in enumerate(names)]
        process.making.most_bytes = _bytes_of(*found[:5]) * 9 // 4
        process.decide(*found)
        await anyio.sleep(0.1)
        before = at.writes("scheduler")
        for nomination in found[:5]:
            process.give_up(nomination, Ended.BOUND)
            await anyio.sleep(0.05)
        await anyio.sleep(1)
        assert at.writes("scheduler") == before + 1
        assert at.evictions() == [f"v{number}" for number in range(6)]


async def test_a_record_that_people_deleted_is_written_again() -> None:
    async with making("h", "i") as (at, process):
        process.decide(at.nomination("h-0", "h", "v0"))
        await anyio.sleep(1)
        await at.drop_record()
        process.decide(at.nomination("i-0", "i", "v1"))
        await anyio.sleep(1)
        assert [nomination.id for nomination in process.nominations] == ["h-0"]  # the new one is decided again
        assert [nomination.id for nomination in at.record.nominations] == ["h-0"]


# --- a new leader


async def test_a_new_leader_charges_what_is_written_and_asks_for_who_is_still_there() -> None:
    async with making("h", "i") as (at, process):
        await protect(at, 1)
        process.decide(at.nomination("h-0", "h", "v0"), at.nomination("i-0", "i", "v1", "v2"))
        await anyio.sleep(1)
        assert at.evictions() == ["v0"]
        process.kill()
        await allow(at, 8)
        second = await another(at)
        assert [nomination.id for nomination in second.nominations] == ["h-0", "i-0"]
        assert second.free_gpus() == 0
        await anyio.sleep(1)
        assert at.evictions() == ["v0", "v1", "v2"]


async def test_a_new_leader_asks_nobody_who_is_on_the_way_out() -> None:
    async with making() as (at, process):
        await at.api.delete(PODS, "v0", namespace=NS, grace_s=0)
        await at.pod("slow", grace_s=300)
        process.decide(at.nomination("h-0", "h", "slow"))
        await anyio.sleep(1)
        process.kill()
        await another(at)
        await anyio.sleep(60)
        assert at.evictions() == ["slow"]


async def test_a_new_leader_counts_what_the_one_before_evicted() -> None:
    async with making() as (at, process):
        process.decide(at.nomination("h-0", "h", "v0", "v1"))
        await anyio.sleep(1)
        process.kill()
        second = await another(at)
        (evicted,) = {second.cache.preemption.facts().evicted[f"owner-{name}"] for name in ("v0", "v1")}
        assert evicted == Evicted(1, evicted.last_s)
        second.give_up(second.nominations[0], Ended.NOMINEE_GONE)
        assert second.counted.in_vain == 2


async def test_a_record_that_cannot_be_read_keeps_nothing_and_is_written_over(caplog: pytest.LogCaptureFixture) -> None:
    async with making() as (at, process):
        process.kill()
        said = {"data": {"nominations": "{", "term": "many"}}
        await at.api.patch(CONFIG_MAPS, names.NOMINATIONS, said, namespace=names.SYSTEM_NAMESPACE)
        with caplog.at_level(logging.WARNING):
            second = await another(at)
        assert "moorage-nominations: nothing can be read" in caplog.text
        second.decide(at.nomination("h-0", "h", "v0"))
        await anyio.sleep(1)
        assert at.evictions() == ["v0"]


async def test_without_the_right_to_read_the_record_nobody_is_evicted_until_it_is_given() -> None:
    async with making() as (at, process):
        process.kill()
        may = [False]
        at.server.faults.on_request.append(
            lambda call: (
                Fault(refuse_with=403)
                if call.user == "scheduler-2" and call.kind.plural == "configmaps" and not may[0]
                else None
            )
        )
        second = await another(at)
        second.decide(at.nomination("h-0", "h", "v0"))
        await anyio.sleep(100)
        assert (at.evictions(), second.nominations) == ([], [])
        may[0] = True
        await anyio.sleep(SWEEP_S)
        second.decide(at.nomination("h-0", "h", "v0"))
        await anyio.sleep(1)
        assert at.evictions() == ["v0"]


async def test_a_write_that_was_refused_counts_no_evictions_and_no_takes() -> None:
    """Evictions are on record when the write of the nominations is refused; the next write takes them back."""
    async with making() as (at, process):
        for number in range(4):
            await at.pod(f"x{number}", is_bound=False, namespace="other")
            strike(at, Fault(refuse_with=403))
            process.decide(at.nomination(f"x{number}-0", f"x{number}", "v0", namespace="other"))
            await anyio.sleep(0.1)
            await at.api.delete(PODS, f"x{number}", namespace="other", grace_s=0)
            await anyio.sleep(60)
        assert (process.cache.preemption.facts().evicted, process.cache.preemption.takers_wait) == ({}, {})
        process.kill()
        second = await another(at)
        assert (second.cache.preemption.facts().evicted, second.cache.preemption.takers_wait) == ({}, {})
        assert at.evictions() == []


async def test_a_nomination_whose_write_was_refused_counts_its_evictions_once_when_it_is_written() -> None:
    async with making() as (at, process):
        strike(at, Fault(refuse_with=403), times=3)
        for _ in range(4):
            process.decide(at.nomination("h-0", "h", "v0"))
            await anyio.sleep(10)
        assert at.evictions() == ["v0"]
        (evicted,) = process.cache.preemption.facts().evicted.values()
        assert evicted.times == 1


async def test_what_is_given_up_while_it_is_written_for_the_first_time_is_no_take() -> None:
    async with making() as (at, process):
        for number in range(3):
            await at.pod(f"x{number}", is_bound=False, namespace="other")
            strike(at, Fault(answer_delay_s=3.0))
            nomination = at.nomination(f"x{number}-0", f"x{number}", "v0", namespace="other")
            process.decide(nomination)
            await anyio.sleep(1)
            process.give_up(nomination)
            await anyio.sleep(SWEEP_S)
            await at.api.delete(PODS, f"x{number}", namespace="other", grace_s=0)
            await anyio.sleep(1)
        assert (at.evictions(), process.cache.preemption.takers_wait) == ([], {})


# --- two leaders


async def test_of_two_leaders_the_second_one_loses_its_write_reads_and_decides_again() -> None:
    async with making("h", "i") as (at, process):
        second = await another(at)
        process.decide(at.nomination("h-0", "h", "v0"))
        await anyio.sleep(1)
        assert (at.evictions(), process.nominations) == ([], [])  # the second one has taken over the record
        process.decide(at.nomination("h-0", "h", "v0"))
        await anyio.sleep(1)
        second.decide(at.nomination("i-0", "i", "v0", "v1"))  # it takes the same victim, as it knows no better
        await anyio.sleep(1)
        assert at.evictions() == ["v0"]
        assert [nomination.id for nomination in second.nominations] == ["h-0"]
        assert second.free_gpus() == 0
        second.decide(at.nomination("i-0", "i", "v1"))
        await anyio.sleep(1)
        assert at.evictions() == ["v0", "v1"]
        assert [nomination.id for nomination in at.record.nominations] == ["h-0", "i-0"]


async def test_two_leaders_that_write_at_the_same_time_evict_what_one_of_them_wrote() -> None:
    async with making("h", "i") as (at, process):
        second = await another(at)
        process.decide(at.nomination("h-0", "h", "v0"))
        second.decide(at.nomination("i-0", "i", "v0"))
        await anyio.sleep(2)
        assert at.evictions() == ["v0"]
        (standing,) = at.record.nominations
        assert process.nominations == second.nominations or not (process.nominations and second.nominations)
        assert standing.id in {"h-0", "i-0"}


async def test_a_nomination_that_another_one_has_overtaken_is_dropped_and_decided_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was decided before the record of another leader was read."""
    async with making("h", "i") as (at, process):
        process.decide(at.nomination("h-0", "h", "v0"))
        version = process.cache.preemption.version
        with caplog.at_level(logging.WARNING):
            process.decide(at.nomination("i-0", "i", "v0", "v1"))
        assert [nomination.id for nomination in process.nominations] == ["h-0"]
        assert process.cache.preemption.version > version
        assert "nomination i-0 has pod" in caplog.text
        await anyio.sleep(2)
        assert at.evictions() == ["v0"]
        assert [nomination.id for nomination in at.record.nominations] == ["h-0"]


async def test_a_server_that_calls_every_write_a_conflict_is_asked_less_and_less_often() -> None:
    async with making() as (at, _):
        before = len(at.server.audit)
        strike(at, Fault(refuse_with=409), times=1000)
        second = await another(at)
        second.decide(at.nomination("h-0", "h", "v0"))
        await anyio.sleep(60)
        assert len(at.server.audit) - before < 70
        assert at.evictions() == []


async def test_a_write_of_a_leader_that_is_gone_does_not_land_once_the_next_one_has_written_the_record() -> None:
    async with making("h", "i") as (at, process):
        strike(at, Fault(lost="request", lands_after_s=5.0))
        process.decide(at.nomination("h-0", "h", "v0"))
        await anyio.sleep(0.1)
        process.kill()
        second = await another(at)
        await anyio.sleep(10)
        assert (at.record.nominations, second.nominations) == ((), [])
        second.decide(at.nomination("i-0", "i", "v0"))
        await anyio.sleep(1)
        assert [nomination.id for nomination in second.nominations] == ["i-0"]
        assert at.evictions() == ["v0"]


async def test_a_write_that_takes_a_nomination_from_the_record_does_not_land_after_the_next_leader_has_asked() -> None:
    async with making("h", "i") as (at, process):
        await protect(at, 0)
        first = at.nomination("h-0", "h", "v0")
        process.decide(first)
        await anyio.sleep(1)
        strike(at, Fault(lost="request", lands_after_s=5.0))
        process.give_up(first)
        await anyio.sleep(0.1)
        process.kill()
        await allow(at, 8)
        second = await another(at)
        await anyio.sleep(10)
        assert at.evictions() == ["v0"]
        assert (
            [nomination.id for nomination in at.record.nominations]
            == [nomination.id for nomination in second.nominations]
            == ["h-0"]
        )


async def test_a_new_leader_asks_nobody_before_it_has_written_the_record() -> None:
    async with making() as (at, process):
        await protect(at, 0)
        process.decide(at.nomination("h-0", "h", "v0"))
        await anyio.sleep(1)
        process.kill()
        await allow(at, 8)
        strike(at, Fault(refuse_with=403), times=2)
        second = await another(at)
        assert second.free_gpus() == 0
        await anyio.sleep(SWEEP_S - 2)
        assert (at.evictions(), [nomination.id for nomination in second.nominations]) == ([], ["h-0"])
        await anyio.sleep(SWEEP_S)
        assert at.evictions() == ["v0"]


async def test_a_record_that_takes_no_writes_holds_up_the_first_decision_for_ten_seconds_at_most() -> None:
    async with making() as (at, process):
        process.kill()
        strike(at, Fault(refuse_with=500), times=1000)
        began = anyio.current_time()
        second = await another(at)
        assert 9 <= anyio.current_time() - began <= 11
        second.decide(at.nomination("h-0", "h", "v0"))
        await anyio.sleep(60)
        assert at.evictions() == []


# --- budgets


async def protect(at: Stage, allowed: int) -> None:
    client = at.server.transport()
    await send(
        client, "POST", BUDGETS, {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "a"}}}}
    )
    await allow(at, allowed)


async def allow(at: Stage, allowed: int) -> None:
    status = {"observedGeneration": 1, "disruptionsAllowed": allowed}
    await send(at.server.transport(), "PATCH", f"{BUDGETS}/b/status", {"status": status})


async def test_who_is_refused_is_known_to_decisions_and_asked_again() -> None:
    async with making() as (at, process):
        await protect(at, 0)
        process.decide(at.nomination("h-0", "h", "v0"))
        await anyio.sleep(1)
        assert process.cache.preemption.facts().refused == {at.uids["v0"]}
        await allow(at, 1)
        await anyio.sleep(10)
        assert at.evictions() == ["v0"]
        assert process.cache.preemption.facts().refused == frozenset()
        answers = [answer for _, answer in process.counted.answers]
        assert answers == [Answer.REFUSED, Answer.EVICTED]


# --- what people read


async def test_a_reclaimed_pod_has_an_event_in_kais_words_with_how_both_queues_stand() -> None:
    async with making() as (at, process):
        process.decide(at.nomination("h-0", "h", "v0"))
        await anyio.sleep(10)
        ((kind, name, said),) = await at.notes()
        assert (kind, name) == ("Pod", "v0")
        assert said == (
            "Pod team/v0 was preempted by workload team/h. "
            "a uses <GPU: 8, CPU: 0 (cores), memory: 0 (GB)> with a quota of <GPU: 2, CPU: 0 (cores), memory: 0 (GB)>, "
            "fair-share of <GPU: 2, CPU: 0 (cores), memory: 0 (GB)> and queue priority of <100>. "
            "b uses <GPU: 0, CPU: 0 (cores), memory: 0 (GB)> with a quota of <GPU: unlimited, CPU: 0 (cores), "
            "memory: 0 (GB)>, fair-share of <GPU: 1, CPU: 0 (cores), memory: 0 (GB)> and queue priority of <100>."
        )


async def test_a_preempted_pod_of_a_gang_has_its_event_on_the_podgroup() -> None:
    async with stage(*TAKEN[:7]) as (at, tasks):
        for name in ("g", "urgent"):
            await at.api.create(POD_GROUPS, {"metadata": {"name": name}, "spec": {"minMember": 1}}, namespace=NS)
        await at.pod("member", group="g")
        await at.pod("h", is_bound=False, group="urgent")
        process = Process(at, "scheduler")
        await process.start(tasks)
        process.decide(at.nomination("h-0", "h", "member", action=Action.PREEMPT, group="urgent"))
        await anyio.sleep(10)
        said = "Pod team/member was preempted by higher priority workload team/urgent"
        assert await at.notes() == [("PodGroup", "g", said)]
        assert process.counted.answers == [(Evicts.PREEMPT, Answer.EVICTED)]


@pytest.mark.parametrize("action", [Action.RECLAIM, Action.PREEMPT, Action.MOVE])
async def test_an_event_names_no_workload_of_another_namespace(action: Action) -> None:
    async with stage(*TAKEN) as (at, tasks):
        await at.pod("canary-pod", is_bound=False, namespace="canary")
        process = Process(at, "scheduler")
        await process.start(tasks)
        process.decide(
            at.nomination("h-0", "canary-pod", "v0", action=action, group="canary-group", namespace="canary")
        )
        await anyio.sleep(10)
        ((_, name, said),) = await at.notes()
        assert name == "v0"
        assert "canary" not in said
        assert ("workload of queue b" in said) is (action is not Action.MOVE)


async def test_one_line_of_the_log_tells_of_each_step(caplog: pytest.LogCaptureFixture) -> None:
    async with making() as (at, process):
        with caplog.at_level(logging.INFO):
            process.decide(at.nomination("h-0", "h", "v0"))
            await anyio.sleep(1)
            process.give_up(process.nominations[0], Ended.BOUND)
        told = {r.__dict__["event"]: r.__dict__["fields"] for r in caplog.records if "event" in r.__dict__}
        assert told["nomination.made"] == {"nomination": "h-0", "action": "reclaim", "victims": 1}
        assert told["pod.evicted"] == {
            "pod": "team/v0", "node": NODE, "action": "reclaim", "nomination": "h-0", "taker": "team",
        }  # fmt: skip
        assert told["nomination.ended"] == {"nomination": "h-0", "because": "bound", "evicted": 1}
