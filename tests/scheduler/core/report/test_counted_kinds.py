"""Which kinds of pods say whether free GPUs are of use."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.pod_kind import LEAST_PODS, Kind
from scheduler.core.report.fragmentation import MOST_KEPT, MOST_LOOKED_AT, counted_kinds, unusable_nano
from tests.scheduler.core.report.fragmented import SETTINGS, Machine, alone, kinds, left_of, machines

_HALF, _WHOLE, _SMALL = Kind(1, 500, 1_000, 0), Kind(1, 1_000, 1_000, 0), Kind(1, 300, 500, 0)


def test_of_few_pods_nothing_is_usual_so_those_that_wait_count_alone() -> None:
    assert counted_kinds({_HALF: LEAST_PODS - 1}, {_WHOLE: 1}) == (_WHOLE,)
    assert counted_kinds({_HALF: LEAST_PODS}, {_WHOLE: 1}) == (_HALF, _WHOLE)
    assert counted_kinds({_HALF: 4 * LEAST_PODS}, {_WHOLE: 1}, arrival=5) == (_WHOLE,)


def test_rare_kinds_do_not_count_unless_they_wait() -> None:
    assert counted_kinds({_HALF: 99, _SMALL: 1}, {}) == (_HALF,)
    assert counted_kinds({_HALF: 99, _SMALL: 1}, {_SMALL: 1}) == (_SMALL,)


def test_of_a_kind_that_asks_for_more_in_everything_nothing_depends() -> None:
    larger = [Kind(2, 500, 1_000, 0), Kind(1, 501, 1_000, 0), Kind(1, 500, 1_001, 0), Kind(1, 500, 1_000, 1)]
    assert counted_kinds({}, dict.fromkeys([*larger, _HALF], 1)) == (_HALF,)
    memory, more = Kind(1, 0, 0, 0, 4_000), Kind(1, 0, 0, 0, 8_000)
    assert set(counted_kinds({}, {more: 1, memory: 1, _HALF: 1, _WHOLE: 1})) == {memory, _HALF, _WHOLE}


@given(machine=machines(3, 3), known=st.lists(kinds(), min_size=1, max_size=12))
def test_what_is_left_out_changes_nothing(machine: Machine, known: list[Kind]) -> None:
    left = left_of(alone(machine), "n1")
    kept = counted_kinds({}, dict.fromkeys(known, 1))
    assert unusable_nano(left, kept, SETTINGS) == unusable_nano(left, known, SETTINGS)


def test_however_many_kinds_there_are_few_are_kept_and_usual_ones_first() -> None:
    usual = {Kind(1, 400 + number, 4_000 - number, 0): LEAST_PODS for number in range(4)}
    odd = {Kind(1, 1 + number, 5_000_000 - number, 0): 2 for number in range(2 * MOST_LOOKED_AT)}
    found = counted_kinds(usual, odd)
    assert len(found) == MOST_KEPT
    assert found[:4] == tuple(usual)
