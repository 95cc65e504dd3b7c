"""Which pods go for a need, or why none do (docs/design/preemption.md).

Sets of victims that may be enough are tried, the best first: class by class, the largest first. What is chosen for one
class counts for the others. That each class has room alone does not mean that all have it together, so the placer
decides: a set is enough if the need is placed on the statement with its units off, as a decision would place it. If it
is not, more victims are chosen for each class. Statement and accounts are left as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import combinations, permutations
from typing import Final, TypeAlias

import msgspec
import numpy as np

from scheduler.core.model.preemption import Action, Bound, Found, NoVictims, Place
from scheduler.core.model.quota import Resources
from scheduler.core.model.steps import Steps, ended
from scheduler.core.model.verdict import Verdict
from scheduler.core.nodes.table import Int64s
from scheduler.core.preemption import candidates, protection
from scheduler.core.preemption.candidates import (
    Allowed,
    SearchScope,
    by_budgets,
    by_cost,
    by_size,
    in_queue,
    joined,
    no_victims,
    of_low_priority,
    of_low_rank,
    permitted,
)
from scheduler.core.preemption.capacity import Counting
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.node_choice import Choosing
from scheduler.core.preemption.reclaim import Limits, Permits, Rules, VictimRank
from scheduler.core.preemption.trial import Trial, evict_on_paper, leave_on_paper, release_on_paper
from scheduler.core.preemption.victim_units import Cost, Pricing, Resident

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

    scope: SearchScope
    pricing: Pricing
    rules: Rules
    sequence: Int64s
    able: Int64s
    wanted: Sequence[Wanted] = field(init=False)

    def __post_init__(self) -> None:
        trial, least = self.scope.trial, self.scope.wanted
        self.wanted = []
        if sum(least.pods.values()) == least.count and not any(len(cls.ways()) > 1 for cls in least.pods):
            self.wanted = [
                Wanted(Counting(trial, trial.residents, cls.ways()[0], self.scope.tenants), count)
                for cls, count in least.pods.items()
            ]

    def counted(self) -> Steps[Sequence[Sequence[int]]]:
        """Those out of the sequence, and out of all that may be taken where few go."""
        if not self.wanted:
            return []
        found = yield from self._in_turn()
        table = self.scope.trial.residents
        if not found or sum(len(unit.pods) for unit in table.at(found[0])) <= FEW:
            low = of_low_rank(table, self.able, self.rules, self.may_be_enough)
            more = yield from self._out_of_turn(low)
            if not more and len(low) < len(self.able):
                more = yield from self._out_of_turn(self.able)
            found += more
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
        sequence, table = self.sequence, self.scope.trial.residents
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

    def _out_of_turn(self, pool: Int64s) -> Steps[list[list[int]]]:
        """Node by node, each unit judged when it is looked at: it need not go where the order would have it."""
        permits = Permits(self.scope.trial.residents, self.rules, self.scope.budgets)
        found = yield from choose_units(self.wanted, pool, self.pricing, limits=self._limits(), permits=permits)
        return [] if found is None else [found]

    def _limits(self) -> Limits:
        return Limits(self.scope.trial.accounts, self.scope.leaf, self.scope.wanted.claim)

    def may_be_enough(self, rows: Int64s) -> bool:
        """Whether units leave room for each class alone, as far as that is counted, and keep all limits."""
        if self.wanted and self._prefix(rows) is None:
            return False
        limits = self._limits()
        return limits.are_met() or limits.prefix(self.scope.trial.residents.at(rows.tolist())) is not None

    def rank(self, rows: Sequence[int]) -> VictimRank:
        """The rank of the last one to go."""
        units = self.scope.trial.residents.at(rows)
        return max((self.rules.rank(each.leaf, is_core=each.is_core) for each in units), default=_NO_RANK)

    def best_first(self, found: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
        """The lowest rank goes first; of equals what is nearest to KAI's order, unless another one costs much less."""
        if len(found) < 2:
            return found
        ranks = [self.rank(rows) for rows in found]
        costs = [self.pricing.cost(self.scope.trial.residents.at(rows)) for rows in found]
        first, *others = (at for at, rank in enumerate(ranks) if rank == min(ranks))
        best = min(others, key=costs.__getitem__, default=first)
        at = best if _is_much_less(costs[best], costs[first]) else first
        return [found[at], *(rows for other, rows in enumerate(found) if other != at)]


#: Of a set without victims.
_NO_RANK: Final = VictimRank(is_core=False, is_in_share=False, priority=0)


