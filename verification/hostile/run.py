"""Runs a scenario from the start of the cluster to its end, and says what did not hold.

The same scenario gives the same run: one event loop on virtual time, randomness from the scenario's seed alone. Beside
the checker's invariants and run_checks.py's three things are judged here:

- HANG: it did not come to rest, or not to its end, within the time it may take;
- CRASH: a component ended by an exception;
- EDGE: an exception that nobody expected was caught at the edge of a component, which then went on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

import anyio
import msgspec

from nodeagent.mig.partitioning import GpuPartitioner
from simulator.checks.violations import Violation
from simulator.clock import Deadlock, VirtualClock, VirtualTimeLoop
from simulator.components import PRODUCT, Parts
from simulator.mig.nodes import SlicedNodes
from simulator.world import World
from verification.hostile import run_checks
from verification.hostile.actions import Action
from verification.hostile.coverage_marks import Marks, PreemptionCounter, PreemptionCounts
from verification.hostile.eventlog import EventLog, LogTaker, told_error
from verification.hostile.faults.ground import Ground
from verification.hostile.faults.kinds import Fault
from verification.hostile.run_checks import Oversight
from verification.hostile.scenario import Scenario
from verification.hostile.suggestions import Suggested
from verification.hostile.versions import Versions

#: How often is looked, also after the first exception: interrupted code may run into another endless loop as it ends.
_LOOK_S: Final = 1.0
#: Times the limit, a whole run may take.
_IN_ALL: Final = 10


class RanTooLong(KeyboardInterrupt):  # asyncio lets only this kind out at once
    """Raised in the middle of running code when the processor time is used up."""


@contextlib.contextmanager
def processor_time(limit_s: float, progress: Callable[[], float] = lambda: 0.0) -> Iterator[None]:
    """Raise RanTooLong inside when this process has used so much processor time without progress, or ten times as much.

    Virtual time never waits, so a run that hangs either burns the processor while virtual time does not move, or lets
    virtual hours pass, which the run itself bounds. What a whole run takes depends on the machine and on how busy it
    is, so it is bounded far more widely. ``progress``: the virtual second, which counts as progress once it is another.
    Main thread only; else no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    watch = _Watch(limit_s, progress)
    with _quiet_where_lost():
        before = signal.signal(signal.SIGPROF, watch.look)
        signal.setitimer(signal.ITIMER_PROF, min(limit_s, _LOOK_S), _LOOK_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)


class _Watch:
    """What has been used since the last progress, and in all."""

    def __init__(self, limit_s: float, progress: Callable[[], float]) -> None:
        self._limit_s = limit_s
        self._progress = progress
        self._second = int(progress())
        self._began_s = self._since_s = time.process_time()

    def look(self, _signal: int, frame: FrameType | None) -> None:
        now_s, second = time.process_time(), int(self._progress())
        if second != self._second:
            self._second, self._since_s = second, now_s
        where = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "nowhere"
        if now_s - self._since_s >= self._limit_s:
            raise RanTooLong(f"{self._limit_s:g} s of processor time in one virtual second, at {where}")
        if now_s - self._began_s >= _IN_ALL * self._limit_s:
            raise RanTooLong(f"{_IN_ALL * self._limit_s:g} s of processor time in all, at {where}")


@contextlib.contextmanager
def _quiet_where_lost() -> Iterator[None]:
    """Report no RanTooLong that Python drops, as in the callback of a weak reference: the next signal ends the run."""
    before = sys.unraisablehook

    def report(unraisable: sys.UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, RanTooLong):
            before(unraisable)

    sys.unraisablehook = report
    try:
        yield
    finally:
        sys.unraisablehook = before


HANG: Final = "HANG"
CRASH: Final = "CRASH"
EDGE: Final = "EDGE"

