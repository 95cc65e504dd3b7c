"""Which units of a pool go, node by node: first the one that costs least for each pod that it then holds.

What a node would cost is estimated for all nodes at once; a close look is only taken at those that lead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from gpu.share import NANO_PER_DEVICE
from scheduler.core.model.steps import Steps
from scheduler.core.nodes.table import Int64s
from scheduler.core.preemption.capacity import PARTS, Counting, Estimates
from scheduler.core.preemption.reclaim import NOBODY, Gone, Limits, Permits
from scheduler.core.preemption.victim_units import EMPTY, Pricing, Resident

#: The most shared devices of a node that are tried to be freed as a whole.
_MOST_DEVICES: Final = 16
#: What a close look at a node costs, and for each unit there, in operations.
_LOOKING: Final = 50
_LOOKING_EACH: Final = 15
#: What it costs to see whether a unit helps to keep a limit.
_LIMITING: Final = 5
#: What sorts units.
_Rank = float | tuple[int, ...]


class _Look(NamedTuple):
    """Units of a node, and all that goes with them: what they cost for each pod that is gained."""

    each: int
    units: tuple[int, ...]
    gains: dict[int, int]


class _Wanted:
    """What one node lacks for a number of pods, with units off. Most nodes are summed up, others are counted again."""

    def __init__(self, counting: Counting, position: int, count: int, gone: frozenset[int]) -> None:
        self._counting, self._position, self._count = counting, position, count
        self._gone = gone
        self._lacks = counting.lacks(position, count)
        for row in gone if self._lacks is not None else ():
            self._add(row, -1)

    def is_met_with(self, rows: Sequence[int]) -> bool:
        """Take these off as well; whether it is enough then."""
        self._gone = self._gone.union(rows)
        for row in rows if self._lacks is not None else ():
            self._add(row, -1)
        return self._is_met(self._gone)

    def is_met_without(self, row: int) -> bool:
        """Whether it would be enough if this one stayed."""
        if self._lacks is None:
            return self._is_met(self._gone - {row})
        held = self._counting.holds(row).get(self._position)
        if held is None:
            return True
        return all(lack + amount <= 0 for lack, amount in zip(self._lacks, held, strict=True))

    def drop(self, row: int) -> None:
        """It stays."""
        self._gone -= {row}
        if self._lacks is not None:
            self._add(row, 1)

    def _add(self, row: int, sign: int) -> None:
        held = self._counting.holds(row).get(self._position)
        if held is not None and self._lacks is not None:
            self._lacks = [lack + sign * amount for lack, amount in zip(self._lacks, held, strict=True)]

    def _is_met(self, gone: frozenset[int]) -> bool:
        if self._lacks is not None:
            return max(self._lacks) <= 0
        return self._counting.count(self._position, gone) >= self._count


@dataclass(slots=True)
class Choosing:
    """``needed``: the number of pods in all. ``permits``: which units may go, in the order in which they do; None: all.

    ``limits``: what queues have to free besides.
    """

    counting: Counting
    pricing: Pricing
    needed: int
    permits: Permits | None = None
    limits: Limits | None = None
    #: In the order in which they were chosen; and by position.
    chosen: dict[int, None] = field(default_factory=dict)
    _on: dict[int, frozenset[int]] = field(default_factory=dict)
    _there: dict[int, int] = field(default_factory=dict)
    _total: int = 0
    _losses: dict[int, int] = field(default_factory=dict)
    _candidates: dict[int, list[int]] = field(default_factory=dict)
    _looks: dict[int, _Look | None] = field(default_factory=dict)
    #: What those that were chosen take.
    _gone: Gone = NOBODY

    def __post_init__(self) -> None:
        self._total = int(self.counting.here.sum())

    def fill(self, pool: Int64s) -> Steps[bool]:
        """Choose units until there is room for all; return False if the whole pool is not enough."""
        estimates, self._candidates = Estimates(self.counting, self.pricing).of(pool)
        heap = [(estimate, position) for position, estimate in estimates]
        heapify(heap)
        while self._total < self.needed and heap:
            estimate, position = heappop(heap)
            if position not in self._looks:
                self._looks[position] = self._look(position)
                yield _LOOKING + _LOOKING_EACH * len(self._candidates.get(position, ()))
            look = self._looks[position]
            # Sums and count agree (test_counting.py). If they did not, one that frees nothing would come up for ever.
            if look is None or not look.units:
                continue
            if heap and look.each > heap[0][0] and look.each != estimate:
                heappush(heap, (look.each, position))
                continue
            if self._go(look.units, self._gone) is None:  # others went since it was looked at
                del self._looks[position]
                heappush(heap, (0, position))
                continue
            for touched in self._take(look) | {position}:
                self._looks.pop(touched, None)
                if not all(row in self.chosen for row in self._candidates.get(touched, ())):
                    heappush(heap, (0, touched))
        if self._total < self.needed:
            return False
        yield _LIMITING * len(pool) if self.limits is not None else 0
        return self._keep_limits(pool)

    def go(self, units: Sequence[int]) -> None:
        """These go, even if they free nothing here."""
        if units:
            self._take(_Look(0, tuple(units), self._gains(units)))

    def _keep_limits(self, pool: Int64s) -> bool:
        """Take more, the cheapest first, until no queue is above its limit; whether that is so in the end."""
        if self.limits is None or self.limits.are_met():
            return True
        for row in sorted(pool.tolist(), key=self.dear):
            unit = self._unit(row)
            if row in self.chosen or not self.limits.helps(unit):
                continue
            rows = self._with_surplus((), row)
            if self._go(rows, self._gone) is None:
                continue
            self.go(rows)
            if self.limits.are_met():
                return True
        return False

    def _unit(self, row: int) -> Resident:
        unit = self.counting.table.residents[row]
        if unit is None:
            raise LookupError(f"row {row} is of no unit")
        return unit

    # --- one node ----------------------------------------------------------------------------------------------------
    def _look(self, position: int) -> _Look | None:
        """The cheapest of a few ways to have one more pod there."""
        there = [row for row in self._candidates.get(position, ()) if row not in self.chosen]
        looks = []
        orders: list[Callable[[int], _Rank]] = [self._loss, lambda row: self._per(position, row), self._per_all]
        if self.permits is not None:
            orders.append(self._size)  # the smallest first, so that most may go
            orders += self._by_device(position, there)
        # Pods of one size come in the same order by each of these: dict keeps one of equal orders, the first.
        for rows in dict.fromkeys(tuple(sorted(there, key=order)) for order in orders):
            found = self._first(position, rows)
            if found is not None:
                looks.append(found)
        return min(looks, key=lambda look: look[:2], default=None)

    def _per(self, position: int, row: int) -> float:
        """What it costs for each part that it holds here."""
        held = self.counting.holds(row).get(position, [1])
        return self._loss(row) / (1 + held[-1])

    def _size(self, row: int) -> tuple[int, ...]:
        cpu, mem, gpu = self._unit(row).amounts
        return gpu, cpu, mem

    def _per_all(self, row: int) -> float:
        """What it costs for each part that it holds anywhere."""
        return self._loss(row) / (1 + sum(held[-1] for held in self.counting.holds(row).values()))

    def _by_device(self, position: int, there: Sequence[int]) -> Iterator[Callable[[int], _Rank]]:
        """Tenants of one shared device after those of another, each device once the first of all.

        A device comes back when all its tenants go. If a queue gives no more than that, those of two devices that are
        the first by another order free none.
        """
        may_go = frozenset(there)
        shared = [frozenset(row for row, _ in each.tenants) for each in self.counting.tenants.by_node.get(position, ())]
        devices = sorted(
            (rows for rows in shared if rows and rows <= may_go), key=lambda rows: sum(map(self._loss, rows))
        )
        for first in [rows for rows in devices if len(rows) > 1][:_MOST_DEVICES]:
            in_order = [first, *(rows for rows in devices if rows is not first)]
            rank = {row: at for at, rows in enumerate(in_order) for row in rows}
            yield partial(self._in_devices, rank)

    def _in_devices(self, rank: Mapping[int, int], row: int) -> _Rank:
        return rank.get(row, len(rank)), self._loss(row)

    def _loss(self, row: int) -> int:
        known = self._losses.get(row)
        if known is None:
            known = self._losses[row] = self.pricing.loss(self._unit(row))
        return known

    def _first(self, position: int, order: Sequence[int]) -> _Look | None:
        """Units in an order until there is room for one more, and those left out that are not needed for it."""
        wanted = _Wanted(self.counting, position, self._known(position) + 1, self._on.get(position, frozenset()))
        picked, gone = list[int](), self._gone
        for row in order:
            if row in picked:
                continue
            more = self._with_surplus(picked, row)
            then = self._go(more, gone)
            if then is None:
                continue
            picked, gone = [*picked, *more], then
            if wanted.is_met_with(more):
                break
        else:
            return None
        for row in sorted(picked, key=self._loss, reverse=True):
            if wanted.is_met_without(row) and not self._is_bound(row, picked):
                picked.remove(row)
                wanted.drop(row)
        if self._go(picked, self._gone) is None:
            return None
        gains = self._gains(picked)
        gain = min(self.needed - self._total, sum(gains.values()))
        loss = sum(map(self._loss, picked))
        return _Look(loss * PARTS // NANO_PER_DEVICE // max(1, gain), tuple(picked), gains)

    def _go(self, rows: Sequence[int], before: Gone) -> Gone | None:
        """What has gone once these have as well; None if they may not."""
        return before if self.permits is None else self.permits.go(rows, before)

    def _with_surplus(self, picked: Sequence[int], row: int) -> list[int]:
        """A unit, and before it the surplus that a core takes with it."""
        return [*(each for each in self._surplus(row) if each not in picked and each not in self.chosen), row]

    def _surplus(self, row: int) -> Sequence[int]:
        return self.counting.table.surplus_of(row)

    def _is_bound(self, row: int, others: Iterable[int]) -> bool:
        """Whether one of the others is the core that takes it along."""
        core = int(self.counting.table.units.of["core"][row])
        return core != EMPTY and core in others

    def _count(self, position: int, gone: frozenset[int]) -> int:
        return self.counting.count(position, gone)

    def _known(self, position: int) -> int:
        known = self._there.get(position)
        return int(self.counting.here[position]) if known is None else known

    def _gains(self, units: Sequence[int]) -> dict[int, int]:
        """What each node gains by these."""
        positions = {position: None for row in units for position in self.counting.holds(row)}
        return {
            position: self._count(position, self._on.get(position, frozenset()).union(units)) - self._known(position)
            for position in positions
        }

    def _take(self, look: _Look) -> set[int]:
        """Its units go; return the nodes that they touch."""
        # On other nodes more may be gone since it was looked at.
        gains = look.gains if len(look.gains) == 1 else self._gains(look.units)
        for position, gain in gains.items():
            self._there[position] = self._known(position) + gain
            self._total += gain
            self._on[position] = self._on.get(position, frozenset()).union(look.units)
        # If they might not go after all, the rules would say so of the whole set (search.py).
        self._gone = self._go(look.units, self._gone) or self._gone
        self.chosen.update(dict.fromkeys(look.units))
        for row in look.units if self.limits is not None else ():
            self._free_limits(row, 1)
        return set(gains)

    def _free_limits(self, row: int, sign: int) -> None:
        if self.limits is not None:
            self.limits.take(self._unit(row), sign)

    # --- what is not needed ------------------------------------------------------------------------------------------
    def is_bound(self, row: int) -> bool:
        """Whether it goes with a core."""
        return self._is_bound(row, self.chosen)

    def has_surplus(self, row: int) -> bool:
        """Whether others go with it."""
        return bool(self._surplus(row))

    def dear(self, row: int) -> tuple[int, int]:
        """What it costs, its priority first."""
        return int(self.counting.table.units.of["priority"][row]), self._loss(row)

    def can_do_without(self, row: int) -> bool:
        """Whether there is room for all if this one stays. The others may go then as they may with it (reclaim.py)."""
        if self.limits is not None and not self.limits.are_met_without(self._unit(row)):
            return False
        return self._total - sum(self._lost(row).values()) >= self.needed

    def stay(self, row: int) -> None:
        """It stays."""
        for position, count in self._lost(row).items():
            self._there[position] = self._known(position) - count
            self._on[position] -= {row}
            self._total -= count
        self._free_limits(row, -1)
        del self.chosen[row]
        if self.permits is not None:
            self._gone = self.permits.back(row, self._gone)

    def _lost(self, row: int) -> dict[int, int]:
        """What nodes hold less if it stays."""
        return {
            position: self._known(position) - self._count(position, self._on[position] - {row})
            for position in self.counting.holds(row)
        }
