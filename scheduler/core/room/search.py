"""Which pods go for a need, or why none do (batch.md 5.5).

The final word is the placer's: a set is enough if the need is placed on the statement with its units off, as a decision
would place it. Statement and accounts are left as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec
import numpy as np

from scheduler.core.model.resources import Resources
from scheduler.core.model.room import Action, Bound, Found, Kept, KeptPods, NoRoom, Place
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.nodes.table import Bools, Int64s
from scheduler.core.queues.accounts import Use
from scheduler.core.queues.tree import TreeQueue
from scheduler.core.room import bounds, going, joint, protection
from scheduler.core.room.budgets import Budgets
from scheduler.core.room.cost import Cost, Pricing
from scheduler.core.room.counting import Counting
from scheduler.core.room.joint import Wanted
from scheduler.core.room.limits import Limits
from scheduler.core.room.need import Need
from scheduler.core.room.pools import by_budgets, by_size, of_low_priority
from scheduler.core.room.rules import Rules
from scheduler.core.room.sequence import in_queue, permitted
from scheduler.core.room.sifting import Sieve, Sifted
from scheduler.core.room.tenants import Tenants, tenants
from scheduler.core.room.trial import Trial
from scheduler.core.room.units import Resident

ACTIONS: Final = (Action.RECLAIM, Action.PREEMPT)
#: Before more units than that are tried all are, since where even they are no help each step would cost as much.
_MANY: Final = 64
#: For so many pods more of each class room is made if classes are in each other's way.
_MORE: Final = (1, 2, 4)
#: Where no more pods than that go, each unit is judged by itself as well.
_FEW: Final = 16
#: So many pods a search places at most, one set of victims after the other; then the answer is that nothing was found.
#: What is counted costs one or two placements of the need, so this is for needs of many classes or with a choice.
MOST_PLACED: Final = 16_384
#: How far a search came before it was answered no.
_FARTHEST: Final = (Bound.DELAY, Bound.QUEUE, Bound.CANDIDATES, Bound.NODES, None)


def find_room(need: Need, trial: Trial, actions: Sequence[Action] = ACTIONS) -> Found | NoRoom:
    """Find who has to go so that a need fits: by the first of these actions for which that is found.

    ``Found`` without units: it fits once pods are gone that are terminating (``Trial.leaving``), or as it is.
    """
    statement, accounts = trial.statement.checkpoint(), trial.accounts.checkpoint()
    try:
        return _find(need, trial, actions)
    finally:
        trial.statement.rollback(statement)
        trial.accounts.rollback(accounts)


def _find(need: Need, trial: Trial, actions: Sequence[Action]) -> Found | NoRoom:
    leaf = trial.accounts.tree.leaf(need.queue)
    if isinstance(leaf, Verdict):
        return NoRoom(bound=Bound.QUEUE, queue_code=leaf.code)
    going.leave(trial)
    searching = _Searching(need, trial, leaf, bounds.least(need, trial))
    found = _found(searching, actions)
    return msgspec.structs.replace(found, placed=searching.placed) if isinstance(found, NoRoom) else found


def _found(searching: _Searching, actions: Sequence[Action]) -> Found | NoRoom:
    need, trial = searching.need, searching.trial
    if bounds.reach(trial, searching.wanted):
        places = searching.places_without(())
        if places is not None:
            return Found(action=actions[0], units=(), places=places)
    delayed_s = protection.delayed_until_s(need, trial.evicted.get(need.owner), trial.wall_s)
    if delayed_s:
        return NoRoom(bound=Bound.DELAY, until_s=delayed_s)
    trial.residents.refresh(trial)
    refused: list[NoRoom] = []
    for action in actions:
        found = searching.by(action)
        if isinstance(found, Found):
            return found
        refused.append(found)
    return _joined(refused)


class _TooLong(Exception):
    """More was tried than one search may."""


@dataclass(slots=True)
class _Searching:
    """One need's search. ``wanted``: the least that it takes."""

    need: Need
    trial: Trial
    leaf: TreeQueue
    wanted: bounds.Least
    #: Pods that were placed to try sets.
    placed: int = 0
    budgets: Budgets = field(init=False)
    pricing: Pricing = field(init=False)
    _tenants: Tenants | None = None
    #: Whether nodes would hold it if all were gone that may be preempted at all; None: not counted yet.
    _nodes_reach: bool | None = None

    def __post_init__(self) -> None:
        trial = self.trial
        self.budgets = trial.counted
        taken = map(trial.pods.records.get, trial.taken) if trial.budgets else ()
        self.budgets.spend(pod for pod in taken if pod is not None and not pod.deleting)
        self.pricing = Pricing(trial.accounts.total, trial.wall_s)

    @property
    def tenants(self) -> Tenants:
        """Shared devices, read when they are first asked for."""
        if self._tenants is None:
            self._tenants = tenants(self.trial, self.trial.residents)
        return self._tenants

    # --- one action ----------------------------------------------------------------------------------------------
    def by(self, action: Action) -> Found | NoRoom:
        """Find victims by the rules of one action."""
        rules = self._rules(action, self.wanted.claim)
        if not rules.is_entitled():
            return NoRoom(bound=Bound.QUEUE)
        sifted = Sieve(self.trial, rules, self.budgets, self.trial.residents).sift()
        refused = self._bounded(sifted)
        if refused is not None:
            return refused
        able = in_queue(self.trial.residents, sifted.able)
        sequence = by_budgets(self.trial.residents, permitted(self.trial.residents, able, rules), self.budgets)
        try:
            for rows in self._sets(sequence, able, sifted, rules):
                units = self._units(rows)
                places = self.places_without(units, rules)
                if places is not None:
                    return Found(action=rules.action, units=tuple(each.unit for each in units), places=places)
        except _TooLong:
            pass
        return _no_room(sifted, None)

    def _rules(self, action: Action, claim: Resources) -> Rules:
        use = Use(self.need.queue, claim, self.need.is_fixed)
        return Rules(action, self.trial.accounts, self.leaf, use, self.need.priority, self.trial.settings)

    def _bounded(self, sifted: Sifted) -> NoRoom | None:
        """What proves that no evictions that are permitted help."""
        verdict = self._refusal_without(sifted)
        if verdict is not None:
            return _no_room(sifted, Bound.QUEUE, verdict.code)
        if self._nodes_reach is not False and self._reaches_without(sifted.able):
            return None
        if self._nodes_reach is None:
            self._nodes_reach = self._reaches_without(self.trial.residents.is_filled())
        return _no_room(sifted, Bound.CANDIDATES if self._nodes_reach else Bound.NODES)

    def _reaches_without(self, gone: Bools) -> bool:
        return bounds.reaches_without(self.trial, self.wanted, gone, self.tenants)

    def _refusal_without(self, sifted: Sifted) -> Verdict | None:
        """What the taker's queue says if all that may be taken were gone."""
        trial, of = self.trial, self.trial.residents.units.of
        claim = Use(self.need.queue, self.wanted.claim, self.need.is_fixed)
        if trial.accounts.refusal(claim) is None:
            return None
        mark, leaves = trial.accounts.checkpoint(), of["leaf"]
        for number in np.unique(leaves[sifted.able]).tolist():
            mine = sifted.able & (leaves == number)
            amounts = Resources(*(int(of[name][mine].sum()) for name in ("cpu", "mem", "gpu")))
            trial.accounts.release(Use(trial.accounts.tree.queues[number].name, amounts))
        verdict = trial.accounts.refusal(claim)
        trial.accounts.rollback(mark)
        return verdict

    def _units(self, rows: Sequence[int]) -> list[Resident]:
        found = (self.trial.residents.residents[row] for row in rows)
        return [unit for unit in found if unit is not None]

    # --- sets of victims, the best first -----------------------------------------------------------------------------
    def _sets(self, sequence: Int64s, able: Int64s, sifted: Sifted, rules: Rules) -> Iterator[Sequence[int]]:
        """Sets that may be enough: those that were counted, then those that the placer was asked for one by one."""
        wanted = self._countings()
        if wanted:
            found = self._in_turn(wanted, sequence)
            if not found or sum(len(unit.pods) for unit in self._units(found[0])) <= _FEW:
                found += self._out_of_turn(wanted, able, rules)
            yield from self._best_first(found)
            yield from self._with_more(wanted, sequence, rules)
        yield from self._tried(sequence, rules)
        for largest_first in (False, True):
            sizes = by_size(self.trial.residents, sifted.able, rules, largest_first=largest_first)
            yield from self._tried(by_budgets(self.trial.residents, sizes, self.budgets), rules)

    def _countings(self) -> list[Wanted]:
        """How to count for this need; none where that says too little: of classes that may be placed in several ways.

        Nor where it is not clear how many pods of each class are placed.
        """
        pods = self.wanted.pods
        if sum(pods.values()) != self.wanted.count or any(len(cls.ways()) > 1 for cls in pods):
            return []
        trial, devices = self.trial, self.tenants
        return [Wanted(Counting(trial, trial.residents, cls.ways()[0], devices), count) for cls, count in pods.items()]

    def _in_turn(self, wanted: Sequence[Wanted], sequence: Int64s) -> list[list[int]]:
        """Node by node: out of the shortest part of the sequence that is enough, and out of a larger one."""
        limited = self._limits().prefix(self._units(sequence.tolist()))
        prefix = _prefix(wanted, sequence)
        if prefix is None or limited is None:
            return []
        prefix = max(prefix, limited)
        found = self._chosen(wanted, sequence[:prefix])
        pool = sequence
        if not limited:
            pool = of_low_priority(self.trial.residents, sequence, lambda rows: _prefix(wanted, rows) is not None)
        # Where they are nearly the same, one look is enough.
        return found + self._chosen(wanted, pool) if 4 * prefix < 3 * len(pool) else found

    def _out_of_turn(self, wanted: Sequence[Wanted], able: Int64s, rules: Rules) -> list[list[int]]:
        """Node by node, each unit judged when it is looked at: it need not go where the order would have it."""
        allows = partial(self._allows, rules=rules)
        found = joint.choose(wanted, able, self.pricing, limits=self._limits(), allows=allows)
        return [] if found is None else [found]

    def _with_more(self, wanted: Sequence[Wanted], sequence: Int64s, rules: Rules) -> Iterator[Sequence[int]]:
        """With room for some more pods of each class, since they are in each other's way."""
        for more in _MORE if len(wanted) > 1 else ():
            for rows in self._chosen(wanted, sequence, more):
                if self._fits(rows):
                    yield self._given_back(rows, rules)
                    return

    def _limits(self) -> Limits:
        return Limits(self.trial.accounts, self.leaf, self.wanted.claim)

    def _chosen(self, wanted: Sequence[Wanted], pool: Int64s, more: int = 0) -> list[list[int]]:
        """What is chosen out of a pool, in its order; nothing if the pool is not enough."""
        found = joint.choose(wanted, pool, self.pricing, limits=self._limits(), more=more)
        place = {row: at for at, row in enumerate(pool.tolist())}
        return [] if found is None else [sorted(found, key=place.__getitem__)]

    def _best_first(self, found: Sequence[list[int]]) -> Sequence[list[int]]:
        """What is nearer to KAI's order goes first, unless another one costs less than four fifths of it."""
        if len(found) < 2:
            return found
        costs = [self.pricing.cost(self._units(rows)) for rows in found]
        best = min(range(1, len(found)), key=costs.__getitem__)
        at = best if _is_much_less(costs[best], costs[0]) else 0
        return [found[at], *(rows for other, rows in enumerate(found) if other != at)]

    def _allows(self, rows: Sequence[int], rules: Rules) -> bool:
        units = self._units(rows)
        if rules.permit(units) is None:
            return False
        return self.budgets.forbid_nothing or self.budgets.takes(pod for unit in units for pod in unit.pods) is not None

    # --- trying ----------------------------------------------------------------------------------------------------
    def places_without(self, units: Sequence[Resident], rules: Rules | None = None) -> tuple[Place, ...] | None:
        """Where the need goes if these units are off; None if it does not fit, or if the rules forbid them.

        The rules are judged with what the need really uses there.
        """
        trial = self.trial
        if self.placed > MOST_PLACED:
            raise _TooLong
        self.placed += self.wanted.count
        statement, accounts = trial.statement.checkpoint(), trial.accounts.checkpoint()
        going.evict(trial, units)
        going.release(trial, units)
        before = trial.accounts.checkpoint()
        places = trial.paper.place(self.need)
        claim = trial.accounts.charged_since(before)
        trial.statement.rollback(statement)
        trial.accounts.rollback(accounts)
        if places is None or rules is None:
            return places
        judging = self._rules(rules.action, claim) if claim != rules.claim.amounts else rules
        lost = judging.permit(units)
        return places if lost is not None and judging.is_entitled() and judging.holds(lost) else None

    def _tried(self, sequence: Int64s, rules: Rules) -> Iterator[Sequence[int]]:
        """Take units one after the other until the placer places the need, and give back who is not needed."""
        rows = sequence.tolist()
        enough = self._shortest(rows)
        if enough is not None:
            yield self._given_back(rows[:enough], rules)

    def _fits(self, rows: Sequence[int]) -> bool:
        return self.places_without(self._units(rows)) is not None

    def _shortest(self, rows: Sequence[int]) -> int | None:
        """How many of the first are enough; None if all of them are not."""
        most = 1
        while most < len(rows) and not self._fits(rows[:most]):
            most *= 2
            if most == _MANY and not self._fits(rows):
                return None
        most = min(most, len(rows))
        if not most or not self._fits(rows[:most]):
            return None
        least = most // 2
        while most - least > 1:
            middle = (most + least) // 2
            if self._fits(rows[:middle]):
                most = middle
            else:
                least = middle
        return most

    def _given_back(self, rows: Sequence[int], rules: Rules) -> Sequence[int]:
        """Leave out units that are not needed, the dearest first, as long as the others may be taken.

        Surplus stays as long as its core goes; so once a core was given back, all are looked at again.
        """
        left, again, table = list(rows), True, self.trial.residents
        while again:
            again = False
            for row in sorted(left, key=self._dear, reverse=True):
                others = [other for other in left if other != row]
                if int(table.units.of["core"][row]) in others:
                    continue
                if rules.permit(self._units(others)) is not None and self._fits(others):
                    left, again = others, again or bool(table.surplus_of(row))
        return left

    def _dear(self, row: int) -> tuple[int, int]:
        (unit,) = self._units([row])
        return unit.unit.priority, self.pricing.loss(unit)


