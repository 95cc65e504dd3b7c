"""Prices made from usual pods."""

from __future__ import annotations

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.pod_kind import LEAST_PODS
from scheduler.core.model.settings import Settings
from scheduler.core.scores.prices import MOST_SIZES, PROPORTIONAL, Prices, Typical, prices_of
from tests.scheduler.core.objects import NANO, feed, node

_USUAL = Typical(pods=100, gpu_milli=100_000, cpu_milli=400_000, mem_mib=100 * 8_192)


def _prices(typical: Typical) -> Prices:
    found = prices_of(typical)
    assert found
    return found


def _milli(prices: Prices, milli: int) -> int:
    """The value of a piece in milli-GPU, without the tie-break."""
    return prices.pieces_nano[milli] // (NANO // 1_000)


@pytest.mark.parametrize("pods", [0, LEAST_PODS - 1])
def test_a_young_cluster_has_no_prices(pods: int) -> None:
    assert prices_of(Typical(pods=pods, shares={500: 9}, gpu_milli=1, cpu_milli=1, mem_mib=1)) is None


def test_usual_pods_say_how_much_cpu_and_memory_go_with_a_gpu() -> None:
    found = _prices(_USUAL)
    assert found == Prices(pieces_nano=PROPORTIONAL, core_nano=NANO // 4, gib_nano=NANO // 8)


def test_pieces_are_worth_what_usual_shares_they_hold() -> None:
    found = _prices(Typical(pods=100, shares={300: 5, 333: 2}))
    assert [_milli(found, milli) for milli in (0, 299, 300, 332, 333)] == [0, 0, 333, 333, 333]
    assert [_milli(found, milli) for milli in (599, 600, 998, 999, 1_000)] == [333, 667, 1_000, 1_000, 1_001]


def test_of_many_sizes_the_most_usual_are_taken() -> None:
    shares = {10 * size: 1 for size in range(1, 80)} | {990: 1_000}
    found = _prices(Typical(pods=100, shares=shares))
    assert len(shares) > MOST_SIZES
    # 10 to 230 milli and 990: what is usual and smaller than 240 is among them, what is between is not
    assert _milli(found, 230) < _milli(found, 990)


def test_nothing_known_about_a_resource_is_no_price() -> None:
    assert _prices(Typical(pods=100, gpu_milli=1_000)).core_nano == 0


def test_prices_are_an_input_of_decisions_and_only_new_ones_are_news() -> None:
    made = Cluster(Settings())
    feed(made, node("n1"), node("n2", 0))
    before = made.generation
    made.note_prices(None)
    assert made.generation == before
    made.note_prices(_prices(_USUAL))
    assert made.generation == before + 1
