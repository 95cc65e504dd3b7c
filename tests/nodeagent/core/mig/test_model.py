"""Invariant S18: a slice is destroyed only while no pod has it, whatever kubelet, pods and crashes do in between.

All orders are walked through: kubelet hears the plug-in's list late, chooses a slice for a pod, calls Allocate and
shows the pod in its List later; it starts again and lists nobody for a while; the agent ends at any moment and forgets
everything. A second matter: kubelet chooses no slice that is destroyed, so no pod is refused for it. Each planted
mistake of an agent breaks one of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from nodeagent.core.mig_partitioning import (
    KUBELET_SETTLES_NS,
    Ask,
    Destroy,
    Make,
    Outcome,
    Partitioning,
    Seen,
    Spot,
    State,
    done,
    due,
    step,
)
from tests.nodeagent.core.mig.cards import PROFILES, SECOND_NS, present, spot

SLICES = (spot("1g@0"), spot("1g@1"))
WANTED = Ask("a", (spot("2g@0"),))
#: After its answer to Allocate it takes kubelet less than this, in seconds, to show the pod in List.
SHOWN_WITHIN_S = 2
SETTLES_S = KUBELET_SETTLES_NS // SECOND_NS


class Broken(Exception):
    """Raised where a promise does not hold."""


@dataclass(frozen=True, slots=True)
class Pod:
    """At most one: ``stage`` of "chosen", "given" (Allocate was answered) or "shown" (List has it)."""

    at: Spot
    stage: str
    given_s: int = 0


@dataclass(frozen=True, slots=True)
class World:
    """``hears``: slices that kubelet takes for healthy. ``blind_s``: since when its List is empty; None: it is not."""

    now_s: int
    there: frozenset[Spot]
    hears: frozenset[Spot]
    pod: Pod | None = None
    pods_left: int = 1
    crashes_left: int = 1
    starts_left: int = 1
    blind_s: int | None = None
    #: Of the agent.
    partitioning: Partitioning | None = None
    last: Outcome | None = None
    kubelet_s: int = -SETTLES_S


@dataclass(frozen=True, slots=True)
class Agent:
    """``look`` falsifies what the agent sees; ``refuses``: its Allocate refuses slices that are withdrawn."""

    look: Callable[[Seen, World], Seen] = lambda seen, _: seen
    refuses: bool = True
    keeps_last: bool = True


def uuid(at: Spot) -> str:
    return f"MIG-{at.profile}@{at.start}"


def withdrawn(world: World) -> frozenset[str]:
    return frozenset() if world.partitioning is None else world.partitioning.withdrawn


def listed(world: World) -> frozenset[Spot]:
    """What the plug-in lists as healthy."""
    return frozenset(at for at in world.there if uuid(at) not in withdrawn(world))


def given(world: World) -> frozenset[str]:
    is_shown = world.pod is not None and world.pod.stage == "shown" and world.blind_s is None
    return frozenset({uuid(world.pod.at)}) if is_shown and world.pod is not None else frozenset()


def looked(world: World, agent: Agent) -> World:
    """The agent looks, and does the step at once."""
    seen = Seen(
        at_ns=world.now_s * SECOND_NS,
        present=tuple(
            replace(present("1g@0"), spot=at, uuids=(uuid(at),), size=PROFILES[at.profile].places[0].size)
            for at in sorted(world.there)
        ),
        profiles=PROFILES,
        given=given(world),
        offered=frozenset(map(uuid, world.hears)),
        booked=frozenset(),
        kubelet_since_ns=world.kubelet_s * SECOND_NS,
    )
    found = step(world.partitioning, due(WANTED, world.last), agent.look(seen, world), world.now_s * SECOND_NS)
    after = replace(world, partitioning=found.partitioning, last=found.outcome or world.last)
    if isinstance(found.action, Destroy):
        gone = found.action.present.spot
        if world.pod is not None and world.pod.at == gone and world.pod.stage != "chosen":
            raise Broken(f"S18: {gone} is destroyed while a pod has it")
        after = replace(after, there=after.there - {gone})
    if isinstance(found.action, Make):
        after = replace(after, there=after.there | {found.action.spot})
    if found.action is not None:
        assert found.partitioning is not None
        after = replace(after, partitioning=done(found.partitioning))
    return after


def moves(world: World, agent: Agent) -> Iterator[World]:
    """What may happen next, without time going on."""
    if world.hears != listed(world):
        yield replace(world, hears=listed(world))
    pod = world.pod
    if pod is None and world.pods_left:
        for at in sorted(world.hears & frozenset(SLICES)):
            if at not in world.there:
                raise Broken(f"kubelet chooses {at}, which is destroyed")
            yield replace(world, pod=Pod(at, "chosen"), pods_left=world.pods_left - 1)
    if pod is not None and pod.stage == "chosen":
        is_refused = pod.at not in world.there or (agent.refuses and uuid(pod.at) in withdrawn(world))
        yield replace(world, pod=None if is_refused else replace(pod, stage="given", given_s=world.now_s))
    if pod is not None and pod.stage == "given":
        yield replace(world, pod=replace(pod, stage="shown"))
    if world.blind_s is not None:
        yield replace(world, blind_s=None)
    if world.crashes_left:
        last = world.last if agent.keeps_last else None
        yield replace(world, partitioning=None, last=last, crashes_left=world.crashes_left - 1, kubelet_s=world.now_s)
    if world.starts_left:
        # The checkpoint keeps what each pod has. A pod that was only chosen is admitted again, by the move above.
        yield replace(
            world, hears=frozenset(), blind_s=world.now_s, starts_left=world.starts_left - 1, kubelet_s=world.now_s
        )


def later(world: World, agent: Agent) -> World | None:
    """A second goes by, and the agent looks; None where kubelet has to move first."""
    now_s, pod = world.now_s + 1, world.pod
    if pod is not None and pod.stage == "given" and now_s - pod.given_s >= SHOWN_WITHIN_S:
        return None
    if world.blind_s is not None and now_s - world.blind_s >= SETTLES_S:
        return None
    return looked(replace(world, now_s=now_s), agent)


def walk(agent: Agent, *, until_s: int) -> tuple[int, frozenset[State]]:
    """Walk through all orders; return the number of states, and how attempts ended."""
    first = World(0, frozenset(SLICES), frozenset(SLICES))
    known, ways, ends = {first}, [first], set[State]()
    while ways:
        world = ways.pop()
        if world.last is not None:
            ends.add(world.last.state)
        after = list(moves(world, agent))
        if world.now_s < until_s and (next_one := later(world, agent)) is not None:
            after.append(next_one)
        for each in after:
            if each not in known:
                known.add(each)
                ways.append(each)
    return len(known), frozenset(ends)


@pytest.mark.thorough
def test_no_order_destroys_a_slice_that_a_pod_has() -> None:
    states, ends = walk(Agent(), until_s=16)
    assert states > 10_000
    assert ends == {State.UNDER_WAY, State.DONE, State.REFUSED}


def test_without_pods_and_crashes_the_layout_is_made() -> None:
    world = World(0, frozenset(SLICES), frozenset(SLICES), pods_left=0, crashes_left=0, starts_left=0)
    for _ in range(10):
        world = replace(world, hears=listed(world))
        world = later(world, Agent()) or world
    assert world.there == {spot("2g@0")}
    assert world.last == Outcome("a", State.DONE)
    assert world.hears == {spot("2g@0")}


def _unsure(seen: Seen, world: World) -> Seen:
    """Take two looks, one right after the other, for two seconds."""
    return replace(seen, at_ns=seen.at_ns + world.now_s * 2 * SECOND_NS)


def _blind(seen: Seen, _: World) -> Seen:
    return replace(seen, given=frozenset())


def _any_kubelet(seen: Seen, _: World) -> Seen:
    return replace(seen, kubelet_since_ns=-KUBELET_SETTLES_NS)


def _unread(seen: Seen, _: World) -> Seen:
    return replace(seen, offered=frozenset())


@pytest.mark.parametrize(
    ("agent", "what"),
    [
        pytest.param(Agent(refuses=False), "S18", id="Allocate gives what is withdrawn"),
        pytest.param(Agent(look=_blind), "S18", id="kubelet's List is not asked"),
        pytest.param(Agent(look=_unsure), "S18", id="the second look comes too soon"),
        pytest.param(Agent(look=_any_kubelet), "S18", id="a kubelet that starts is believed"),
        pytest.param(Agent(look=_unread), "kubelet chooses", id="kubelet has not read the list"),
    ],
)
def test_each_planted_mistake_is_found(agent: Agent, what: str) -> None:
    with pytest.raises(Broken, match=what):
        walk(agent, until_s=16)