def _prefix(wanted: Sequence[Wanted], sequence: Int64s) -> int | None:
    """How many of the first units are enough for each class by itself; None if all of them are not."""
    found = [each.counting.prefix(sequence, each.pods) for each in wanted]
    return None if None in found else max(each for each in found if each is not None)


def _is_much_less(one: Cost, other: Cost) -> bool:
    """Whether a set has no higher priority and costs less than four fifths of the other."""
    return one.priority <= other.priority and 5 * one.loss < 4 * other.loss


def _no_room(sifted: Sifted, bound: Bound | None, code: Code | None = None) -> NoRoom:
    kept = tuple(sifted.kept[why] for why in Kept if why in sifted.kept)
    times = [each.until_s for each in kept if each.until_s]
    return NoRoom(bound=bound, queue_code=code, kept=kept, until_s=min(times, default=0))


def _joined(refused: Sequence[NoRoom]) -> NoRoom:
    """One answer for all actions: proven if each is."""
    kept: dict[Kept, list[KeptPods]] = {}
    for each in (each for answer in refused for each in answer.kept):
        kept.setdefault(each.why, []).append(each)
    times = [answer.until_s for answer in refused if answer.until_s]
    last = max(refused, key=lambda answer: _FARTHEST.index(answer.bound))
    return NoRoom(
        bound=last.bound,
        queue_code=last.queue_code,
        kept=tuple(_together(why, parts) for why, parts in kept.items()),
        until_s=min(times, default=0),
    )


def _together(why: Kept, parts: Sequence[KeptPods]) -> KeptPods:
    times = [part.until_s for part in parts if part.until_s]
    pods, nano = sum(part.pods for part in parts), sum(part.nano_gpu for part in parts)
    return KeptPods(why, pods, nano, min(times, default=0))
