from __future__ import annotations

import math

import pytest

from wire.crds.queue import UNITS, counted


@pytest.mark.parametrize(
    ("value", "units", "expected"),
    [
        (0.1, UNITS["gpu"], 100_000_000),
        (0.3, UNITS["gpu"], 300_000_000),
        (1e-10, UNITS["gpu"], 0),
        (2.5, UNITS["memory"], 2_500_000),
        (1500.0, UNITS["cpu"], 1500),
        (1_152_921_504.0, UNITS["gpu"], 1_152_921_504 * 10**9),
        (1_152_921_505.0, UNITS["gpu"], None),
        (-0.5, UNITS["gpu"], None),
        (math.nan, UNITS["gpu"], None),
        (math.inf, UNITS["gpu"], None),
    ],
)
def test_an_amount_is_counted_as_the_decimal_that_it_prints_as(value: float, units: int, expected: int | None) -> None:
    assert counted(value, units) == expected
