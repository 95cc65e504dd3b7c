"""Sets of victims that may be enough, the best first: class by class, the largest first (docs/design/preemption.md).

What is chosen for one class counts for the others. That each class has room alone does not say that all have it
together: the placer has the last word, and if it says no, more is made for each class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from scheduler.core.model.steps import Steps
from scheduler.core.nodes.table import Int64s
from scheduler.core.preemption.candidates import Ground, of_low_priority
from scheduler.core.preemption.capacity import Counting
from scheduler.core.preemption.node_choice import Choosing
from scheduler.core.preemption.reclaim import Limits, Permits, Rules
from scheduler.core.preemption.victim_units import Cost, Pricing

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


def choose_units(
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


#: Up to this number of pods that go, each unit is judged alone as well.
FEW: Final = 16


@dataclass(slots=True)
class Sets:
    """Of one need and action. ``sequence``: rows that may be taken one after the other; ``able``: all, in their order.

    ``wanted``: how it is counted; empty where that says too little, of classes that may be placed in several ways, or
    where it is not clear how many pods of each class are placed.
    """

    ground: Ground
    pricing: Pricing
    rules: Rules
    sequence: Int64s
    able: Int64s
    wanted: Sequence[Wanted] = field(init=False)

    def __post_init__(self) -> None:
        trial, least = self.ground.trial, self.ground.wanted
        self.wanted = []
        if sum(least.pods.values()) == least.count and not any(len(cls.ways()) > 1 for cls in least.pods):
            self.wanted = [
                Wanted(Counting(trial, trial.residents, cls.ways()[0], self.ground.tenants), count)
                for cls, count in least.pods.items()
            ]

    def counted(self) -> Steps[Sequence[Sequence[int]]]:
        """Those out of the sequence, and out of all that may be taken where few go."""
        if not self.wanted:
            return []
        found = yield from self._in_turn()
        table = self.ground.trial.residents
        if not found or sum(len(unit.pods) for unit in table.at(found[0])) <= FEW:
            found += yield from self._out_of_turn()
        return self.best_first(found)

    def chosen(self, pool: Int64s, more: int = 0) -> Steps[list[list[int]]]:
        """What is chosen out of a pool, in its order; nothing if the pool is not enough.

        ``more``: with room for this many more pods of each class.
        """
        found = yield from choose_units(self.wanted, pool, self.pricing, limits=self._limits(), more=more)
        place = {row: at for at, row in enumerate(pool.tolist())}
        return [] if found is None else [sorted(found, key=place.__getitem__)]

    def _in_turn(self) -> Steps[list[list[int]]]:
        """Node by node: out of the shortest part of the sequence that is enough, and out of a larger one."""
        sequence, table = self.sequence, self.ground.trial.residents
        limited = self._limits().prefix(table.at(sequence.tolist()))
        prefix = self._prefix(sequence)
        if prefix is None or limited is None:
            return []
        prefix = max(prefix, limited)
        found = yield from self.chosen(sequence[:prefix])
        pool = sequence
        if not limited:
            pool = of_low_priority(table, sequence, lambda rows: self._prefix(rows) is not None)
        # Where they are nearly the same, one look is enough.
        return found + (yield from self.chosen(pool)) if 4 * prefix < 3 * len(pool) else found

    def _prefix(self, sequence: Int64s) -> int | None:
        """How many of the first units are enough for each class alone; None if all of them are not."""
        found = [each.counting.prefix(sequence, each.pods) for each in self.wanted]
        return None if None in found else max(each for each in found if each is not None)

    def _out_of_turn(self) -> Steps[list[list[int]]]:
        """Node by node, each unit judged when it is looked at: it need not go where the order would have it."""
        permits = Permits(self.ground.trial.residents, self.rules, self.ground.budgets)
        found = yield from choose_units(self.wanted, self.able, self.pricing, limits=self._limits(), permits=permits)
        return [] if found is None else [found]

    def _limits(self) -> Limits:
        return Limits(self.ground.trial.accounts, self.ground.leaf, self.ground.wanted.claim)

    def best_first(self, found: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
        """What is nearer to KAI's order goes first, unless another one costs less than four fifths of it."""
        if len(found) < 2:
            return found
        costs = [self.pricing.cost(self.ground.trial.residents.at(rows)) for rows in found]
        best = min(range(1, len(found)), key=costs.__getitem__)
        at = best if _is_much_less(costs[best], costs[0]) else 0
        return [found[at], *(rows for other, rows in enumerate(found) if other != at)]


def _is_much_less(one: Cost, other: Cost) -> bool:
    """Whether a set has no higher priority and costs less than four fifths of the other."""
    return one.priority <= other.priority and 5 * one.loss < 4 * other.loss
