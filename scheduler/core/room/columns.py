"""Arrays of equal length, a row for each thing: small, and quick to look along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from scheduler.core.model.facts import copied
from scheduler.core.nodes.table import Int64s

FEWEST: Final = 16
#: In a row that is empty.
EMPTY: Final = -1


class Columns:
    """Arrays of equal length that grow, and which of their rows are empty."""

    def __init__(self, types: Mapping[str, type[np.signedinteger[Any]]]) -> None:
        self.of: dict[str, Int64s] = {name: np.full(FEWEST, EMPTY, dtype) for name, dtype in types.items()}
        self._length, self._used = FEWEST, 0
        #: Rows that were used and are empty again.
        self._free: list[int] = []

    def put(self, **values: int) -> int:
        """Fill a row; return its number."""
        row = self._free.pop() if self._free else self._next()
        for name, value in values.items():
            self.of[name][row] = value
        return row

    def copy(self) -> Columns:
        """The same rows, to be changed by themselves."""
        return copied(self, of={name: column.copy() for name, column in self.of.items()}, _free=list(self._free))

    def drop(self, row: int) -> None:
        """Empty a row."""
        for column in self.of.values():
            column[row] = EMPTY
        self._free.append(row)

    def _next(self) -> int:
        if self._used == self._length:
            more = max(FEWEST, self._length // 4)
            self.of = {
                name: np.concatenate([column, np.full(more, EMPTY, column.dtype)]) for name, column in self.of.items()
            }
            self._length += more
        self._used += 1
        return self._used - 1
