"""Tests of which cases a run has."""

from __future__ import annotations

import pytest

from tests.whole import slice_of

_TABLE = dict(zip("abcdefg", range(7), strict=True))


def test_a_slice_has_the_first_of_each_few_cases_and_those_that_are_named() -> None:
    assert slice_of(_TABLE, 3, is_whole=False) == {"a": 0, "d": 3, "g": 6}
    assert slice_of(_TABLE, 3, "f", "a", is_whole=False) == {"a": 0, "d": 3, "f": 5, "g": 6}


def test_a_whole_run_has_all_cases() -> None:
    assert slice_of(_TABLE, 3, is_whole=True) == _TABLE


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_name_that_no_case_has_is_an_error(*, is_whole: bool) -> None:
    with pytest.raises(KeyError):
        slice_of(_TABLE, 3, "h", is_whole=is_whole)
