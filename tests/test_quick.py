from __future__ import annotations

from typing import Any

import pytest

from tests.quick import few, few_rows


def _thorough(cases: list[Any]) -> list[bool]:
    return ["thorough" in {mark.name for mark in getattr(case, "marks", ())} for case in cases]


def test_the_first_of_each_few_cases_is_not_thorough() -> None:
    made = few("abcde", 2)
    assert _thorough(made) == [False, True, False, True, False]
    assert [getattr(case, "values", (case,)) for case in made] == [("a",), ("b",), ("c",), ("d",), ("e",)]


def test_rows_keep_their_names_and_marks() -> None:
    made = few_rows([(1, 2), pytest.param(3, 4, id="other", marks=pytest.mark.helm)], 2)
    assert _thorough(made) == [False, True]
    assert [case.values for case in made] == [(1, 2), (3, 4)]
    assert (made[1].id, [mark.name for mark in made[1].marks]) == ("other", ["helm", "thorough"])
