"""Which pods go for a need, or why none do (batch.md 5.5).

The final word is the placer's: a set is enough if the need is placed on the statement with its units off, as a decision
would place it. Statement and accounts are left as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from scheduler.core.model.resources import Resources
from scheduler.core.model.room import Action, Bound, Found, Kept, KeptPods, NoRoom, Place
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.queues.accounts import Use
from scheduler.core.queues.tree import TreeQueue
from scheduler.core.room import bounds, going, protection
from scheduler.core.room.budgets import Budgets
from scheduler.core.room.cost import Pricing
from scheduler.core.room.need import Need
from scheduler.core.room.rules import Rules
from scheduler.core.room.sequence import by_queues, by_size, permitted
from scheduler.core.room.sifting import Sieve, Sifted
from scheduler.core.room.trial import Trial
from scheduler.core.room.units import Resident, Residents, residents

ACTIONS: Final = (Action.RECLAIM, Action.PREEMPT)
_Order = Callable[[Iterable[Resident]], Iterable[Resident]]


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
    searching = _Searching(need, trial, leaf, bounds.least(need, trial), residents(trial))
    places = searching.places_without(())
    if places is not None:
        return Found(action=actions[0], units=(), places=places)
    delayed_s = protection.delayed_until_s(need, trial.evicted.get(need.owner), trial.wall_s)
    if delayed_s:
        return NoRoom(bound=Bound.DELAY, until_s=delayed_s)
    refused: list[NoRoom] = []
    for action in actions:
        found = searching.by(action)
        if isinstance(found, Found):
            return found
        refused.append(found)
    return _joined(refused)


@dataclass(slots=True)
class _Searching:
    """One need's search. ``wanted``: the least that it takes."""

    need: Need
    trial: Trial
    leaf: TreeQueue
    wanted: bounds.Least
    residents: Residents
    budgets: Budgets = field(init=False)
    pricing: Pricing = field(init=False)

    def __post_init__(self) -> None:
        trial = self.trial
        self.budgets = Budgets(trial.budgets, trial.labels, trial.refused)
        self.pricing = Pricing(trial.accounts.total, trial.wall_s)

    # --- one action ----------------------------------------------------------------------------------------------
    def by(self, action: Action) -> Found | NoRoom:
        """Find victims by the rules of one action."""
        rules = self._rules(action, self.wanted.claim)
        if not rules.is_entitled():
            return NoRoom(bound=Bound.QUEUE)
        sifted = Sieve(self.trial, rules, self.budgets).sift(self.residents)
        refused = self._bounded(sifted)
        if refused is not None:
            return refused
        orders: tuple[_Order, ...] = (lambda units: by_queues(units, self.trial.accounts), by_size)
        for order in orders:
            found = self._in_order(rules, sifted, order)
            if found is not None:
                return found
        return _no_room(sifted, None)

    def _rules(self, action: Action, claim: Resources) -> Rules:
        use = Use(self.need.queue, claim, self.need.is_fixed)
        return Rules(action, self.trial.accounts, self.leaf, use, self.need.priority, self.trial.settings)

    def _bounded(self, sifted: Sifted) -> NoRoom | None:
        """What proves that no evictions that are permitted help."""
        trial, mark = self.trial, self.trial.accounts.checkpoint()
        going.release(trial, sifted.able)
        verdict = trial.accounts.refusal(Use(self.need.queue, self.wanted.claim, self.need.is_fixed))
        trial.accounts.rollback(mark)
        if verdict is not None:
            return _no_room(sifted, Bound.QUEUE, verdict.code)
        if bounds.reaches_without(trial, self.wanted, sifted.able):
            return None
        nodes = bounds.reaches_without(trial, self.wanted, self.residents.units)
        return _no_room(sifted, Bound.CANDIDATES if nodes else Bound.NODES)

    def _in_order(self, rules: Rules, sifted: Sifted, order: _Order) -> Found | None:
        """Take units one after the other until the need fits, and give back who is not needed."""
        mark = self.trial.accounts.checkpoint()
        sequence = list(permitted(order(sifted.able), rules, self.budgets))
        self.trial.accounts.rollback(mark)
        prefix = self._shortest(sequence)
        if prefix is None:
            return None
        units = self._give_back(sequence[:prefix], rules)
        places = self.places_without(units, rules)
        if places is None:
            return None
        return Found(action=rules.action, units=tuple(each.unit for each in units), places=places)

    # --- trying ----------------------------------------------------------------------------------------------------
    def places_without(self, units: Sequence[Resident], rules: Rules | None = None) -> tuple[Place, ...] | None:
        """Where the need goes if these units are off; None if it does not fit, or if the rules forbid them.

        The rules are judged with what the need really uses there.
        """
        trial = self.trial
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

    def _shortest(self, sequence: Sequence[Resident]) -> int | None:
        """How many of the first are enough; None if all of them are not."""
        most = 1
        while most < len(sequence) and self.places_without(sequence[:most]) is None:
            most *= 2
        most = min(most, len(sequence))
        if not most or self.places_without(sequence[:most]) is None:
            return None
        least = most // 2
        while most - least > 1:
            middle = (most + least) // 2
            if self.places_without(sequence[:middle]) is None:
                least = middle
            else:
                most = middle
        return most

    def _give_back(self, units: Sequence[Resident], rules: Rules) -> list[Resident]:
        """Leave out whoever is not needed, the dearest first, as long as the others may be taken.

        Surplus stays as long as its core goes; so once a core was given back, all are looked at again.
        """
        left, again = list(units), True
        while again:
            again = False
            for unit in sorted(left, key=self._dear, reverse=True):
                others = [other for other in left if other is not unit]
                if any(unit in other.chain for other in others):
                    continue
                if rules.permit(others) is not None and self.places_without(others) is not None:
                    left, again = others, again or bool(unit.chain)
        return left

    def _dear(self, unit: Resident) -> tuple[int, int, int]:
        return unit.unit.priority, self.pricing.loss(unit), len(unit.pods)


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


#: How far a search came before it was answered no.
_FARTHEST: Final = (Bound.DELAY, Bound.QUEUE, Bound.CANDIDATES, Bound.NODES, None)
