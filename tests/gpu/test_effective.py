from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.request import effective


@pytest.mark.parametrize(
    ("regular", "init", "expected"),
    [
        ([], [], 0),
        ([1, 2], [], 3),
        ([1], [(4, False), (2, False)], 4),
        ([3], [(1, False)], 3),
        ([1], [(2, True)], 3),
        ([1], [(2, True), (4, False)], 6),
        ([1], [(4, False), (2, True)], 4),
        ([5], [(2, True), (4, False), (1, True)], 8),
        ([0], [(1, True), (1, True)], 2),
    ],
)
def test_a_pod_needs_what_runs_at_once(regular: list[int], init: list[tuple[int, bool]], expected: int) -> None:
    assert effective(regular, init) == expected


@given(st.lists(st.integers(0, 9), max_size=5), st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=6))
def test_it_is_the_largest_moment_of_the_start(regular: list[int], init: list[tuple[int, bool]]) -> None:
    moments = [
        sum(amount for amount, is_sidecar in init[:step] if is_sidecar) + init[step][0] for step in range(len(init))
    ]
    steady = sum(amount for amount, is_sidecar in init if is_sidecar) + sum(regular)
    assert effective(regular, init) == max([*moments, steady])
