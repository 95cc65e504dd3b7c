"""Arrays of equal length."""

from __future__ import annotations

import numpy as np

from scheduler.core.preemption.victim_units import Columns


def test_rows_are_used_again_and_grow_as_needed() -> None:
    columns = Columns({"x": np.int64})
    rows = [columns.put(x=number) for number in range(200)]
    assert sorted(rows) == list(range(200))
    assert [int(columns.of["x"][row]) for row in rows] == list(range(200))
    columns.drop(rows[7])
    assert columns.put(x=5) == rows[7]
