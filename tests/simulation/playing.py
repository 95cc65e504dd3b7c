"""Plays a scenario with one write struck, and judges what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final

import anyio
import msgspec

from simulator.checks import facts
from simulator.checks.checker import BIND_REQUESTS
from simulator.checks.facts import PodFacts
from simulator.checks.violations import SOUND
from simulator.clock import VirtualClock, VirtualTimeLoop
from simulator.nodes import shape
from simulator.world import World, WorldSettings
from tests.scheduler import stage
from tests.simulation.scenarios import RUNS, WAITS, Scenario
from tests.simulation.striking import Blow, Striker, Write, is_ours
from wire import names

#: With nothing to do nothing is written for so long; the binder looks everything over every 5 s.
_REST_S: Final = 60.0
_CONVERGED_S: Final = 300.0
#: An empty reservation is kept for a while: longer than that.
_IDLE_S: Final = 15.0
_LINES: Final = 30


@dataclass(slots=True)
class Played:
    """A run: its writes, what was wrong with it, and the last writes that the server carried out."""

    writes: list[Write]
    wrong: list[str]
    log: list[str]

    def told(self, title: str) -> str:
        """For people."""
        return "\n".join([title, *(f"  ! {line}" for line in self.wrong), *(f"    {line}" for line in self.log)])


def play(scenario: Scenario, blow: Blow | None = None, at: int | None = None, *, late_s: float = 0.0) -> Played:
    """Run a scenario in virtual time; ``at`` is the number of the write that is struck.

    ``late_s``: watch events are late by up to so much, each by its own time.
    """
    settings = msgspec.structs.replace(
        scenario.settings,
        event_delay_s=late_s,
        # While nobody is there to go on with a gang, its grace time does not count.
        gang_grace_s=scenario.settings.gang_grace_s + (blow.away_s if blow is not None and blow.killed else 0.0),
    )
    loop = {"loop_factory": VirtualTimeLoop}
    return anyio.run(_play, scenario, settings, blow, at, backend_options=loop)


def record(scenario: Scenario, *, late_s: float = 0.0) -> list[Write]:
    """Run a scenario undisturbed; return its writes. Raises AssertionError when it does not even work so."""
    played = play(scenario, late_s=late_s)
    assert played.wrong == [], played.told(f"{scenario.name}, undisturbed")
    return played.writes


async def _play(scenario: Scenario, settings: WorldSettings, blow: Blow | None, at: int | None) -> Played:
    clock = VirtualClock(asyncio.get_running_loop())
    async with World(shape.parse(scenario.shapes), clock=clock, settings=settings) as world:
        await scenario.before(world)
        assert await world.until_idle(quiet_s=3.0)
        striker = Striker(world, blow, at)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(striker.run)
            await scenario.act(world)
            wrong = [] if await striker.until_idle() else ["it does not come to rest"]
            wrong += await _converge(scenario, world)
            await world.until_idle(quiet_s=_IDLE_S)
            writes = list(striker.writes)
            wrong += [line async for line in _judge(scenario, world)]
            tasks.cancel_scope.cancel()
        if blow is not None and not striker.has_struck:
            wrong.insert(0, "the write was not struck: the run was not the one that was recorded")
        return Played(writes, wrong, striker.log[-_LINES:])
    raise AssertionError("a world swallows no exception")


async def _converge(scenario: Scenario, world: World) -> list[str]:
    """Wait for the end that was told; return what is still missing when the time is over.

    What vanished unseen is waited for in the books, and a refused eviction is asked for again minutes later.
    """
    with anyio.move_on_after(_CONVERGED_S):
        while _missing(scenario, world):  # noqa: ASYNC110 - what it waits for is on the server
            await anyio.sleep(5)
    return _missing(scenario, world)


def _missing(scenario: Scenario, world: World) -> list[str]:
    missing = [*_wrong_books(world), *_left_requests(world)]
    phases, bound = stage.phases(world), stage.bound(world)
    rivals = {name for rival in scenario.rivals for name in rival.split()}
    there = {
        name: phase
        for name, phase in phases.items()
        if name not in rivals and (name not in scenario.may_wait or name in bound)
    }
    if there != dict(scenario.ends):
        missing.append(f"in the end there is {phases}, expected {dict(scenario.ends)}")
    states = sorted(sorted({phases.get(name, "gone") for name in rival.split()}) for rival in scenario.rivals)
    if states and states != [[WAITS]] * (len(states) - 1) + [[RUNS]]:
        missing.append(f"in the end there is {phases}, and one of {sorted(scenario.rivals)} should run")
    return missing


async def _judge(scenario: Scenario, world: World) -> AsyncIterator[str]:
    """Yield what is wrong with a world that should be at rest, and with what is left when all work is gone."""
    before = _writes(world)
    await anyio.sleep(_REST_S)
    for line in _writes(world)[len(before) :]:
        yield f"written though there was nothing to do: {line}"
    if scenario.probe:
        await stage.create(world, *scenario.probe)
        await world.until_idle(quiet_s=5.0)
        found = stage.phases(world)
        for wanted in scenario.probe:
            if (phase := found.get(wanted["metadata"]["name"])) != RUNS:
                yield f"there is room for pod {wanted['metadata']['name']}, and it is {phase}"
    await world.clear(quiet_s=5.0)
    for invariant, told in world.finish().items():
        if told not in SOUND:
            yield f"{invariant} {told}"


def _wrong_books(world: World) -> Iterator[str]:
    """At rest the books hold exactly the live pods that are bound through them, with the fractions that they ask."""
    pods = [facts.pod(raw) for raw in world.pods]
    for held in (pod for pod in pods if pod.is_reservation):
        group = held.labels[names.GPU_GROUP_LABEL]
        live = {pod.uid: pod for pod in pods if _is_tenant(pod, group)}
        for uid in held.book.keys() - live.keys():
            yield f"the book of {held.name} holds an entry of pod {uid}, which has nothing there"
        for uid, pod in live.items():
            asked = {ask.fraction for ask in pod.asks.values() if ask.fraction is not None}
            if uid not in held.book:
                yield f"the book of {held.name} has no entry of {pod.key}, which is bound there"
            elif asked and asked != {held.book[uid]}:
                yield f"the book of {held.name} holds {held.book[uid]} for {pod.key}, which asks {asked}"


def _is_tenant(pod: PodFacts, group: str) -> bool:
    return bool(pod.node) and not pod.has_ended and not pod.is_reservation and group in pod.groups


def _left_requests(world: World) -> Iterator[str]:
    for raw in world.observers[BIND_REQUESTS].latest.values():
        yield f"BindRequest {raw['metadata']['name']} is left"


def _writes(world: World) -> list[str]:
    wrote = (entry for entry in world.server.audit if is_ours(entry.user, entry.verb))
    return [f"{entry.user} {entry.verb} {entry.resource}/{entry.subresource} {entry.name}" for entry in wrote]
