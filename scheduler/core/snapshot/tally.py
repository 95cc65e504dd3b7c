"""How many pods are in each domain of a label, kept up to date pod by pod, and which domains have changed."""

from __future__ import annotations

from typing import Final

import numpy as np

from scheduler.core.filters.pod_rule import NO_DOMAIN, Bools, Ints
from scheduler.core.snapshot.moves import Taken

_NOBODY: Final = 0


class Tally:
    """Pods by domain, on nodes that count.

    ``numbers``: by number of the domain; not to be written. ``total``: in all of them. ``changed``: domains in which a
    pod has come or gone, in order, each as often as that was. ``taken``: how many of the moves of such pods are
    counted.
    """

    __slots__ = ("_by_number", "_counted", "_moves", "_of", "_there", "changed", "numbers", "taken", "total")

    def __init__(self, moves: Taken, numbers: Ints, of: Ints | None, counted: Bools | None, *, taken: int) -> None:
        """``of``: the domain of each position; None: each is one. ``counted``: positions that count; None: all."""
        self.numbers = numbers
        self.total = int(numbers.sum())
        self.changed: list[int] = []
        self.taken = taken
        self._moves = moves
        self._of = of
        self._counted = counted
        #: Of domains that are looked at: how many have a number of pods.
        self._there: Bools | None = None
        self._by_number: dict[int, int] = {}

    def catch_up(self) -> None:
        """Count what was moved since."""
        moves = self._moves.up_to_now()
        if self.taken < len(moves):
            for position, by in moves[self.taken :]:
                self._move(position, by)
            self.taken = len(moves)

    def _move(self, position: int, by: int) -> None:
        """Pods come to a node, or leave it."""
        if self._counted is not None and not self._counted.item(position):
            return
        domain = position if self._of is None else self._of.item(position)
        if domain == NO_DOMAIN:
            return
        before = self.numbers.item(domain)
        self.numbers[domain] = now = before + by
        self.total += by
        self.changed.append(domain)
        if self._there is not None and self._there.item(domain):
            by_number = self._by_number
            by_number[now] = by_number.get(now, 0) + 1
            if by_number[before] == 1:
                del by_number[before]
            else:
                by_number[before] -= 1

    def fewest(self, there: Bools) -> int:
        """The fewest pods of those of some domains, at least one; asked of the same ones each time."""
        if self._there is not there:
            self._there = there
            numbers, domains = np.unique(self.numbers[there], return_counts=True)
            self._by_number = dict(zip(numbers.tolist(), domains.tolist(), strict=True))
        return min(self._by_number, default=_NOBODY)
