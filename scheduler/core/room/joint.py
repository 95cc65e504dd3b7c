"""Which units go for several classes: one class after the other, the largest first, each with what went before it.

What is chosen for one class counts for the others. That each class has room alone does not say that all have it
together: the placer has the last word, and if it says no, more is made for each class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.core.model.steps import Steps
from scheduler.core.nodes.table import Int64s
from scheduler.core.room.cost import Pricing
from scheduler.core.room.counting import Counting
from scheduler.core.room.limits import Limits
from scheduler.core.room.nodewise import Choosing
from scheduler.core.room.permits import Permits

#: What it costs to find out whether one unit can stay after all, for each class, in operations.
_LEAVING_OUT: Final = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """A number of pods of a class."""

    counting: Counting
    pods: int

    @property
    def size(self) -> tuple[int, ...]:
        """The larger, the harder to place."""
        demand, parts = self.counting.way.demand, len(self.counting.way.request.shared)
        return demand.gpus, parts, demand.cpu_milli, demand.mem_mib


def choose(
    wanted: Sequence[Wanted],
    pool: Int64s,
    pricing: Pricing,
    *,
    limits: Limits,
    permits: Permits | None = None,
    more: int = 0,
) -> Steps[list[int] | None]:
    """The units that go, in the order in which they were chosen; None if the whole pool is not enough.

    ``more``: the number of pods of each class for which room is made besides.
    """
    choosings = list[Choosing]()
    for each in sorted(wanted, key=lambda one: one.size, reverse=True):
        known = list(choosings[0].chosen) if choosings else []
        choosing = Choosing(
            each.counting, pricing, each.pods + more, permits=permits, limits=limits if not choosings else None
        )
        choosing.go(known)
        if not (yield from choosing.fill(pool)):
            return None
        new = [row for row in choosing.chosen if row not in choosings[0].chosen] if choosings else []
        for before in choosings:
            before.go(new)
        choosings.append(choosing)
    yield _LEAVING_OUT * len(choosings) * len(choosings[0].chosen)
    return _given_back(choosings)


def _given_back(choosings: Sequence[Choosing]) -> list[int]:
    """Those without whom one class has too few, the dearest looked at first.

    Surplus stays as long as its core goes; so once a core was given back, all are looked at again.
    """
    first, again = choosings[0], True
    while again:
        again = False
        for row in sorted(first.chosen, key=first.dear, reverse=True):
            if first.is_bound(row) or not all(each.can_do_without(row) for each in choosings):
                continue
            again = again or first.has_surplus(row)
            for each in choosings:
                each.stay(row)
    return list(first.chosen)
