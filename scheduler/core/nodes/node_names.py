"""Names of nodes as small numbers, so that what is counted by node is an array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Final

import numpy as np

from scheduler.core.nodes.table import Int64s

#: In the place of a number: the last element of an array that is longer than there are numbers.
NOBODY: Final = -1


class NodeNames:
    """Numbers of the names that are in use; one that nobody uses is given to another name.

    ``most``: all numbers are below this.
    """

    __slots__ = ("_at", "_free", "_names", "_number", "_positions", "_users", "most")

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._names: list[str] = []
        self._users: list[int] = []
        self._free: list[int] = []
        self.most = 0
        #: The numbers of nodes in the order that was asked last.
        self._positions: Mapping[str, int] = {}
        self._at: Int64s | None = None

    def enter(self, names: Sequence[str]) -> tuple[int, ...]:
        """Numbers of names that one more uses."""
        return tuple(map(self._enter, names))

    def _enter(self, name: str) -> int:
        number = self._number.get(name)
        if number is None:
            self._at = None
            if self._free:
                number = self._free.pop()
                self._names[number] = name
            else:
                number = self.most
                self.most += 1
                self._names.append(name)
                self._users.append(0)
            self._number[name] = number
        self._users[number] += 1
        return number

    def leave(self, names: Sequence[str]) -> None:
        """One fewer uses these names."""
        for name in names:
            number = self._number[name]
            self._users[number] -= 1
            if not self._users[number]:
                del self._number[name]
                self._free.append(number)
                self._at = None

    def of(self, number: int) -> str:
        """The name of a number in use."""
        return self._names[number]

    def at_positions(self, position_of: Mapping[str, int]) -> Int64s:
        """The numbers of nodes by position; of a node whose name is not in use NOBODY."""
        if self._at is None or self._positions is not position_of:
            self._positions = position_of
            numbers = map(self._number.get, position_of, repeat(NOBODY))
            self._at = np.fromiter(numbers, np.int64, len(position_of))
        return self._at