def _is_much_less(one: Cost, other: Cost) -> bool:
    """Whether a set has no higher priority and costs less than four fifths of the other."""
    return one.priority <= other.priority and 5 * one.loss < 4 * other.loss


ACTIONS: Final = (Action.RECLAIM, Action.PREEMPT)
#: Before more units than that are tried all are, since where even they are no help each step would cost as much.
_MANY: Final = 64
#: If classes are in each other's way, room is made for this many more pods of each.
_MORE: Final = (1, 2, 4)
#: The most pods that a search places, one set of victims after the other; then the answer is that nothing was found.
#: What is counted costs one or two placements of the need, so this is for needs of many classes or with a choice.
MOST_PLACED: Final = 16_384
#: Each one and each two of this number of units, of the lowest priority and loss, are tried alone; the cost to see
#: whether two may go.
_SMALL: Final = 12
_SMALL_COST: Final = 5
#: To place a need whose pods have to be in one domain costs as much as this many pods more.
_IN_PLACES: Final = 10
#: In operations: what it costs to place a pod, and to find out who may be taken, for each unit.
_PLACING: Final = 30
_CANDIDATES_COST: Final = 1
#: Sets of units.
_Rows: TypeAlias = Sequence[Sequence[int]]


def find_victims(need: Need, trial: Trial, actions: Sequence[Action] = ACTIONS) -> Found | NoVictims:
    """Find the pods that have to go so that a need fits: by the first of these actions for which that is found.

    ``Found`` without units: it fits once pods are gone that are terminating (``Trial.leaving``), or as it is. Of
    several equal needs (``Need.others``) as many are served as rules and bounds allow, the first ones; ``Found.places``
    says which. An answer that is no is the first one's.
    """
    return ended(finding_victims(need, trial, actions))


def finding_victims(need: Need, trial: Trial, actions: Sequence[Action] = ACTIONS) -> Steps[Found | NoVictims]:
    """Find them likewise in steps; statement and accounts are left as they were also where it is given up."""
    statement, accounts = trial.statement.checkpoint(), trial.accounts.checkpoint()
    try:
        return (yield from _find(need, trial, actions))
    finally:
        trial.statement.rollback(statement)
        trial.accounts.rollback(accounts)


def _find(need: Need, trial: Trial, actions: Sequence[Action]) -> Steps[Found | NoVictims]:
    leaf = trial.accounts.tree.leaf(need.queue)
    if isinstance(leaf, Verdict):
        return NoVictims(bound=Bound.QUEUE, queue_code=leaf.code)
    leave_on_paper(trial)
    several = SearchScope(need, trial, leaf, candidates.least(need, trial))
    searching = _Searching(several.of_first(1))
    found = yield from _found(searching, several, actions)
    if isinstance(found, NoVictims):
        return msgspec.structs.replace(found, placed=searching.placed, taken_off=searching.taken_off)
    return found


def _found(searching: _Searching, several: SearchScope, actions: Sequence[Action]) -> Steps[Found | NoVictims]:
    need, trial = searching.scope.need, searching.scope.trial
    if candidates.reach(trial, searching.scope.wanted):
        places = searching.places_without(())
        yield searching.placing
        if places is not None:
            return Found(action=actions[0], units=(), places=places)
    if not need.may_evict:
        return NoVictims(bound=Bound.NEVER)
    delayed_s = protection.delayed_until_s(need, trial.evicted.get(need.owner), trial.wall_s)
    if delayed_s:
        return NoVictims(bound=Bound.DELAY, until_s=delayed_s)
    if need.paused_until_s:
        return NoVictims(bound=Bound.CLAIMS, until_s=need.paused_until_s)
    trial.residents.refresh(trial)
    refused: list[NoVictims] = []
    for action in actions:
        allowed = searching.scope.allowed(action)
        yield searching.candidates_cost
        found = allowed if isinstance(allowed, NoVictims) else (yield from _by(action, allowed, searching, several))
        if isinstance(found, Found):
            return found
        refused.append(found)
    return NoVictims(bound=Bound.GIVEN_UP, until_s=need.own_until_s) if need.own_until_s else joined(refused)


def _by(action: Action, allowed: Allowed, searching: _Searching, several: SearchScope) -> Steps[Found | NoVictims]:
    """By one action, for as many of several equal needs as bounds allow, else for the first."""
    largest = several.largest(action)
    yield searching.candidates_cost
    found = None if largest is None else (yield from _Searching(largest[0]).counted(largest[1]))
    return found or (yield from searching.among(allowed))


