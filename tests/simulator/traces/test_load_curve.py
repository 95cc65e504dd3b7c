"""GPUs in use by load."""

from __future__ import annotations

import pytest

from simulator.traces.tally import Point, at_load, load_curve

pytestmark = pytest.mark.thorough


def test_a_point_is_the_mean_over_the_arrivals_of_its_load() -> None:
    # of 10,000: 1.49 and 1.5 round to 1 and 2 percent
    curve = load_curve([149, 150, 240, 300], [149, 150, 150, 210], 10_000)
    assert curve == (Point(1, 149), Point(2, 150), Point(3, 210))
    assert curve[0].used_percent == 1.49


def test_a_load_that_nobody_brought_is_read_beside() -> None:
    curve = load_curve([100, 500], [100, 400], 1_000)
    assert at_load(curve, 10) == at_load(curve, 9) == Point(10, 1_000)
    assert at_load(curve, 50) == Point(50, 4_000)
    assert at_load(curve, 30) is None
    assert at_load((), 30) is None
