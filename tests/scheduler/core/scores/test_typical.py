"""Which pods are usual."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.pod_kind import Kind
from scheduler.core.model.settings import Settings, Strategy
from scheduler.core.scores.prices import ARRIVAL, MOST_KINDS, Arrivals, moved_percent, typical_of
from tests.scheduler.core.objects import bound, feed, node, pod

_HALF = Kind(1, 500, 2_000, 4_096)
_WHOLE = Kind(2, 1_000, 16_000, 65_536)


def _counted(*kinds: Kind) -> Arrivals:
    made = Arrivals()
    for kind in kinds:
        made.add(kind)
    return made


def test_usual_pods_are_summed_and_shares_counted_by_size() -> None:
    found = typical_of(_counted(_HALF, _HALF, _WHOLE).counts())
    assert found.pods == 3
    assert found.shares == {500: 2 * ARRIVAL}
    assert found.gpu_milli == 3_000 * ARRIVAL
    assert found.cpu_milli == 20_000 * ARRIVAL
    assert found.mem_mib == (2 * 4_096 + 65_536) * ARRIVAL


def test_rare_pods_however_absurd_are_not_usual() -> None:
    absurd = Kind(1, 10, 1 << 50, 1 << 50)
    found = typical_of(_counted(*[_HALF] * 95, *[absurd] * 5).counts())
    assert found.cpu_milli == 95 * 2_000 * ARRIVAL
    assert list(found.shares) == [500]


def test_older_pods_count_half_after_each_period_and_nothing_in_the_end() -> None:
    made = _counted(_HALF)
    made.halve()
    made.add(_WHOLE)
    assert made.counts() == {_HALF: ARRIVAL // 2, _WHOLE: ARRIVAL}
    for _ in range(12):
        made.halve()
    assert made.counts() == {}


def test_pods_that_all_differ_do_not_fill_memory_and_usual_ones_stay() -> None:
    made = _counted(*[_HALF] * 10, *(Kind(1, 1, number, 0) for number in range(3 * MOST_KINDS)))
    assert len(made.counts()) <= MOST_KINDS
    assert made.counts()[_HALF] == 10 * ARRIVAL


@pytest.mark.parametrize(
    ("before", "now", "percent"),
    [
        ({}, {}, 0),
        ({}, {_HALF: 1}, 100),
        ({_HALF: 3}, {_HALF: 7}, 0),
        ({_HALF: 10}, {_HALF: 9, _WHOLE: 1}, 10),
        ({_HALF: 10}, {_WHOLE: 1}, 100),
        ({_HALF: 1, _WHOLE: 1}, {_HALF: 2, _WHOLE: 1}, 16),
    ],
)
def test_how_far_a_mix_has_moved(before: dict[Kind, int], now: dict[Kind, int], percent: int) -> None:
    assert moved_percent(before, now) == percent


def test_pods_count_once_when_they_come_to_a_node_by_what_they_ask() -> None:
    made = Cluster(Settings(gpu_strategy=Strategy.PRICED))
    asked: dict[str, Any] = {"cpu": "2", "memory": "4Gi"}
    waiting = pod("a", gpus=2, **asked)
    feed(made, node("n1"), waiting)
    assert made.arrivals.counts() == {}
    on_node = pod("a", gpus=2, bound_to="n1", **asked)
    feed(made, on_node, pod("a", gpus=2, bound_to="n1", labels={"seen": "again"}, **asked))
    feed(made, bound(pod("b", fraction="0.4"), "n1", ("g", 333_333_333)), pod("c", bound_to="n1", **asked))
    assert made.arrivals.counts() == {Kind(2, 1_000, 2_000, 4_096): ARRIVAL, Kind(1, 333, 0, 0): ARRIVAL}


def test_pods_count_under_every_strategy() -> None:
    made = Cluster(Settings(gpu_strategy=Strategy.BINPACK, cpu_strategy=Strategy.SPREAD))
    feed(made, node("n1"), pod("a", gpus=2, bound_to="n1"))
    assert made.arrivals.counts() == {Kind(2, 1_000, 0, 0): ARRIVAL}
