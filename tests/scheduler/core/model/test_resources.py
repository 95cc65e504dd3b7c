from __future__ import annotations

from scheduler.core.model.quota import Resources

ONE, TWO = Resources(1, 20, 300), Resources(4, 50, 600)


def test_amounts_are_added_and_taken_away_by_dimension() -> None:
    assert ONE.plus(TWO) == Resources(5, 70, 900)
    assert ONE.minus(TWO) == Resources(-3, -30, -300)
    assert ONE.times(3) == Resources(3, 60, 900)


def test_the_dimensions_are_named_in_their_order() -> None:
    assert Resources(cpu_milli=1, mem_bytes=20, gpu_nano=300) == ONE
