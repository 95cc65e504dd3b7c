"""Which pods go for a need, or why none do (docs/design/preemption.md).

The final word is the placer's: a set is enough if the need is placed on the statement with its units off, as a decision
would place it. Statement and accounts are left as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from scheduler.core.model.preemption import Action, Bound, Found, NoRoom, Place
from scheduler.core.model.quota import Resources
from scheduler.core.model.steps import Steps, ended
from scheduler.core.model.verdict import Verdict
from scheduler.core.nodes.table import Int64s
from scheduler.core.preemption import bounds, protection
from scheduler.core.preemption.candidates import (
    Allowed,
    Ground,
    by_budgets,
    by_cost,
    by_size,
    in_queue,
    joined,
    no_room,
    permitted,
)
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.reclaim import Rules
from scheduler.core.preemption.trial import Trial, evict_on_paper, leave_on_paper, release_on_paper
from scheduler.core.preemption.victim_units import Pricing, Resident
from scheduler.core.preemption.victims import FEW, Sets

ACTIONS: Final = (Action.RECLAIM, Action.PREEMPT)
#: Before more units than that are tried all are, since where even they are no help each step would cost as much.
_MANY: Final = 64
#: If classes are in each other's way, room is made for this many more pods of each.
_MORE: Final = (1, 2, 4)
#: The most pods that a search places, one set of victims after the other; then the answer is that nothing was found.
#: What is counted costs one or two placements of the need, so this is for needs of many classes or with a choice.
MOST_PLACED: Final = 16_384
#: To place a need whose pods have to be in one domain costs as much as this many pods more.
_IN_PLACES: Final = 10
#: In operations: what it costs to place a pod, and to find out who may be taken, for each unit.
_PLACING: Final = 30
_SIFTING: Final = 1
#: Sets of units.
_Rows: TypeAlias = Sequence[Sequence[int]]


def find_room(need: Need, trial: Trial, actions: Sequence[Action] = ACTIONS) -> Found | NoRoom:
    """Find the pods that have to go so that a need fits: by the first of these actions for which that is found.

    ``Found`` without units: it fits once pods are gone that are terminating (``Trial.leaving``), or as it is. Of
    several equal needs (``Need.others``) as many are served as rules and bounds allow, the first ones; ``Found.places``
    says which. An answer that is no is the first one's.
    """
    return ended(finding_room(need, trial, actions))


def finding_room(need: Need, trial: Trial, actions: Sequence[Action] = ACTIONS) -> Steps[Found | NoRoom]:
    """Find them likewise in steps; statement and accounts are left as they were also where it is given up."""
    statement, accounts = trial.statement.checkpoint(), trial.accounts.checkpoint()
    try:
        return (yield from _find(need, trial, actions))
    finally:
        trial.statement.rollback(statement)
        trial.accounts.rollback(accounts)


def _find(need: Need, trial: Trial, actions: Sequence[Action]) -> Steps[Found | NoRoom]:
    leaf = trial.accounts.tree.leaf(need.queue)
    if isinstance(leaf, Verdict):
        return NoRoom(bound=Bound.QUEUE, queue_code=leaf.code)
    leave_on_paper(trial)
    several = Ground(need, trial, leaf, bounds.least(need, trial))
    searching = _Searching(several.of_first(1))
    found = yield from _found(searching, several, actions)
    if isinstance(found, NoRoom):
        return msgspec.structs.replace(found, placed=searching.placed, taken_off=searching.taken_off)
    return found


def _found(searching: _Searching, several: Ground, actions: Sequence[Action]) -> Steps[Found | NoRoom]:
    need, trial = searching.ground.need, searching.ground.trial
    if bounds.reach(trial, searching.ground.wanted):
        places = searching.places_without(())
        yield searching.placing
        if places is not None:
            return Found(action=actions[0], units=(), places=places)
    delayed_s = protection.delayed_until_s(need, trial.evicted.get(need.owner), trial.wall_s)
    if delayed_s:
        return NoRoom(bound=Bound.DELAY, until_s=delayed_s)
    if need.paused_until_s:
        return NoRoom(bound=Bound.CLAIMS, until_s=need.paused_until_s)
    trial.residents.refresh(trial)
    refused: list[NoRoom] = []
    for action in actions:
        allowed = searching.ground.allowed(action)
        yield searching.sifting
        found = allowed if isinstance(allowed, NoRoom) else (yield from _by(action, allowed, searching, several))
        if isinstance(found, Found):
            return found
        refused.append(found)
    return NoRoom(bound=Bound.GIVEN_UP, until_s=need.own_until_s) if need.own_until_s else joined(refused)


def _by(action: Action, allowed: Allowed, searching: _Searching, several: Ground) -> Steps[Found | NoRoom]:
    """By one action, for as many of several equal needs as bounds allow, else for the first."""
    largest = several.largest(action)
    yield searching.sifting
    found = None if largest is None else (yield from _Searching(largest[0]).counted(largest[1]))
    return found or (yield from searching.among(allowed))


class _TooLong(Exception):
    """More was tried than one search may."""


@dataclass(slots=True)
class _Searching:
    """One need's search."""

    ground: Ground
    #: Pods that were placed to try sets, and pods of these that were taken off.
    placed: int = 0
    taken_off: int = 0
    pricing: Pricing = field(init=False)

    def __post_init__(self) -> None:
        self.pricing = Pricing(self.ground.trial.accounts.total, self.ground.trial.wall_s)

    # --- one action ----------------------------------------------------------------------------------------------
    def among(self, allowed: Allowed) -> Steps[Found | NoRoom]:
        """Find victims among those who may be taken."""
        sets = self._sets(allowed)
        yield self.sifting
        found = yield from self._first_that_fits(self._all(sets, allowed), sets.rules)
        return found or no_room(allowed.sifted, None)

    def counted(self, allowed: Allowed) -> Steps[Found | None]:
        """The same by counting alone; None if that finds nothing."""
        sets = self._sets(allowed)
        yield self.sifting
        return (yield from self._first_that_fits([sets.counted()], sets.rules))

    def _sets(self, allowed: Allowed) -> Sets:
        table, ground = self.ground.trial.residents, self.ground
        able = in_queue(table, allowed.sifted.able)
        sequence = by_budgets(table, permitted(table, able, allowed.rules), ground.budgets, allowed.rules)
        return Sets(ground, self.pricing, allowed.rules, sequence, able)

    def _past_budgets(self, units: Sequence[Resident], rules: Rules) -> frozenset[str]:
        """Pods of units for which budgets don't count, with what goes before each."""
        if self.ground.budgets.forbid_nothing:
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
        return self.ground.trial.residents.at(rows)

    def _all(self, sets: Sets, allowed: Allowed) -> Iterator[Steps[_Rows]]:
        """Sets that may be enough: those that were counted, then those that the placer was asked for one by one."""
        table, rules = self.ground.trial.residents, sets.rules
        yield sets.counted()
        yield self._asked_for(sets, allowed)
        for largest_first in (False, True):
            sizes = by_size(table, allowed.sifted.able, rules, largest_first=largest_first)
            yield self._tried(by_budgets(table, sizes, self.ground.budgets, rules), rules)

    def _asked_for(self, sets: Sets, allowed: Allowed) -> Steps[_Rows]:
        """What the placer says is enough: out of the sequence; where few go, also of those who cost least."""
        first = (yield from self._with_more(sets)) or (yield from self._tried(sets.sequence, sets.rules))
        if not first:
            return []
        (found,) = first
        if sum(len(unit.pods) for unit in self._units(found)) > FEW or 2 * self.placed > MOST_PLACED:
            return [found]
        cheap = by_cost(self.ground.trial.residents, allowed.sifted.able, sets.rules, self.pricing)
        cheap = by_budgets(self.ground.trial.residents, cheap, self.ground.budgets, sets.rules)
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
        trial = self.ground.trial
        if self.placed > MOST_PLACED:
            raise _TooLong
        self.placed += self.ground.wanted.count + (_IN_PLACES if self.ground.need.has_places else 0)
        self.taken_off += sum(len(unit.pods) for unit in units)
        statement, accounts = trial.statement.checkpoint(), trial.accounts.checkpoint()
        evict_on_paper(trial, units)
        release_on_paper(trial, units)
        before = trial.accounts.checkpoint()
        places = trial.paper.place(self.ground.need)
        claim = trial.accounts.charged_since(before)
        trial.statement.rollback(statement)
        trial.accounts.rollback(accounts)
        if places is None or rules is None:
            return places
        judging = self.ground.rules(rules.action, claim) if claim != rules.claim.amounts else rules
        lost = judging.permit(units)
        return places if lost is not None and judging.is_entitled() and judging.holds(lost) else None

    def _tried(self, sequence: Int64s, rules: Rules) -> Steps[_Rows]:
        """Take units one after the other until the placer places the need, and give back who is not needed."""
        rows = sequence.tolist()
        enough = yield from self._shortest(rows)
        return [] if enough is None else [(yield from self._given_back(rows[:enough], rules))]

    @property
    def sifting(self) -> int:
        """What it costs to find out who may be taken, in operations."""
        return _SIFTING * len(self.ground.trial.residents.residents)

    @property
    def placing(self) -> int:
        """What it costs to place the need once, in operations."""
        return _PLACING * (self.ground.wanted.count + (_IN_PLACES if self.ground.need.has_places else 0))

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
        left, again, table = list(rows), True, self.ground.trial.residents
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
