"""Pods of one decision, alone and in gangs, each held against kube-scheduler's plug-ins beside those before it."""

from __future__ import annotations

import pytest

from scheduler.core.snapshot.pod_counts import PodCounts
from tests.oracle.sequences import run_sequence
from tests.whole import IS_WHOLE
from tools.kubeoracle.program import Oracle

pytestmark = pytest.mark.oracle
_SLICES, _DECISIONS = (2, 400) if IS_WHOLE else (1, 150)
#: A mistake in counting is found within this number of decisions.
_FOUND_WITHIN = 400


@pytest.mark.parametrize(("is_gang", "count"), [(False, 6), (True, 3)])
@pytest.mark.parametrize("number", range(_SLICES))
def test_each_pod_fits_beside_those_that_the_decision_placed_before(
    oracle: Oracle, number: int, count: int, is_gang: bool
) -> None:
    first = number * _DECISIONS
    found = [run_sequence(oracle, seed, count=count, is_gang=is_gang) for seed in range(first, first + _DECISIONS)]
    assert [words for each in found for words in each.differences] == []
    assert sum(each.placed for each in found) > _DECISIONS // 2
    assert sum(not each.placed for each in found) > _DECISIONS // 20


def test_counts_that_miss_what_a_decision_placed_are_found(oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PodCounts, "move", lambda *_: None)
    found = (run_sequence(oracle, seed, count=6, is_gang=False) for seed in range(_FOUND_WITHIN))
    assert any(each.differences for each in found)
