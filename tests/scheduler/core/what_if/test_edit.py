"""Amounts are found by halving, the extreme first."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from scheduler.core.what_if.edits import largest, smallest, some


def ended(search: Generator[int, bool, int | None], helps: Callable[[int], bool]) -> int | None:
    try:
        number = next(search)
        while True:
            number = search.send(helps(number))
    except StopIteration as done:
        found: int | None = done.value
        return found


@pytest.mark.parametrize(
    ("low", "high", "most", "found"), [(1, 9, 6, 6), (1, 9, 9, 9), (1, 9, 0, None), (5, 4, 9, None)]
)
def test_the_largest_number_that_helps_is_found(low: int, high: int, most: int, found: int | None) -> None:
    assert ended(largest(low, high, int), lambda number: number <= most) == found


@pytest.mark.parametrize(("low", "high", "least", "found"), [(1, 64, 3, 3), (1, 64, 1, 1), (1, 64, 65, None)])
def test_the_smallest_number_that_helps_is_found(low: int, high: int, least: int, found: int | None) -> None:
    assert ended(smallest(low, high, int), lambda number: number >= least) == found


def test_a_search_can_be_asked_one_question_at_a_time() -> None:
    search = largest(1, 9, str)
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

    assert ended(largest(1, 1_000, int), helps) is None
    assert tried == [1]


def test_a_message_names_eight_and_counts_the_others() -> None:
    assert some([str(number) for number in range(10)]) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"
    assert some(["a", "b"]) == "a, b"
