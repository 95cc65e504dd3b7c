"""Binder and scheduler are struck at each single write of each kind of commit, in every way a write can go wrong.

Whatever was struck: the cluster comes to the end that was wanted, what is free can be used, nothing is written while
there is nothing to do, and when all work is gone nothing is left over; every invariant holds on the way.

``make test`` strikes each write with one of the three deadliest blows, and some writes with each other blow; ``make
enumerate`` strikes each write with each blow, with watches that are in time and with late ones.
"""

from __future__ import annotations

import functools
import os

import pytest

from tests.simulation.playing import play, record
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.striking import BLOWS, Blow, Write

pytestmark = pytest.mark.thorough

IS_FULL = bool(os.environ.get("MOORAGE_ENUMERATE"))
#: By how much watch events are late at most.
LATE_S = (0.0, 0.5) if IS_FULL else (0.0,)
DEADLIEST = frozenset({"killed before", "killed after", "killed, lands late"})
#: One write of this many is struck with one of these, each time others, so that together they strike all.
STRIDE_OF_DEADLIEST = 1 if IS_FULL else len(DEADLIEST)
#: The same for the other blows, which together strike every ninth write.
STRIDE = 1 if IS_FULL else 108


@functools.cache
def recorded(scenario: int, late_s: float) -> tuple[Write, ...]:
    return tuple(record(SCENARIOS[scenario], late_s=late_s))


def struck(scenario: int, blow: Blow, writes: tuple[Write, ...]) -> list[int]:
    """Numbers of the writes to strike. Events are news for people: only their sender's death is of interest."""
    worthy = [at for at, write in enumerate(writes) if blow.killed or write.what != "events"]
    stride = STRIDE_OF_DEADLIEST if blow.name in DEADLIEST else STRIDE
    first = (scenario + BLOWS.index(blow)) % min(stride, len(worthy))
    return worthy[first::stride]


@pytest.mark.parametrize("late_s", LATE_S, ids=lambda late_s: f"late {late_s}")
@pytest.mark.parametrize("blow", BLOWS, ids=lambda blow: blow.name)
@pytest.mark.parametrize("scenario", range(len(SCENARIOS)), ids=lambda number: SCENARIOS[number].name)
def test_a_struck_write_makes_no_difference_in_the_end(scenario: int, blow: Blow, late_s: float) -> None:
    writes = recorded(scenario, late_s)
    told = []
    for at in struck(scenario, blow, writes):
        played = play(SCENARIOS[scenario], blow, at, late_s=late_s)
        assert played.writes[at] == writes[at]
        if played.wrong:
            told.append(played.told(f"{SCENARIOS[scenario].name}: write {at}, {writes[at]}, {blow.name}"))
    assert not told, "\n".join(told)