#: Virtual seconds from calm until nothing may be written any more.
REST_S: Final = 3600.0
#: It is at rest when nothing was written for so long; while pods wait for a place, for longer than their back-off.
QUIET_S: Final = 20.0
WAITING_QUIET_S: Final = 330.0
#: ...and every pod has been settled for so long: kubelets that come back tell first how it was, then how it is.
STEADY_S: Final = 5.0
#: Virtual seconds after which a run is given up, wherever it stands.
LIMIT_S: Final = 30_000.0
#: Processor time without progress of virtual time after which it is given up (guard.py).
LIMIT_CPU_S: Final = 20.0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a run. ``violations`` in the order of their finding; ``events``: the log that tells of the first.

    ``digest``: SHA-256 over all writes, with times, answers and bodies. Times are seconds since the cluster was ready.
    """

    violations: tuple[Violation, ...]
    digest: str
    events: tuple[str, ...]
    writes: int
    pods: int
    ended_at_s: float
    #: How many pods were shown devices, by the dialect that they are in.
    served: dict[str, int]
    #: The states of the protocol that it came to (verification/hostile/coverage_marks.py), sorted.
    marks: tuple[str, ...]
    #: For how many pods others were evicted.
    room: PreemptionCounts = PreemptionCounts()
    #: How many suggested changes were judged, and how many of them no longer helped, but had a short time before.
    suggested: tuple[int, int] = (0, 0)

    @property
    def broken(self) -> frozenset[str]:
        """Ids of what did not hold."""
        return frozenset(violation.invariant for violation in self.violations)


@dataclass(slots=True)
class _Run:
    """A run under way, and what is known of it should it break off."""

    scenario: Scenario
    parts: Parts
    #: Is shown the cluster when it is ready.
    show: Callable[[World], None]
    #: The run breaks off when this invariant is found broken. "": never.
    until: str = ""
    log: EventLog = field(default_factory=EventLog)
    oversight: Oversight = field(init=False)
    marks: Marks = field(default_factory=Marks)
    room: PreemptionCounter = field(default_factory=PreemptionCounter)
    suggested: Suggested = field(init=False)
    found: list[Violation] = field(default_factory=list)
    world: World | None = None
    pods: int = 0
    ended_at_s: float = 0.0

    def __post_init__(self) -> None:
        self.oversight = Oversight(self.scenario)
        self.suggested = Suggested(self.scenario)

    async def go(self) -> None:
        """The whole run, on the event loop."""
        with anyio.move_on_after(LIMIT_S) as limit, anyio.CancelScope() as whole:
            try:
                await self._live(whole)
            except Exception as error:  # noqa: BLE001 - a component that dies of anything is what we are looking for
                self._add(CRASH, told_error(error))
        if limit.cancelled_caught:
            self._add(HANG, f"given up after {LIMIT_S:.0f} virtual seconds")

    async def _live(self, whole: anyio.CancelScope) -> None:
        scenario = self.scenario
        clock = VirtualClock(asyncio.get_running_loop())
        versions = Versions()
        parts = versions.beside(self.parts)
        async with World(scenario.nodes, clock=clock, settings=scenario.world, parts=parts) as world:
            self.world = world
            self.show(world)
            self.oversight.live, self.oversight.ours = world.checker.live, world.components.keys()
            self.log.start_s = world.checker.findings.start_s
            world.server.faults.on_answer += [self.log.answered, self.oversight.answered]
            world.nodes.ground_truth.listeners += [self.log.recorded, self.oversight.recorded]
            if self.until:
                world.server.faults.on_answer.append(lambda *_: self._break_off(world, whole))
            self.marks.attend(world)
            self.room.attend(world)
            self.suggested.attend(world, clock)
            sliced = SlicedNodes(scenario.sliced, world, self.parts.partitioner or GpuPartitioner)
            sliced.begin()
            ground = Ground(world, versions, sliced.of)
            async with anyio.create_task_group() as group:
                for action in scenario.actions:
                    group.start_soon(self._perform, action, ground)
                for fault in scenario.faults:
                    group.start_soon(self._strike, fault, ground)
                await self.oversight.stand_by(world, "first")
                await ground.wait_until(scenario.calm_s / 2)
                await self.oversight.stand_by(world, "second")
            await ground.wait_until(scenario.calm_s)
            self.log.note("fault", "calm: every fault is over")
            if not await self._rest(world):
                self._add(HANG, f"not at rest {REST_S:.0f} s after the last fault: {self._restless(world)}")
            self.pods = len(world.pods)
            self.oversight.weigh_work(world)
            await run_checks.judge(world, sliced.of)
            await world.auditor.judge_rest()
            await world.clear()
            self.log.note("action", "everything was deleted")
            world.finish()
            self.oversight.weigh(world)
            self.ended_at_s = world.elapsed_s

    def _break_off(self, world: World, whole: anyio.CancelScope) -> None:
        """Looked at with each answer of the API server: a timer of its own would change the order of others."""
        if world.checker.findings.broken(self.until):
            whole.cancel()

    async def _rest(self, world: World) -> bool:
        """Wait until components of ours have written nothing for a while and every pod has settled.

        What kubelets write does not count: containers that end and are started again go on for ever. While pods wait
        the while is longer than the longest back-off of a pod. What the end of the last fault brings is waited for.
        """
        calm_s = anyio.current_time()
        limit_s = calm_s + REST_S
        restless_at_s = -math.inf
        while anyio.current_time() < limit_s:
            await anyio.sleep(_LOOK_S)
            now_s = anyio.current_time()
            if not world.is_settled:
                restless_at_s = now_s
            quiet_s = WAITING_QUIET_S if world.has_waiting_pods else QUIET_S
            is_quiet = now_s - self.log.ours_at_s >= quiet_s and now_s - calm_s >= QUIET_S
            if is_quiet and now_s - restless_at_s >= STEADY_S:
                return True
        return False

    def _restless(self, world: World) -> str:
        """What keeps it from resting."""
        if not world.is_settled:
            return "a pod neither runs nor says why it waits"
        return f"last {next((text for _, kind, text in reversed(self.log.lines) if kind == 'write'), 'nothing')}"

    async def _perform(self, action: Action, ground: Ground) -> None:
        await ground.wait_until(action.at_s)
        self.log.note("action", f"action {_compact(action)}")
        await action.perform(ground.world)

    async def _strike(self, fault: Fault, ground: Ground) -> None:
        await ground.wait_until(fault.at_s)
        self.log.note("fault", f"fault {_compact(fault)}")
        await fault.strike(ground)

    def _add(self, what: str, text: str) -> None:
        self.found.append(Violation(what, anyio.current_time(), text))

    def outcome(self) -> Outcome:
        """What came of it."""
        unpromised = self.scenario.unpromised
        judged = self.world.checker.findings.found.values() if self.world else ()
        found = [violation for violation in judged if violation.invariant not in unpromised]
        found += [*self.oversight.found, *self.found]
        found.sort(key=lambda violation: violation.at_s)
        start_s = self.log.start_s
        return Outcome(
            violations=tuple(Violation(v.invariant, v.at_s - start_s, v.text) for v in found),
            digest=self.log.digest,
            events=self.log.shortened(found[0]) if found else (),
            writes=self.log.writes,
            pods=self.pods,
            ended_at_s=self.ended_at_s,
            served={dialect: len(uids) for dialect, uids in sorted(self.oversight.served.items())},
            marks=tuple(sorted(self.marks.reached | self.room.made.marks)),
            room=self.room.made,
            suggested=(self.suggested.judged, self.suggested.past),
        )


def run(
    scenario: Scenario,
    *,
    parts: Parts = PRODUCT,
    limit_cpu_s: float = LIMIT_CPU_S,
    show: Callable[[World], None] = lambda _: None,
    until: str = "",
) -> Outcome:
    """Run a scenario, on an event loop of its own, with the components that ``parts`` names.

    ``show`` is called with the cluster when it is ready, for callers that listen to it. ``until``: an invariant; the
    run breaks off when the checker finds it broken, for callers that ask for nothing else.
    Raises simulator.nodes.shape.MalformedShape.
    """
    running = _Run(scenario, parts, show, until)
    taker = LogTaker(running.log)
    loop = VirtualTimeLoop()
    try:
        with _listening(taker), processor_time(limit_cpu_s, loop.time):
            anyio.run(running.go, backend_options={"loop_factory": lambda: loop})
    except* RanTooLong as stopped:  # in a group, where a component was stopped
        running.found.append(Violation(HANG, running.log.last_s, told_error(stopped)))
    except* Deadlock as deadlock:
        running.found.append(Violation(HANG, running.log.last_s, told_error(deadlock)))
    running.found += [Violation(EDGE, at_s, text) for at_s, text in taker.exceptions]
    return running.outcome()


@contextmanager
def _listening(taker: LogTaker) -> Iterator[None]:
    root = logging.getLogger()
    root.addHandler(taker)
    try:
        yield
    finally:
        root.removeHandler(taker)


def _compact(part: Action | Fault) -> str:
    return msgspec.json.encode(part).decode()
