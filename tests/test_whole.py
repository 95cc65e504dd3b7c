"""Which cases a run has, and that each night runs all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.whole import examples, seeds, slice_of

_ROOT = Path(__file__).parents[1]
_TABLE = dict(zip("abcdefg", range(7), strict=True))


def _run_whole() -> list[str]:
    """The files and folders that ``make nightly`` runs whole."""
    lines = (_ROOT / "Makefile").read_text().replace("\\\n", " ").splitlines()
    return [word for line in lines if "MOORAGE_WHOLE=1" in line for word in re.findall(r"tests/\S+", line)]


def test_what_make_test_runs_a_slice_of_is_run_whole_each_night() -> None:
    folders = [_ROOT / word for word in _run_whole()]
    assert all(folder.exists() for folder in folders)
    sliced = [path for path in (_ROOT / "tests").rglob("test_*.py") if "from tests.whole import" in path.read_text()]
    assert len(sliced) > 10
    mine = Path(__file__)
    assert [path for path in sliced if path != mine and not {path, *path.parents} & {*folders}] == []


@pytest.mark.parametrize(("count", "first"), [(1, 1), (2, 2), (3, 2), (8, 2), (11, 2), (12, 3), (40, 10)], ids=str)
def test_a_quarter_of_the_seeds_is_run_and_two_at_least(count: int, first: int) -> None:
    assert len(seeds(count, is_whole=False)) == first
    assert len(seeds(count, is_whole=True)) == count


def test_one_of_three_seeds_is_no_thorough_test() -> None:
    assert [seed for seed in seeds(40, is_whole=False) if isinstance(seed, int)] == [0, 3, 6, 9]


def test_the_whole_has_twenty_times_the_examples() -> None:
    assert (examples(20, is_whole=False), examples(20, is_whole=True)) == (20, 400)


def test_a_slice_has_the_first_of_each_few_cases_and_those_that_are_named() -> None:
    assert slice_of(_TABLE, 3, is_whole=False) == {"a": 0, "d": 3, "g": 6}
    assert slice_of(_TABLE, 3, "f", "a", is_whole=False) == {"a": 0, "d": 3, "f": 5, "g": 6}


def test_a_whole_run_has_all_cases() -> None:
    assert slice_of(_TABLE, 3, is_whole=True) == _TABLE


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_name_that_no_case_has_is_an_error(*, is_whole: bool) -> None:
    with pytest.raises(KeyError):
        slice_of(_TABLE, 3, "h", is_whole=is_whole)
