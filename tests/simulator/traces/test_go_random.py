"""Go's generator, by draws that are known."""

from __future__ import annotations

import pytest

from simulator.traces.arrivals import GoRandom

pytestmark = pytest.mark.thorough


def test_the_first_draws_of_seed_one_are_those_that_every_gopher_knows() -> None:
    rng = GoRandom(1)
    assert [rng.below(100) for _ in range(10)] == [81, 87, 47, 59, 81, 18, 25, 40, 56, 0]


def test_the_first_numbers_of_seed_one() -> None:
    rng = GoRandom(1)
    assert [rng.int63() for _ in range(2)] == [5577006791947779410, 8674665223082153551]


def test_a_seed_of_nothing_is_another_one() -> None:
    assert GoRandom(0).int63() == GoRandom(2**31 - 1).int63() != GoRandom(1).int63()


@pytest.mark.parametrize("count", [1, 2, 7, 1_024])
def test_an_order_has_each_once_and_differs_by_seed(count: int) -> None:
    drawn = GoRandom(5).permutation(count)
    assert sorted(drawn) == list(range(count))
    shuffled = list(range(count))
    GoRandom(5).shuffle(shuffled)
    assert sorted(shuffled) == list(range(count))
    assert count < 7 or (drawn != shuffled and drawn != GoRandom(6).permutation(count))


def test_numbers_below_any_bound_are_even() -> None:
    rng = GoRandom(9)
    drawn = [rng.below(3) for _ in range(3_000)]
    assert all(900 < drawn.count(each) < 1_100 for each in range(3))
    assert {rng.below(8) for _ in range(200)} == set(range(8))
