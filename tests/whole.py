"""Whether long tests run whole: ``MOORAGE_WHOLE=1``, as in ``make nightly``. ``make test-all`` runs a slice of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from tests.quick import few

IS_WHOLE: Final = bool(os.environ.get("MOORAGE_WHOLE"))
T = TypeVar("T")
#: ``make test-all`` runs one part of this number of a test's seeds, and two seeds at least.
_PARTS: Final = 4
#: ``make test`` runs one part of this number of those.
_QUICK: Final = 3
#: Examples that are tried in the whole for each of ``make test-all``.
_MORE: Final = 20


def slice_of(table: Mapping[str, T], one_in: int, *always: str, is_whole: bool = IS_WHOLE) -> dict[str, T]:
    """Return the cases of a table that are run now: all, or the first of each ``one_in`` and those named ``always``.

    Raises KeyError for a name that the table does not have.
    """
    named = {name: table[name] for name in always}
    return {name: case for i, (name, case) in enumerate(table.items()) if is_whole or not i % one_in or name in named}


def seeds(count: int, *, is_whole: bool = IS_WHOLE) -> list[Any]:
    """Seeds of a random test, from 0: all of them in the whole, else the first quarter. ``make test`` runs a third."""
    return few(range(count if is_whole else min(count, max(2, count // _PARTS))), _QUICK)


def examples(count: int, *, is_whole: bool = IS_WHOLE) -> int:
    """How many examples a property is tried with that has a number of its own: 20 times as many in the whole."""
    return count * (_MORE if is_whole else 1)
