"""The value of pieces of a device, against all patterns and against known cases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.scores.prices import piece_values


@pytest.mark.parametrize(
    ("sizes", "demand", "capacity", "worth"),
    [
        # halves: a piece below one is worth nothing
        ([5], [1], 10, {4: 0.0, 5: 0.5, 9: 0.5, 10: 1.0}),
        # thirds that leave one unit
        ([3], [7], 10, {2: 0.0, 3: 1 / 3, 6: 2 / 3, 9: 1.0, 10: 1.0}),
        # large shares take a device each, so small ones come for nothing: what is left beside a large one holds them
        ([8, 2], [20, 10], 10, {2: 0.0, 8: 1.0, 10: 1.0}),
        # ... until there are more small ones than gaps
        ([8, 2], [10, 100], 10, {2: 0.2, 4: 0.4, 8: 0.8, 10: 1.0}),
        # nothing beside it
        ([7], [3], 10, {6: 0.0, 7: 1.0}),
        ([10], [3], 10, {9: 0.0, 10: 1.0}),
    ],
)
def test_a_piece_is_worth_what_usual_shares_it_holds(
    sizes: list[int], demand: list[int], capacity: int, worth: dict[int, float]
) -> None:
    values = piece_values(sizes, demand, capacity)
    assert {units: values[units] for units in worth} == pytest.approx(worth)


def _patterns(sizes: list[int], capacity: int) -> Iterator[tuple[int, ...]]:
    counts = [range(capacity // size + 1) for size in sizes]
    for pattern in itertools.product(*counts):
        if sum(size * count for size, count in zip(sizes, pattern, strict=True)) <= capacity:
            yield pattern


@st.composite
def _mixes(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    sizes = draw(st.lists(st.integers(2, 12), min_size=1, max_size=4, unique=True))
    return sizes, [draw(st.integers(1, 50)) for _ in sizes]


@given(_mixes())
def test_values_are_duals_no_pattern_is_worth_more_than_a_device(mix: tuple[list[int], list[int]]) -> None:
    sizes, demand = mix
    values = piece_values(sizes, demand, 12)
    assert values[12] == 1.0
    assert values == sorted(values)
    for pattern in _patterns(sizes, 12):
        worth = sum(values[size] * count for size, count in zip(sizes, pattern, strict=True))
        assert worth <= 1 + 1e-6


@given(_mixes())
def test_values_are_best_the_shares_are_worth_as_many_devices_as_they_take(mix: tuple[list[int], list[int]]) -> None:
    """By complementary slackness on the fractional optimum, found here by trying every basis of patterns."""
    sizes, demand = mix
    values = piece_values(sizes, demand, 12)
    worth = sum(values[size] * wanted for size, wanted in zip(sizes, demand, strict=True))
    assert worth == pytest.approx(_least_devices(sizes, demand), rel=1e-6)


def _least_devices(sizes: list[int], demand: list[int]) -> float:
    """All bases at once: matrices of integers, so a determinant is 0 or at least 1."""
    columns = np.array([pattern for pattern in _patterns(sizes, 12) if any(pattern)], dtype=float)
    bases = columns[list(itertools.combinations(range(len(columns)), len(sizes)))].transpose(0, 2, 1)
    bases = bases[np.abs(np.linalg.det(bases)) > 0.5]
    amounts = np.linalg.solve(
        bases, np.broadcast_to(np.array(demand, dtype=float)[:, None], (len(bases), len(sizes), 1))
    )
    return float(min(each.sum() for each in amounts if each.min() > -1e-9))


@pytest.mark.parametrize("sizes", [[], [0], [11], [5, -1]])
def test_sizes_that_fit_no_device_are_refused(sizes: list[int]) -> None:
    with pytest.raises(ValueError, match="1 to 10 units"):
        piece_values(sizes, [1] * len(sizes), 10)
