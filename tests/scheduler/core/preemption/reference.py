"""All sets of victims, one by one: slow, and in fractions. It shares the placer with the search, and no rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from scheduler.core.model.preemption import Action
from scheduler.core.model.quota import Resources
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.trial import Trial
from scheduler.core.preemption.victim_units import Pricing, Resident, residents
from scheduler.core.queues.accounts import Use
from tests.values import there

Set = frozenset[int]


@dataclass
class Reference:
    """``action``: by whose rules. Sets are of places in ``units``."""

    trial: Trial
    need: Need
    action: Action
    units: list[Resident] = field(init=False)
    _placed: dict[Set, Resources | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        leaf = self.trial.accounts.tree.leaf(self.need.queue)
        is_own = self.action is Action.PREEMPT
        self.units = [unit for unit in residents(self.trial).units if (unit.leaf is leaf) is is_own]
        self.kept = [account.kept for account in self.trial.accounts.of]
        self.fixed = [account.fixed for account in self.trial.accounts.of]

    def solutions(self) -> Iterator[Set]:
        """All sets that are permitted in some order, closed, and enough."""
        for found in self.closed():
            claim = self.claim(found)
            if claim is not None and self.is_solution(found, claim):
                yield found

    def closed(self) -> Iterator[Set]:
        """All sets in which no core goes without its surplus."""
        for bits in range(1 << len(self.units)):
            found = frozenset(at for at in range(len(self.units)) if bits >> at & 1)
            if all(self.units.index(other) in found for at in found for other in self.units[at].chain):
                yield found

    def is_solution(self, found: Set, claim: Resources) -> bool:
        """Whether a set is permitted in some order, for what the need claims then, and holds."""
        return self._entitled(claim) and self._in_some_order(found, claim) and self._holds(found, claim)

    def is_permitted(self, order: Sequence[int], claim: Resources) -> bool:
        """Whether units may be taken in this order."""
        return all(self._may_take(frozenset(order[:at]), unit, claim) for at, unit in enumerate(order))

    def claim(self, found: Set) -> Resources | None:
        """What the need uses when these are gone; None if it does not fit."""
        if found not in self._placed:
            self._placed[found] = self._place([self.units[at] for at in found])
        return self._placed[found]

    def _place(self, units: list[Resident]) -> Resources | None:
        trial = self.trial
        statement, accounts = trial.statement.checkpoint(), trial.accounts.checkpoint()
        for unit in units:
            trial.statement.evict(*unit.pods)
            trial.accounts.charge(Use(unit.leaf.name, Resources(*(-amount for amount in unit.amounts))))
        before = trial.accounts.checkpoint()
        places = trial.paper.place(self.need)
        claim = trial.accounts.charged_since(before)
        trial.statement.rollback(statement)
        trial.accounts.rollback(accounts)
        return None if places is None else claim

    def ratio(self, found: Set, pricing: Pricing) -> Fraction | None:
        """What a set costs beside the cheapest of the lowest rank; None if it is of a higher rank or priority."""
        solutions = list(self.solutions())
        lowest = min(map(self.rank, solutions))
        best = min(pricing.cost(self.units[at] for at in each) for each in solutions if self.rank(each) == lowest)
        mine = pricing.cost(self.units[at] for at in found)
        if self.rank(found) > lowest or mine.priority > best.priority:
            return None
        return Fraction(mine.loss + 1, best.loss + 1)

    def rank(self, found: Set) -> tuple[bool, bool, int]:
        """Of its last unit to go: a core, of a queue within its share, of a queue of high priority."""
        return max(self._rank(self.units[at]) for at in found)

    def _rank(self, unit: Resident) -> tuple[bool, bool, int]:
        if self.action is Action.PREEMPT:
            return unit.is_core, False, 0
        theirs = self._sides(unit)[1]
        share = self.trial.accounts.of[theirs].allocatable
        is_above = any(self.kept[theirs][at] > share[at] for at in range(3))
        return unit.is_core, not is_above, self.trial.accounts.tree.queues[theirs].record.priority

    # --- the rules, in fractions -------------------------------------------------------------------------------------
    def _entitled(self, claim: Resources) -> bool:
        queue = there(self.trial.accounts.tree.find(self.need.queue))
        if self.action is Action.PREEMPT:
            return True
        fair = self.trial.accounts.of[queue.number].fair
        return all(self.kept[queue.number][at] + claim[at] <= fair[at] for at in range(3))

    def _in_some_order(self, found: Set, claim: Resources) -> bool:
        """Whether the units can be taken one after the other, in any order."""
        reached, open_sets = {frozenset[int]()}, [frozenset[int]()]
        while open_sets:
            taken = open_sets.pop()
            for unit in found - taken:
                more = taken | {unit}
                if more not in reached and self._may_take(taken, unit, claim):
                    reached.add(more)
                    open_sets.append(more)
        return found in reached

    def _lost(self, taken: Set, number: int, at: int) -> int:
        return sum(self.units[unit].amounts[at] for unit in taken if number in self.units[unit].leaf.path)

    def _may_take(self, taken: Set, unit: int, claim: Resources) -> bool:
        victim, accounts = self.units[unit], self.trial.accounts
        if self.action is Action.PREEMPT:
            return victim.priority < self.need.priority
        mine, theirs = self._sides(victim)
        left = [self.kept[theirs][at] - self._lost(taken, theirs, at) for at in range(3)]
        if any(left[at] > accounts.of[theirs].allocatable[at] for at in range(3)):
            return True
        own, other = (accounts.tree.queues[number].record.quota for number in (mine, theirs))
        within = all(self.kept[mine][at] + claim[at] <= own[at] for at in range(3))
        return within and any(left[at] > other[at] for at in range(3))

    def _sides(self, victim: Resident) -> tuple[int, int]:
        queue = there(self.trial.accounts.tree.find(self.need.queue))
        mine = [number for number in queue.path if number not in victim.leaf.path]
        theirs = [number for number in victim.leaf.path if number not in queue.path]
        return mine[-1], theirs[-1]

    def _holds(self, taken: Set, claim: Resources) -> bool:
        if self.action is Action.PREEMPT:
            return True
        queues, of = self.trial.accounts.tree.queues, self.trial.accounts.of
        involved = [at for at in range(3) if claim[at] or any(self.units[unit].amounts[at] for unit in taken)]
        queue = there(self.trial.accounts.tree.find(self.need.queue))
        for own in queue.path:
            losers = {number for unit in taken for number in self.units[unit].leaf.path if number not in queue.path}
            for other in (number for number in losers if queues[number].parent == queues[own].parent):
                for at in involved:
                    has = self.kept[own][at] - self._lost(taken, own, at) + claim[at]
                    left = self.kept[other][at] - self._lost(taken, other, at)
                    mine = _ratio(has, of[own].fair[at])
                    if mine > 1 and of[other].fair[at] > 0 and mine >= _ratio(left, of[other].fair[at]):
                        return False
        return True


def _ratio(part: int, whole: int) -> Fraction:
    return Fraction(part, whole) if whole else Fraction(1 << 200 if part > 0 else 0)
