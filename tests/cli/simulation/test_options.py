"""What may stand behind the options of traces."""

from __future__ import annotations

import pytest

from cli.simulation import options
from runtime.text import BadInput


@pytest.mark.parametrize(
    ("text", "found"),
    [("42", [42]), ("42-44", [42, 43, 44]), ("1,3-4,3", [1, 3, 4]), ("0-999", list(range(1_000)))],
)
def test_seeds(text: str, found: list[int]) -> None:
    assert options.seeds(text) == found


@pytest.mark.parametrize("text", ["", "a", "4-2", "-1", "1,", "0-1000", "0-999,2000", "1" * 5_000, "٣"])
def test_seeds_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"--seeds: .*allowed: whole numbers and ranges as in 42-51,60; 1000 at most"):
        options.seeds(text)


@pytest.mark.parametrize(
    ("text", "found"), [("priced", ("priced", "priced")), ("binpack/priced", ("binpack", "priced"))]
)
def test_strategies(text: str, found: tuple[str, str]) -> None:
    assert options.strategy_of(text) == found


@pytest.mark.parametrize("text", ["", "/", "priced/", "tight", "binpack/priced/spread"])
def test_strategies_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"--strategy: .*allowed: one of binpack, spread, priced, best-fit, or two"):
        options.strategy_of(text)


def test_bounds_of_numbers() -> None:
    assert (options.load(1), options.load(1_000), options.part(10_000)) == (1, 1_000, 10_000)


@pytest.mark.parametrize("number", [0, -1, 10_001])
def test_numbers_out_of_bounds_are_refused(number: int) -> None:
    with pytest.raises(BadInput, match=r"--load: .*allowed: from 1 to 1000 percent"):
        options.load(number)
    with pytest.raises(BadInput, match=r"--part: .*allowed: from 1 to 10000"):
        options.part(number)