class _TooLong(Exception):
    """More was tried than one search may."""


@dataclass(slots=True)
class _Searching:
    """One need's search."""

    scope: SearchScope
    #: Pods that were placed to try sets, and pods of these that were taken off.
    placed: int = 0
    taken_off: int = 0
    pricing: Pricing = field(init=False)

    def __post_init__(self) -> None:
        self.pricing = Pricing(self.scope.trial.accounts.total, self.scope.trial.wall_s)

    # --- one action ----------------------------------------------------------------------------------------------
    def among(self, allowed: Allowed) -> Steps[Found | NoVictims]:
        """Find victims among those who may be taken."""
        sets = self._sets(allowed)
        yield self.candidates_cost
        found = yield from self._first_that_fits(self._all(sets, allowed), sets.rules)
        return found or no_victims(allowed.candidates, None)

    def counted(self, allowed: Allowed) -> Steps[Found | None]:
        """The same by counting alone; None if that finds nothing."""
        sets = self._sets(allowed)
        yield self.candidates_cost
        return (yield from self._first_that_fits([sets.counted()], sets.rules))

    def _sets(self, allowed: Allowed) -> Sets:
        table, scope = self.scope.trial.residents, self.scope
        able = in_queue(table, allowed.candidates.able)
        sequence = by_budgets(table, permitted(table, able, allowed.rules), scope.budgets, allowed.rules)
        return Sets(scope, self.pricing, allowed.rules, sequence, able)

    def _past_budgets(self, units: Sequence[Resident], rules: Rules) -> frozenset[str]:
        """Pods of units for which budgets don't count, with what goes before each."""
        if self.scope.budgets.forbid_nothing:
            return frozenset()
        lost, found = dict[int, Resources](), set[str]()
        for unit in units:
            if rules.outgrows_budgets(unit, lost):
                found.update(unit.uids)
            rules.take(unit, lost)
        return frozenset(found)

    def _first_that_fits(self, searches: Iterable[Steps[_Rows]], rules: Rules) -> Steps[Found | None]:
        try:
            for search in searches:
                for rows in (yield from search):
                    units = self._units(rows)
                    places = self.places_without(units, rules)
                    yield self.placing
                    if places is not None:
                        return Found(
                            action=rules.action,
                            units=tuple(each.unit for each in units),
                            places=places,
                            past_budgets=self._past_budgets(units, rules),
                        )
        except _TooLong:
            pass
        return None

    def _units(self, rows: Sequence[int]) -> list[Resident]:
        return self.scope.trial.residents.at(rows)

    def _all(self, sets: Sets, allowed: Allowed) -> Iterator[Steps[_Rows]]:
        """Sets that may be enough: those that were counted, then those that the placer was asked for one by one."""
        table, rules = self.scope.trial.residents, sets.rules
        yield sets.counted()
        yield self._asked_for(sets, allowed)
        for largest_first in (False, True):
            sizes = by_size(table, allowed.candidates.able, rules, largest_first=largest_first)
            yield self._tried(by_budgets(table, sizes, self.scope.budgets, rules), rules)
        yield self._small(sets)

    def _small(self, sets: Sets) -> Steps[_Rows]:
        """One unit or two, the lowest rank and cost first: in a sequence units of other queues may come before them."""
        table, found = self.scope.trial.residents, dict[frozenset[int], tuple[int, ...]]()
        permits = Permits(table, sets.rules, self.scope.budgets)
        few = nsmallest(_SMALL, sets.able.tolist(), key=self._dear)
        yield len(sets.able)
        for some in (*combinations(few, 1), *combinations(few, 2)):
            orders = [
                tuple(dict.fromkeys(row for each in order for row in (*table.surplus_of(each), each)))
                for order in permutations(some)
            ]
            if frozenset(orders[0]) in found or not sets.may_be_enough(np.array(orders[0], np.int64)):
                continue
            permitted_order = next((rows for rows in orders if permits.go(rows) is not None), None)
            if permitted_order is not None:
                found[frozenset(permitted_order)] = permitted_order
        yield _SMALL_COST * len(few) ** 2
        return sorted(found.values(), key=lambda rows: (sets.rank(rows), self.pricing.cost(self._units(rows))))

    def _asked_for(self, sets: Sets, allowed: Allowed) -> Steps[_Rows]:
        """What the placer says is enough: out of the sequence; where few go, also of those who cost least."""
        first = (yield from self._with_more(sets)) or (yield from self._tried(sets.sequence, sets.rules))
        if not first:
            return []
        (found,) = first
        if sum(len(unit.pods) for unit in self._units(found)) > FEW or 2 * self.placed > MOST_PLACED:
            return [found]
        cheap = by_cost(self.scope.trial.residents, allowed.candidates.able, sets.rules, self.pricing)
        cheap = by_budgets(self.scope.trial.residents, cheap, self.scope.budgets, sets.rules)
        return sets.best_first([found, *(yield from self._tried(cheap, sets.rules))])

    def _with_more(self, sets: Sets) -> Steps[_Rows]:
        """With room for some more pods of each class, since they are in each other's way. One set at most."""
        for more in _MORE if len(sets.wanted) > 1 else ():
            for rows in (yield from sets.chosen(sets.sequence, more)):
                if (yield from self._fits(rows)):
                    return [(yield from self._given_back(rows, sets.rules))]
        return []

    # --- trying ----------------------------------------------------------------------------------------------------
    def places_without(self, units: Sequence[Resident], rules: Rules | None = None) -> tuple[Place, ...] | None:
        """Where the need goes if these units are off; None if it does not fit, or if the rules forbid them.

        The rules are judged with what the need really uses there.
        """
        trial = self.scope.trial
        if self.placed > MOST_PLACED:
            raise _TooLong
        self.placed += self.scope.wanted.count + (_IN_PLACES if self.scope.need.has_places else 0)
        self.taken_off += sum(len(unit.pods) for unit in units)
        statement, accounts = trial.statement.checkpoint(), trial.accounts.checkpoint()
        evict_on_paper(trial, units)
        release_on_paper(trial, units)
        before = trial.accounts.checkpoint()
        places = trial.paper.place(self.scope.need)
        claim = trial.accounts.charged_since(before)
        trial.statement.rollback(statement)
        trial.accounts.rollback(accounts)
        if places is None or rules is None:
            return places
        judging = self.scope.rules(rules.action, claim) if claim != rules.claim.amounts else rules
        lost = judging.permit(units)
        return places if lost is not None and judging.is_entitled() and judging.holds(lost) else None

    def _tried(self, sequence: Int64s, rules: Rules) -> Steps[_Rows]:
        """Take units one after the other until the placer places the need, and give back who is not needed."""
        rows = sequence.tolist()
        enough = yield from self._shortest(rows)
        return [] if enough is None else [(yield from self._given_back(rows[:enough], rules))]

    @property
    def candidates_cost(self) -> int:
        """What it costs to find out who may be taken, in operations."""
        return _CANDIDATES_COST * len(self.scope.trial.residents.residents)

    @property
    def placing(self) -> int:
        """What it costs to place the need once, in operations."""
        return _PLACING * (self.scope.wanted.count + (_IN_PLACES if self.scope.need.has_places else 0))

    def _fits(self, rows: Sequence[int]) -> Steps[bool]:
        fits = self.places_without(self._units(rows)) is not None
        yield self.placing
        return fits

    def _shortest(self, rows: Sequence[int]) -> Steps[int | None]:
        """How many of the first are enough; None if all of them are not."""
        most = 1
        while most < len(rows) and not (yield from self._fits(rows[:most])):
            most *= 2
            if most == _MANY and not (yield from self._fits(rows)):
                return None
        most = min(most, len(rows))
        if not most or not (yield from self._fits(rows[:most])):
            return None
        least = most // 2
        while most - least > 1:
            middle = (most + least) // 2
            if (yield from self._fits(rows[:middle])):
                most = middle
            else:
                least = middle
        return most

    def _given_back(self, rows: Sequence[int], rules: Rules) -> Steps[Sequence[int]]:
        """Leave out units that are not needed, the dearest first, as long as the others may be taken.

        Surplus stays as long as its core goes; so once a core was given back, all are looked at again.
        """
        left, again, table = list(rows), True, self.scope.trial.residents
        while again:
            again = False
            for row in sorted(left, key=self._dear, reverse=True):
                others = [other for other in left if other != row]
                if int(table.units.of["core"][row]) in others:
                    continue
                if rules.permit(self._units(others)) is not None and (yield from self._fits(others)):
                    left, again = others, again or bool(table.surplus_of(row))
        return left

    def _dear(self, row: int) -> tuple[int, int]:
        (unit,) = self._units([row])
        return unit.priority, self.pricing.loss(unit)
