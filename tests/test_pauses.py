"""Tests of how often a test looks."""

from __future__ import annotations

import pytest

from tests.pauses import pause_s


@pytest.mark.parametrize(
    ("waited_s", "expected_s"), [(0.0, 0.05), (0.5, 0.05), (2.0, 0.2), (5.0, 0.5), (180.0, 0.5)], ids=str
)
def test_a_pause_is_a_tenth_of_the_wait_within_bounds(waited_s: float, expected_s: float) -> None:
    assert pause_s(waited_s) == pytest.approx(expected_s)


def test_looks_are_few_in_a_long_wait_and_never_far_apart() -> None:
    looks, now_s = 0, 0.0
    while now_s < 10.0:
        now_s, looks = now_s + pause_s(now_s), looks + 1
    assert looks < 50
