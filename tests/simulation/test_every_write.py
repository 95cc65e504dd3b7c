"""Binder and scheduler are struck at each single write of each kind of commit, in every way a write can go wrong.

Whatever was struck: the cluster comes to the end that was wanted, what is free can be used, nothing is written while
there is nothing to do, and when all work is gone nothing is left over; every invariant holds on the way.

``make test-all`` strikes one write of every other kind in each scenario with one of the three deadliest blows, and one
write in every eighth scenario with each other blow; ``make enumerate`` strikes each write with each blow, with watches
that are in time and with late ones.
"""

from __future__ import annotations

import functools
import os

import pytest

from tests.simulation.playing import play, record
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.striking import BLOWS, Blow, Write
from tests.whole import IS_WHOLE

pytestmark = pytest.mark.thorough

IS_FULL = bool(os.environ.get("MOORAGE_ENUMERATE"))
#: By how much watch events are late at most.
LATE_S = (0.0, 0.5) if IS_FULL else (0.0,)
DEADLIEST = frozenset({"killed before", "killed after", "killed, lands late"})
#: The deadliest strike writes of one in two kinds in a scenario, and in the next scenario those of the others.
KINDS = 2
#: Kinds that one scenario alone writes (user, verb, object), so they are always among them.
RARE = {
    ("binder", "create", "configmaps"),
    ("scheduler", "create", "pods/eviction"),
    ("scheduler", "delete", "bindrequests"),
    ("scheduler", "delete", "pods"),
    ("scheduler", "patch", "configmaps"),
}
#: One scenario of this many meets each of the other blows, each time another blow.
ONE_IN = 1 if IS_FULL else 8
CASES = [
    pytest.param(scenario, blow, late_s, id=f"{SCENARIOS[scenario].name}-{blow.name}-late {late_s}")
    for scenario in range(len(SCENARIOS))
    for number, blow in enumerate(BLOWS)
    for late_s in LATE_S
    if blow.name in DEADLIEST or (scenario + number) % ONE_IN == 0
]


@functools.cache
def recorded(scenario: int, late_s: float) -> tuple[Write, ...]:
    return tuple(record(SCENARIOS[scenario], late_s=late_s))


def struck(scenario: int, blow: Blow, writes: tuple[Write, ...]) -> list[int]:
    """Numbers of the writes to strike. Events are news for people: only their sender's death is of interest."""
    worthy = [at for at, write in enumerate(writes) if blow.killed or write.what != "events"]
    if IS_FULL:
        return worthy
    turn = scenario + BLOWS.index(blow)
    if blow.name not in DEADLIEST:
        return [worthy[turn % len(worthy)]]
    kinds: dict[tuple[str, str, str], list[int]] = {}
    for at in worthy:
        kinds.setdefault((writes[at].user, writes[at].verb, writes[at].what), []).append(at)
    some = [kind for at, kind in enumerate(kinds) if kind in RARE or (scenario + at) % KINDS == 0] or [*kinds]
    one_of_each = [kinds[kind][scenario % len(kinds[kind])] for kind in some]
    return one_of_each[turn % min(len(DEADLIEST), len(one_of_each)) :: len(DEADLIEST)]


@pytest.mark.parametrize(("scenario", "blow", "late_s"), CASES)
def test_a_struck_write_makes_no_difference_in_the_end(scenario: int, blow: Blow, late_s: float) -> None:
    writes = recorded(scenario, late_s)
    told = []
    for at in struck(scenario, blow, writes):
        played = play(SCENARIOS[scenario], blow, at, late_s=late_s)
        assert played.writes[at] == writes[at]
        if played.wrong:
            told.append(played.told(f"{SCENARIOS[scenario].name}: write {at}, {writes[at]}, {blow.name}"))
    assert not told, "\n".join(told)


@pytest.mark.skipif(not IS_WHOLE, reason="it plays all scenarios")
def test_without_make_enumerate_each_kind_of_write_is_struck_by_one_of_the_deadliest_blows() -> None:
    written, met = set[tuple[str, str, str]](), set[tuple[str, str, str]]()
    for scenario in range(len(SCENARIOS)):
        writes = recorded(scenario, 0.0)
        written |= {(each.user, each.verb, each.what) for each in writes if each.what != "events"}
        for blow in BLOWS:
            if blow.name in DEADLIEST:
                struck_now = (writes[at] for at in struck(scenario, blow, writes))
                met |= {(each.user, each.verb, each.what) for each in struck_now}
    assert met >= written
