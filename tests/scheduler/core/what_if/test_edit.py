"""Amounts are found by halving, the extreme first."""

from __future__ import annotations

import pytest

from scheduler.core.what_if.edit import bisecting, largest, smallest, some


@pytest.mark.parametrize(
    ("low", "high", "most", "found"), [(1, 9, 6, 6), (1, 9, 9, 9), (1, 9, 0, None), (5, 4, 9, None)]
)
def test_the_largest_number_that_helps_is_found(low: int, high: int, most: int, found: int | None) -> None:
    assert largest(low, high, lambda number: number <= most) == found


@pytest.mark.parametrize(("low", "high", "least", "found"), [(1, 64, 3, 3), (1, 64, 1, 1), (1, 64, 65, None)])
def test_the_smallest_number_that_helps_is_found(low: int, high: int, least: int, found: int | None) -> None:
    assert smallest(low, high, lambda number: number >= least) == found


def test_a_search_can_be_asked_one_question_at_a_time() -> None:
    search = bisecting(1, 9, str)
    assert next(search) == "1"
    assert [search.send(True), search.send(True), search.send(False)] == ["5", "7", "6"]
    with pytest.raises(StopIteration) as done:
        search.send(True)
    assert done.value.value == 6


def test_where_not_even_the_extreme_helps_nothing_else_is_tried() -> None:
    tried: list[int] = []

    def helps(number: int) -> bool:
        tried.append(number)
        return False

    assert largest(1, 1_000, helps) is None
    assert tried == [1]


def test_a_message_names_eight_and_counts_the_others() -> None:
    assert some([str(number) for number in range(10)]) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"
    assert some(["a", "b"]) == "a, b"
