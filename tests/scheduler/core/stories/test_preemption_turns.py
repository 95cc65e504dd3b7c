"""A need that may take room is searched for soon, whatever waits beside it: hopeless, too large, blocked, or many."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import Limits
from scheduler.core.decide.preemption_needs import gang_need
from scheduler.core.model.plan import placements
from scheduler.core.model.preemption import Action, Found, NoVictims
from scheduler.core.model.settings import Settings
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.trial import Trial
from tests.scheduler.core.objects import Fed, bound, claim, feed, node, pod, pod_group, queue, volume
from tests.scheduler.core.stepping import at_once
from tests.whole import examples
from wire import names

S = 1_000_000_000
MS = 1_000_000
_QUEUES = ("a", "b", "c")
#: The work of three searches.
_LITTLE = Limits(searching=3 * 2_000)


@dataclass
class Refuses:
    """A search that finds nobody. ``asked``: units that it was made for, by kind and number, in order."""

    until_s: int = 0
    asked: list[str] = field(default_factory=list)

    def __call__(self, need: Need, _trial: Trial, actions: Sequence[Action]) -> Found | NoVictims:
        if actions[0] is Action.RECLAIM:
            self.asked.append(need.pods[0].name.partition("-")[0])
        return NoVictims(until_s=self.until_s)


def _alone(name: str, team: str, **asked: Any) -> list[Fed]:
    return [pod(f"{name}-0", labels={names.QUEUE_LABEL: team}, priority=20, **asked)]


def _gang(name: str, team: str, **asked: Any) -> list[Fed]:
    members = [pod(f"{name}-{at}", group=name, gpus=1, priority=20) for at in range(2)]
    return [pod_group(name, 2, queue=team, **asked), *members]


def _running_gang(name: str, team: str) -> list[Fed]:
    """A gang that has its minimum, and waits for one more."""
    first = bound(pod(f"{name}-0", group=name, cpu="1", priority=20), "n1")
    return [pod_group(name, 1, queue=team), first, pod(f"{name}-1", group=name, gpus=1, priority=20)]


def _with_claim(name: str, team: str) -> list[Fed]:
    """A pod whose claim another one has."""
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "mine"}}]
    return _alone(name, team, gpus=2, spec={"volumes": volumes})


#: Units of two GPUs, or none that may ever run: all that ask the same of a queue are in one line.
_UNITS: dict[str, Callable[[str, str], list[Fed]]] = {
    "plain": lambda name, team: _alone(name, team, gpus=2),
    "nowhere": lambda name, team: _alone(name, team, gpus=2, spec={"nodeSelector": {"zone": "none"}}),
    "too large": lambda name, team: _alone(name, team, gpus=2, extended={"example.com/none": "1"}),
    "claim in use": _with_claim,
    "fixed": lambda name, team: _alone(name, team, gpus=2, spec={"priority": 200}),
    "gang": _gang,
    "gang without its topology": lambda name, team: _gang(
        name, team, topologyConstraint={"topology": "none", "requiredTopologyLevel": "rack"}
    ),
}


def _world(search: Refuses, units: Sequence[Fed]) -> Cluster:
    """Two full nodes; ``a`` is at its limit, ``b`` takes no more of what can't be preempted, ``c`` nothing at all."""
    made = Cluster(Settings(), find_victims=at_once(search))
    teams = [queue("a", gpu=(0, 1, 4)), queue("b", gpu=(0, 1, -1)), queue("c", gpu=(0, 1, 1))]
    uses = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "mine"}}]}
    feed(made, *(node(name, 4) for name in ("n1", "n2")), *teams)
    feed(made, claim("mine", "pv", modes=["ReadWriteOncePod"]), volume("pv"))
    feed(made, bound(pod("user", gpus=0, cpu="1", spec=uses), "n1"))
    for name, team, at in (("x", "a", "n1"), ("y", "b", "n2")):
        labels = {names.QUEUE_LABEL: team}
        feed(made, *(bound(pod(f"{name}{one}", gpus=1, labels=labels), at) for one in range(4)))
    feed(made, *units)
    return made


@cache
def _asked_alone(kind: str, team: str) -> bool:
    """Whether a unit is searched for where nobody else waits."""
    search = Refuses()
    _world(search, _UNITS[kind]("u", team)).decide(S)
    return bool(search.asked)


def _told_apart(chosen: Sequence[tuple[str, str]], names_of: Iterable[str]) -> set[tuple[str, str]]:
    """Kinds and queues of units: what one is answered holds for others of the same."""
    return {chosen[int(name.removeprefix("u"))] for name in names_of}


