"""Crashes, pauses and partitions: where exactly they hit, and that the work is done all the same."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from kube.lead.lease import LeaseSettings
from simulator.apiserver.calls import Call
from tests.verification.hostile.faults.grounds import Stage, stage
from verification.hostile.faults.ground import READS, Timed
from verification.hostile.faults.processes import Crash, CutOff, Pause, TwoLeaders


class Writes:
    """Writes of one user in the order in which they were carried out: (seconds, verb, resource)."""

    def __init__(self, on: Stage, user: str = "binder") -> None:
        self._on = on
        self._user = user
        self.made: list[tuple[float, str, str]] = []
        on.world.server.faults.on_answer.append(self._take)

    def _take(self, call: Call, code: int) -> None:
        if call.user == self._user and call.verb not in READS and call.kind.plural not in {"events", "leases"}:
            self.made.append((round(self._on.now_s, 3), call.verb, call.subresource or call.kind.plural))

    @property
    def kinds(self) -> list[tuple[str, str]]:
        return [(verb, what) for _, verb, what in self.made]


async def writes_of_a_first_share(fault: Timed | None = None, *, seconds: float = 60) -> Writes:
    async with stage() as on:
        writes = Writes(on)
        if fault is not None:
            on.strike(fault)
        await on.until(1)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(seconds)
        assert await on.phase("p") == "Running"
        if fault is not None:
            assert on.world.binder.incarnations == 2
            assert on.world.binder.is_running
        return writes


@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_before_a_request_means_that_the_server_never_sees_it(nth: int) -> None:
    fault = Crash(at_s=0, for_s=50, component="binder", nth=nth, moment="before", pause_s=10)
    made = (await writes_of_a_first_share(fault)).made
    assert len([at_s for at_s, *_ in made if at_s < 11]) == nth - 1
    assert made[nth - 1][0] >= 11


@pytest.mark.thorough
@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_after_a_request_means_that_it_was_carried_out(nth: int) -> None:
    fault = Crash(at_s=0, for_s=50, component="binder", nth=nth, moment="after", pause_s=10)
    made = (await writes_of_a_first_share(fault)).made
    assert len([at_s for at_s, *_ in made if at_s < 11]) == nth


async def test_a_request_in_flight_lands_when_its_sender_is_dead_or_another() -> None:
    fault = Crash(at_s=0, for_s=50, component="binder", nth=2, moment="in-flight", pause_s=1, lands_after_s=8)
    made = (await writes_of_a_first_share(fault)).made
    bindings = [at_s for at_s, _, what in made if what == "binding"]
    struck_at_s = next(at_s for at_s, _, what in made if what == "pods")
    assert any(at_s > struck_at_s + 8 for at_s in bindings)


async def test_without_so_many_requests_in_time_nothing_happens() -> None:
    async with stage() as on:
        on.strike(Crash(at_s=0, for_s=5, component="binder", nth=1, pause_s=1))
        await on.until(6)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(60)
        assert await on.phase("p") == "Running"
        assert on.world.binder.incarnations == 1


async def test_several_crashes_at_once_leave_one_incarnation() -> None:
    async with stage() as on:
        for at_s in (1.0, 1.0, 2.0, 3.5):
            on.strike(Crash(at_s=at_s, for_s=20, component="binder", pause_s=2))
        await on.until(30)
        assert on.world.binder.is_running
        assert on.world.binder.incarnations == 3
        await on.pod("p", gpu_fraction="0.5")
        await on.until(60)
        assert await on.phase("p") == "Running"


async def test_a_crash_may_hit_while_the_component_starts() -> None:
    async with stage() as on:
        on.strike(Crash(at_s=1, for_s=20, component="scheduler"))
        on.strike(Crash(at_s=1.0001, for_s=20, component="scheduler", nth=3, writes_only=False, pause_s=1))
        await on.until(30)
        assert on.world.scheduler.is_running
        assert on.world.scheduler.incarnations >= 2


async def test_a_first_share_takes_the_binder_three_writes() -> None:
    made = (await writes_of_a_first_share()).kinds
    assert made == [("create", "pods"), ("create", "binding"), ("delete", "bindrequests")]


@pytest.mark.parametrize(("writes_only", "at_once"), [(False, True), (True, False)])
async def test_reads_count_only_if_they_are_meant_to(writes_only: bool, at_once: bool) -> None:
    async with stage() as on:
        await on.until(1)
        on.strike(Crash(at_s=1, for_s=50, component="scheduler", nth=1, writes_only=writes_only, pause_s=30))
        await on.until(2)
        on.world.server.cut_watches()
        await on.until(6)
        assert on.world.scheduler.is_running is not at_once


async def test_a_crash_at_once_needs_no_request() -> None:
    async with stage() as on:
        on.strike(Crash(at_s=3, for_s=10, component="scheduler", pause_s=4))
        await on.until(2.9)
        lives = [on.world.scheduler.is_running]
        for at_s in (3.1, 6.9, 8):
            await on.until(at_s)
            lives.append(on.world.scheduler.is_running)
        assert lives == [True, False, False, True]


@pytest.mark.parametrize("kind", [Pause, CutOff])
async def test_who_stands_still_or_is_cut_off_does_nothing_until_the_end(kind: type[Timed]) -> None:
    async with stage() as on:
        await on.until(0.5)  # the record of evictions is written
        writes = Writes(on, "scheduler")
        on.strike(kind(at_s=1, for_s=30, component="scheduler"))  # type: ignore[call-arg] # both have it
        await on.until(2)
        await on.pod("p", gpu_fraction="0.5")
        await on.until(30.9)
        assert writes.made == []
        await on.until(60)
        assert await on.phase("p") == "Running"


@pytest.mark.parametrize("role", ["scheduler", "binder"])
async def test_the_leader_is_paused_and_another_leads_meanwhile(role: str) -> None:
    async with stage(schedulers=2, binders=2, election=LeaseSettings()) as on:
        replicas = {name: Writes(on, name) for name in on.world.components if name.startswith(role)}
        await on.pod("first", gpu_fraction="0.9")
        await on.until(20)
        (leader,) = [name for name, writes in replicas.items() if writes.made]
        on.strike(TwoLeaders(at_s=20, for_s=60, role=role))
        await on.until(21)
        await on.pod("second", gpu_fraction="0.9")
        await on.until(79)
        assert await on.phase("second") == "Running"
        assert replicas[leader].made[-1][0] < 20
        assert all(writes.made for writes in replicas.values())


@pytest.mark.parametrize(
    "fault",
    [
        Crash(at_s=0, for_s=5, component="scheduler-7"),
        Pause(at_s=0, for_s=5, component="scheduler-7"),
        CutOff(at_s=0, for_s=5, component="scheduler-7"),
    ],
)
async def test_a_component_that_is_not_there_is_not_struck(fault: Any) -> None:
    async with stage() as on:
        with anyio.fail_after(10):
            await fault.strike(on.ground)
