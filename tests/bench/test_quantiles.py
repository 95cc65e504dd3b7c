from __future__ import annotations

import pytest

from bench.result import quantile, spread_ms


@pytest.mark.parametrize(("q", "value"), [(0.0, 1), (0.5, 50), (0.99, 99), (1.0, 100)])
def test_a_quantile_is_a_value_that_occurred(q: float, value: int) -> None:
    assert quantile([*range(100, 0, -1)], q) == value


def test_there_is_no_quantile_of_nothing() -> None:
    with pytest.raises(ValueError, match="at least one"):
        quantile([], 0.5)


def test_a_spread_is_in_milliseconds() -> None:
    assert spread_ms([0.001, 0.002, 0.0301]) == {"p50_ms": 2.0, "p99_ms": 30.1, "worst_ms": 30.1}