def _may_take(chosen: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    return {unit for unit in set(chosen) if _asked_alone(*unit)}


def _units(chosen: Sequence[tuple[str, str]]) -> list[Fed]:
    return [obj for at, (kind, team) in enumerate(chosen) for obj in _UNITS[kind](f"u{at}", team)]


_CHOSEN = st.lists(st.tuples(st.sampled_from([*_UNITS]), st.sampled_from(_QUEUES)), min_size=1, max_size=12)


@settings(max_examples=examples(8), deadline=None)
@given(_CHOSEN)
def test_while_nothing_changes_each_that_may_take_room_is_searched_for_and_then_all_is_quiet(
    chosen: list[tuple[str, str]],
) -> None:
    search = Refuses()
    made, at_ns, looks = _world(search, _units(chosen)), S, 0
    while True:
        looks += 1
        plan = made.decide(at_ns, _LITTLE)
        assert list(placements(plan.entries)) == []
        if plan.wake_at_ns is None:
            break
        at_ns = max(plan.wake_at_ns, at_ns + 1)
        assert looks <= 2 * len(chosen) + 2
    assert _told_apart(chosen, search.asked) == _may_take(chosen)


@settings(max_examples=examples(8), deadline=None)
@given(_CHOSEN)
def test_while_all_changes_each_that_may_take_room_is_searched_for_again_and_again(
    chosen: list[tuple[str, str]],
) -> None:
    search = Refuses()
    made = _world(search, _units(chosen))
    for look in range(3 * (len(chosen) + 1)):
        feed(made, bound(pod(f"other{look}", cpu="1m"), "n1"))
        made.decide((look + 1) * 2 * S, _LITTLE)
        if look % (len(chosen) + 1) == len(chosen):
            asked = _told_apart(chosen, search.asked)
            assert {unit for unit in _may_take(chosen) if unit[0] != "too large"} <= asked  # that is asked once
            search.asked.clear()


def _asked_of(*units: Sequence[Fed], looks: int = 6) -> list[str]:
    """Which units are searched for while other pods come, one before each look."""
    search = Refuses()
    made = _world(search, [obj for unit in units for obj in unit])
    for look in range(looks):
        feed(made, bound(pod(f"other{look}", cpu="1m"), "n1"))
        made.decide((look + 1) * 2 * S)
    return search.asked


@pytest.mark.parametrize("kind", ["too large", "claim in use", "gang without its topology", "nowhere"])
def test_one_that_no_search_can_help_keeps_nobody_who_would_use_the_same_from_its_own(kind: str) -> None:
    asked = _asked_of(_UNITS[kind]("u0", "a"), _UNITS["plain"]("u1", "a"))
    assert asked.count("u1") >= 3


def test_one_whose_time_has_come_is_searched_for_beside_one_that_was_refused_before() -> None:
    search = Refuses()
    made = _world(search, [*_UNITS["plain"]("u0", "a"), *_UNITS["nowhere"]("u1", "a")])
    made.decide(S, wall_s=1_000)
    search.until_s = 1_010
    made.decide(S + 200 * MS, wall_s=1_000)
    search.until_s = 0
    wake_at_ns = made.decide(12 * S, wall_s=1_011).wake_at_ns
    assert wake_at_ns is None or wake_at_ns > 100 * S
    assert search.asked == ["u0", "u1", "u1"]


def _looks_at_gangs(count: int) -> int:
    """How many gangs one look asks, of so many equal ones that sleep for a node while their queue takes none more."""
    made, looks = _world(Refuses(), [obj for at in range(count) for obj in _gang(f"u{at}", "b")]), 0
    made.decide(S)
    feed(made, queue("b", gpu=(0, 1, 1)))

    def counted(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal looks
        looks += event == "call" and frame.f_code is gang_need.__code__

    sys.setprofile(counted)
    try:
        made.decide(3 * S)
    finally:
        sys.setprofile(None)
    return looks


def test_of_gangs_of_a_line_that_their_queue_takes_no_more_one_is_looked_at() -> None:
    assert _looks_at_gangs(2) == _looks_at_gangs(40) > 0


def test_gangs_that_need_no_room_keep_nobody_of_their_namespace_from_a_search() -> None:
    """Each runs, and is in no line; its queue may have no next member. They use up what a look may cost."""
    search = Refuses()
    made = _world(search, [obj for at in range(9) for obj in _running_gang(f"u{at}", "b")])
    made.decide(S)
    feed(made, queue("b", gpu=(0, 1, 0)), queue("d"), *_UNITS["plain"]("u99", "d"))
    for look in range(12):
        feed(made, bound(pod(f"other{look}", cpu="1m"), "n1"))
        made.decide((2 * look + 3) * S, Limits(searching=200))
    assert "u99" in search.asked


@pytest.mark.parametrize("kind", ["plain", "gang"])
def test_a_more_urgent_one_is_searched_for_at_once_though_one_that_asks_the_same_was_refused(kind: str) -> None:
    search = Refuses()
    made = _world(search, _UNITS[kind]("u0", "b"))
    made.decide(S)
    feed(made, *_UNITS[kind]("u1", "b"))
    made.decide(S + 300 * MS)
    feed(made, *_urgent(kind))
    made.decide(S + 600 * MS)
    assert search.asked == ["u0", "u2"]


def _urgent(kind: str) -> list[Fed]:
    if kind == "plain":
        return [pod("u2-0", gpus=2, labels={names.QUEUE_LABEL: "b"}, priority=30)]
    members = [pod(f"u2-{at}", group="u2", gpus=1, priority=30) for at in range(2)]
    return [pod_group("u2", 2, queue="b"), *members]
