"""What queues have, in one decision: sums over all their pods and those of the queues below, and fair shares.

A decision charges its own choices here as it does on the nodes, and takes them back together. Sums come by name
(tree.py), so a tree that changes needs no recount; what counts for a queue that can't be used is taken off the total,
as pods of other schedulers are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

from scheduler.core.model.quota import DIMENSIONS, NOTHING, QueueRecord, Resources
from scheduler.core.model.verdict import Code, QueueCause, Verdict
from scheduler.core.queues.fair_share import Divisions, Records, allocatable, fair_shares
from scheduler.core.queues.tree import Sum, Tree
from scheduler.core.queues.use_over_time import NOT_COUNTED, UseOverTime


@dataclass(slots=True)
class Account:
    """One queue's. ``held`` counts against limits, ``fixed`` (of it, what can't be preempted) against quotas.

    ``kept``: what it holds without pods that are terminating. ``fair`` and ``allocatable``: as in fair_share.py.
    """

    held: Resources = NOTHING
    fixed: Resources = NOTHING
    kept: Resources = NOTHING
    asked: Resources = NOTHING
    fair: Resources = NOTHING
    allocatable: Resources = NOTHING


class Use(NamedTuple):
    """What a pod, or several of one queue, would count for there. ``is_fixed``: they can't be preempted."""

    queue: str
    amounts: Resources
    is_fixed: bool = False

    def or_less(self, other: Use) -> Use:
        """A use that a queue takes at least where it takes one of both."""
        amounts = Resources(*map(min, self.amounts, other.amounts))
        return self._replace(amounts=amounts, is_fixed=self.is_fixed and other.is_fixed)


class HeldBack(NamedTuple):
    """Why a queue does not take a use. ``is_there``: where that is used; elsewhere it may be less."""

    verdict: Verdict
    use: Use
    is_there: bool = False


@dataclass(slots=True)
class Accounts:
    """All queues', by number in the tree. ``total``: what they divide."""

    tree: Tree
    total: Resources
    of: list[Account]
    #: Charges of this decision, to take them back.
    _journal: list[tuple[Use, Resources]] = field(default_factory=list)

    # --- what a decision charges -------------------------------------------------------------------------------------
    def charge(self, use: Use) -> None:
        """Count pods that are placed now. They were asked for already."""
        self._add(use, use.amounts)

    def release(self, use: Use, *, is_leaving: bool = False) -> None:
        """Take pods off that would go. ``is_leaving``: they are terminating, so that they are not kept any more."""
        amounts = NOTHING.minus(use.amounts)
        self._add(use._replace(amounts=amounts), NOTHING if is_leaving else amounts)

    def charged_since(self, mark: int, *, of_fixed: bool = False) -> Resources:
        """The sum of all charges since ``mark``, or of those for pods that can't be preempted."""
        uses = (use.amounts for use, _ in self._journal[mark:] if use.is_fixed or not of_fixed)
        return reduce(Resources.plus, uses, NOTHING)

    def checkpoint(self) -> int:
        """A point to come back to."""
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """Take back all charges since ``mark``."""
        while len(self._journal) > mark:
            use, kept = self._journal.pop()
            self._count(use._replace(amounts=NOTHING.minus(use.amounts)), NOTHING.minus(kept))

    def _add(self, use: Use, kept: Resources) -> None:
        self._journal.append((use, kept))
        self._count(use, kept)

    def _count(self, use: Use, kept: Resources) -> None:
        queue = self.tree.find(use.queue)
        for at in () if queue is None else queue.path:
            account = self.of[at]
            account.held = account.held.plus(use.amounts)
            account.kept = account.kept.plus(kept)
            if use.is_fixed:
                account.fixed = account.fixed.plus(use.amounts)

    # --- whether pods may start at all -------------------------------------------------------------------------------
    def refusal(self, use: Use) -> Verdict | None:
        """Why a queue may not use that much more: a limit on the way up, or a quota for what can't be preempted.

        Dimensions that are not asked for are not looked at (as in KAI).
        """
        queue = self.tree.leaf(use.queue)
        if isinstance(queue, Verdict):
            return queue
        for number in queue.path:
            at = self.tree.queues[number]
            cause = over_limit(at.record, self.of[number].held, use.amounts)
            if cause is not None:
                return Verdict(code=Code.OVER_LIMIT, detail=queue.name, queue=cause)
        if not use.is_fixed:
            return None
        for number in queue.path:
            at = self.tree.queues[number]
            cause = over_quota(at.record, self.of[number].fixed, use.amounts)
            if cause is not None:
                return Verdict(code=Code.OVER_QUOTA, detail=queue.name, queue=cause)
        return None

    def room_for(self, use: Use) -> int:
        """How many times a queue may take a use: a bound, at least 1 if it may take it at all."""
        if self.refusal(use) is not None:
            return 0
        queue = self.tree.find(use.queue)
        return min(
            (
                (most - held) // amount
                for number in (() if queue is None else queue.path)
                for most, held, amount in zip(
                    self.tree.queues[number].record.limit, self.of[number].held, use.amounts, strict=True
                )
                if amount > 0
            ),
            default=1,
        )


def over_limit(record: QueueRecord, held: Resources, asked: Resources) -> QueueCause | None:
    """The first dimension in which a queue would pass its limit."""
    return _beyond(record.name, record.limit, held, asked)


def over_quota(record: QueueRecord, held_fixed: Resources, asked: Resources) -> QueueCause | None:
    """The first dimension in which pods that can't be preempted would use more than the queue's quota."""
    return _beyond(record.name, record.quota, held_fixed, asked)


def _beyond(name: str, most: Resources, held: Resources, asked: Resources) -> QueueCause | None:
    for at, resource in enumerate(DIMENSIONS):
        if asked[at] > 0 and held[at] + asked[at] > most[at]:
            return QueueCause(at=name, resource=resource, most=most[at], held=held[at], asked=asked[at])
    return None


def accounts(
    tree: Tree,
    sums: Mapping[str, Sum],
    allocatable_of_nodes: Resources,
    *,
    used: UseOverTime = NOT_COUNTED,
    records: Records | None = None,
    known: Divisions | None = None,
) -> Accounts:
    """Add up what is counted by queue name, and divide what nodes have.

    ``allocatable_of_nodes``: of Ready nodes, without what pods of other schedulers use. ``records``: takes the steps of
    the division.
    """
    of = [Account() for _ in tree.queues]
    total = allocatable_of_nodes
    for name, each in sums.items():
        queue = tree.find(name)
        if queue is None:
            total = total.minus(each.kept)
            continue
        _add(of[queue.number], each)
    for queue in reversed(tree.queues):  # parents come first in it
        if queue.parent >= 0:
            _add(of[queue.parent], of[queue.number])
    total = Resources(*(max(0, each) for each in total))
    fair = fair_shares(tree, total, [account.asked for account in of], used=used, records=records, known=known)
    for account, queue, share in zip(of, tree.queues, fair, strict=True):
        account.fair, account.allocatable = share, allocatable(queue, share)
    return Accounts(tree, total, of)


def _add(account: Account, more: Account | Sum) -> None:
    account.held = account.held.plus(more.held)
    account.fixed = account.fixed.plus(more.fixed)
    account.kept = account.kept.plus(more.kept)
    account.asked = account.asked.plus(more.asked)
