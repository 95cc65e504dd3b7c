"""Who may take from whom, by reclaim and by preempt (docs/design/preemption.md).

All in integers: ratios are compared by cross-multiplication. Reclaim takes from other queues that have more than they
are due, preempt from lower priorities of the same queue. Victims are judged one after the other in one order, each
once, after all that went before it; ``lost`` is what queues have lost so far by that. Their numbers are those of the
accounts before anybody is taken. Nor are they judged again where one of them stays after all: the others take less then
than they did with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from scheduler.core.model.preemption import Action, PreemptionSettings, Respect
from scheduler.core.model.quota import NOTHING, Resources
from scheduler.core.preemption.protection import Budgets, parting
from scheduler.core.preemption.victim_table import ResidentTable
from scheduler.core.preemption.victim_units import Resident
from scheduler.core.queues.accounts import Accounts, Use
from scheduler.core.queues.tree import TreeQueue

_GPUS: Final = Resources._fields.index("gpu_nano")
_NOTHING_LOST: Final[Mapping[int, Resources]] = {}


class VictimRank(NamedTuple):
    """Whose victims go later: cores after surplus, then queues within their share, then those of higher priority."""

    is_core: bool
    is_in_share: bool
    priority: int


@dataclass(slots=True)
class Rules:
    """Of one taker and one action. ``claim``: what its pods come to use; ``accounts`` are not changed meanwhile."""

    action: Action
    accounts: Accounts
    taker: TreeQueue
    claim: Use
    priority: int
    settings: PreemptionSettings
    kept: list[Resources] = field(init=False)
    #: By leaf: where taker and victim part; and whether the taker stays within its quotas there with the claim.
    _parting: dict[int, tuple[int, int]] = field(default_factory=dict)
    _within: dict[int, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kept = [account.kept for account in self.accounts.of]

    # --- the taker ---------------------------------------------------------------------------------------------------
    def is_entitled(self) -> bool:
        """Whether the taker's own queue stays within its fair share in every dimension, if it is to reclaim."""
        if self.action is Action.PREEMPT:
            return True
        account = self.accounts.of[self.taker.number]
        return _fits(account.kept.plus(self.claim.amounts), account.fair)

    def may_ask(self, victim: TreeQueue) -> bool:
        """Whether it is the right queue to take from, before anything of it is looked at."""
        return (victim.number == self.taker.number) is (self.action is Action.PREEMPT)

    # --- each victim -------------------------------------------------------------------------------------------------
    def may_take(self, victim: Resident, lost: dict[int, Resources]) -> bool:
        """Whether it may be taken next, with what queues have lost before."""
        if self.action is Action.PREEMPT:
            return victim.priority < self.priority
        return self.gives(victim.leaf, lost)

    def gives(self, leaf: TreeQueue, lost: dict[int, Resources]) -> bool:
        """Whether a queue has to give to another one: it is above its share, or above its quota for who is within."""
        _, other = self.partings(leaf)
        account, record = self.accounts.of[other], self.accounts.tree.queues[other].record
        left = self.kept[other].minus(lost.get(other, NOTHING))
        if not _fits(left, account.allocatable):
            return True
        return self.is_within_quota(leaf) and not _fits(left, record.quota)

    def rank(self, leaf: TreeQueue, *, is_core: bool) -> VictimRank:
        """How late a unit goes, by what it is and how its queue stands beside the taker's."""
        if self.action is Action.PREEMPT:
            return VictimRank(is_core, is_in_share=True, priority=0)
        other = self.partings(leaf)[1]
        is_in_share = _fits(self.kept[other], self.accounts.of[other].allocatable)
        return VictimRank(is_core, is_in_share, self.accounts.tree.queues[other].record.priority)

    def partings(self, leaf: TreeQueue) -> tuple[int, int]:
        """The queues of taker and victim just below the lowest one above both."""
        known = self._parting.get(leaf.number)
        if known is None:
            known = self._parting[leaf.number] = parting(self.taker, leaf)
        return known

    def is_within_quota(self, leaf: TreeQueue) -> bool:
        """Whether the taker stays within its quota with the claim, where both part."""
        own = self.partings(leaf)[0]
        known = self._within.get(own)
        if known is None:
            after = self.kept[own].plus(self.claim.amounts)
            known = self._within[own] = _fits(after, self.accounts.tree.queues[own].record.quota)
        return known

    def outgrows_budgets(self, unit: Resident, lost: Mapping[int, Resources]) -> bool:
        """Whether a unit's queue has more than PodDisruptionBudgets protect, with what it has lost before.

        Its quota is compared in what the unit has, and where it is 0 only for GPUs: CPU and memory that no quota
        divides are no reason to take GPUs within the quota. Where nothing else is left, all of it is compared.
        """
        settings, kept = self.settings, self.kept[unit.leaf.number]
        if settings.disruption_budgets is Respect.ALWAYS:
            return False
        left = kept.minus(lost.get(unit.leaf.number, NOTHING))
        if settings.disruption_budgets is Respect.SHARE:
            return not _fits(left, Resources(*(amount * settings.disruption_budgets_percent // 100 for amount in kept)))
        quota, has = unit.leaf.record.quota, unit.amounts
        compared = [at for at in range(len(has)) if has[at] > 0 and (quota[at] > 0 or at == _GPUS)]
        return any(left[at] > quota[at] for at in compared) if compared else not _fits(left, quota)

    def take(self, victim: Resident, lost: dict[int, Resources]) -> None:
        """Count what the victim's queue and all above it lose."""
        for number in victim.leaf.path:
            lost[number] = lost.get(number, NOTHING).plus(victim.amounts)

    def permit(
        self, victims: Iterable[Resident], before: Mapping[int, Resources] = _NOTHING_LOST
    ) -> dict[int, Resources] | None:
        """Judge victims in their order: what queues lose in the end; None if one of them may not be taken.

        ``before``: what queues lose by those that go before them.
        """
        lost = dict(before)
        for victim in victims:
            if not self.may_take(victim, lost):
                return None
            self.take(victim, lost)
        return lost

    # --- afterwards --------------------------------------------------------------------------------------------------
    def holds(self, lost: dict[int, Resources]) -> bool:
        """Whether, at each level, the taker's queue is then not above its share and at least as far as one that lost.

        Only dimensions count that are asked or lost.
        """
        if self.action is Action.PREEMPT:
            return True
        claim, total = self.claim.amounts, _most(lost.values())
        involved = [at for at in range(len(claim)) if claim[at] > 0 or total[at] > 0]
        return all(self._stays(number, sibling, involved, lost) for number, sibling in self._beside(lost))

    def _beside(self, lost: dict[int, Resources]) -> list[tuple[int, int]]:
        queues, path = self.accounts.tree.queues, self.taker.path
        parents = {queues[number].parent: number for number in path}
        others = (number for number in lost if number not in path)
        return [(parents[queues[other].parent], other) for other in others if queues[other].parent in parents]

    def _stays(self, own: int, sibling: int, involved: Iterable[int], lost: dict[int, Resources]) -> bool:
        of, multiplier = self.accounts.of, max(1_000, self.settings.saturation_multiplier_milli)
        has = self.kept[own].minus(lost.get(own, NOTHING)).plus(self.claim.amounts)
        left = self.kept[sibling].minus(lost[sibling])
        fair, others = of[own].fair, of[sibling].fair
        return not any(
            has[at] > fair[at] and others[at] > 0 and has[at] * multiplier * others[at] >= left[at] * fair[at] * 1_000
            for at in involved
        )


def _fits(amounts: Resources, most: Resources) -> bool:
    return amounts[0] <= most[0] and amounts[1] <= most[1] and amounts[2] <= most[2]


def _most(lost: Iterable[Resources]) -> Resources:
    found = NOTHING
    for each in lost:
        found = Resources(*map(max, found, each))
    return found


class Limits:
    """By how much each queue on the way up is above its limit with a claim, and without the units that were taken."""

    def __init__(self, accounts: Accounts, taker: TreeQueue, claim: Resources) -> None:
        self._short: dict[int, list[int]] = {}
        for number in taker.path:
            limit, held = accounts.tree.queues[number].record.limit, accounts.of[number].held
            # What is not asked for is not looked at.
            short = [has + more - most if more > 0 else 0 for has, more, most in zip(held, claim, limit, strict=True)]
            if max(short) > 0:
                self._short[number] = short

    def are_met(self) -> bool:
        """Whether no queue is above its limit."""
        return all(max(short) <= 0 for short in self._short.values())

    def helps(self, unit: Resident) -> bool:
        """Whether a unit counts where something is short."""
        return any(
            lacks > 0 and has > 0
            for number, short in self._short.items()
            if number in unit.leaf.path
            for lacks, has in zip(short, unit.amounts, strict=True)
        )

    def take(self, unit: Resident, sign: int = 1) -> None:
        """It goes; with -1 it stays."""
        for number, short in self._short.items():
            if number in unit.leaf.path:
                short[:] = [lacks - sign * has for lacks, has in zip(short, unit.amounts, strict=True)]

    def are_met_without(self, unit: Resident) -> bool:
        """Whether it may stay."""
        self.take(unit, -1)
        found = self.are_met()
        self.take(unit)
        return found

    def prefix(self, units: Iterable[Resident]) -> int | None:
        """How many of the first units are enough; None if all of them are not. Nothing is taken by that."""
        taken: list[Resident] = []
        for unit in units:
            if self.are_met():
                break
            self.take(unit)
            taken.append(unit)
        found = len(taken) if self.are_met() else None
        for unit in taken:
            self.take(unit, -1)
        return found


class Gone(NamedTuple):
    """What those that go take: of queues, by number, and of budgets, by their place."""

    lost: Mapping[int, Resources]
    taken: Counter[int]


#: Nobody has gone.
NOBODY: Final = Gone({}, Counter())


@dataclass(slots=True)
class Permits:
    """Rules and budgets of one search."""

    table: ResidentTable
    rules: Rules
    budgets: Budgets

    def go(self, rows: Sequence[int], before: Gone = NOBODY) -> Gone | None:
        """What has gone once these have, after those ``before``; None if one of them may not."""
        units = self.table.at(rows)
        lost = self.rules.permit(units, before.lost)
        if lost is None or self.budgets.forbid_nothing:
            return None if lost is None else Gone(lost, before.taken)
        more = self.budgets.takes(pod for unit in self._protected(units, before.lost) for pod in unit.pods)
        if more is None or not self.budgets.allow(before.taken, more):
            return None
        return Gone(lost, before.taken + more)

    def back(self, row: int, gone: Gone) -> Gone:
        """What has gone if this one, which is among them, stays. The others may go without it (test_rules.py)."""
        unit, lost = self.table.at([row])[0], dict(gone.lost)
        for number in unit.leaf.path:
            lost[number] = lost.get(number, NOTHING).minus(unit.amounts)
        if self.budgets.forbid_nothing or self.rules.settings.disruption_budgets is not Respect.ALWAYS:
            return Gone(lost, gone.taken)  # nobody knows whether it was counted: then others may take less
        more = self.budgets.takes(unit.pods)
        return Gone(lost, gone.taken - more if more else gone.taken)

    def _protected(self, units: Sequence[Resident], before: Mapping[int, Resources]) -> Iterator[Resident]:
        """Those for which budgets count, with what goes before each."""
        lost = dict(before)
        for unit in units:
            if not self.rules.outgrows_budgets(unit, lost):
                yield unit
            self.rules.take(unit, lost)
