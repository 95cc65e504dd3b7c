"""Which cases of a long table ``make test`` runs: a few of them. The others are ``thorough``, for ``make test-all``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def few(cases: Iterable[Any], one_in: int) -> list[Any]:
    """Return all cases for ``parametrize`` with one argument; the first of each ``one_in`` is run by ``make test``."""
    return [case if i % one_in == 0 else _thorough(case) for i, case in enumerate(cases)]


def few_rows(cases: Iterable[Any], one_in: int) -> list[Any]:
    """Return the same for several arguments, of which each case has a tuple."""
    made = (case if hasattr(case, "marks") else pytest.param(*case) for case in cases)
    return few(made, one_in)


def _thorough(case: Any) -> Any:
    if hasattr(case, "marks"):
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.thorough], id=case.id)
    return pytest.param(case, marks=pytest.mark.thorough)
