"""Why a queue gets what it gets, and when it is served: the arithmetic of its divisions, step by step, and its turn.

Steps are those that the division itself noted (queues/fair_share.py), turns those that a decision would give
(listed_queues.py), if it looked at all that waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Final

import msgspec

from scheduler.core.model.quota import DIMENSIONS, QueueRecord
from scheduler.core.model.records import PodGroupRecord
from scheduler.core.model.verdict import Verdict
from scheduler.core.queues.accounts import Accounts
from scheduler.core.queues.fair_share import TOP, DivisionRecord, Records, use_by_number
from scheduler.core.queues.order import QueueOrder, Standing
from scheduler.core.queues.queues import Queues
from scheduler.core.queues.tree import TreeQueue
from scheduler.core.queues.use_over_time import Ppb, Source
from scheduler.core.report.listed_queues import Listed, Turn, order_of_turns
from scheduler.core.report.queue_view import Amounts, QueueView, Say, Why, amounts, children, queue_view, shown, why

#: The unit that each dimension is counted in.
_UNITS: Final = ("milli", "bytes", "nano")
#: Use over time by number of the queue; None where it does not count.
_Use = Sequence[Ppb] | None


class StepView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """One step. ``kind``: quota, round or leftover; ``priority`` of the queues that it is for, None for all.

    ``offered``: what was left before it. ``given``: in the order of the division's queues.
    """

    kind: str
    priority: int | None
    offered: int
    given: tuple[int, ...]


class PartView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A queue that takes part in a division, in one resource. -1: unlimited."""

    queue: str
    priority: int
    quota: int
    limit: int
    weight_millionths: int
    requested: int
    fair_share: int
    #: What it used of the cluster over time, in billionths, where that counts.
    used_ppb: int | None = None


class DivisionView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """One division: amounts in ``unit``. ``left``: what nobody gets."""

    resource: str
    unit: str
    total: int
    queues: tuple[PartView, ...]
    steps: tuple[StepView, ...]
    left: int


class LevelView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """The divisions of one queue's share among the queues below it; ``below`` "": of the cluster, or node pool."""

    below: str
    divisions: tuple[DivisionView, ...]


class NextView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """What a queue gives next: a pod, or as many of a PodGroup as come next. ``held_back``: why its queue can't."""

    kind: str
    namespace: str
    name: str
    queue: str
    requested: Amounts
    held_back: Why | None = None


class TurnView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A queue in the order. ``after_by``: what puts it behind the one before it (queues/order.py), "" for the first."""

    queue: str
    next: NextView
    after_by: str = ""


class OrderView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """The order of the queues below one that have something to give."""

    below: str
    turns: tuple[TurnView, ...]


class Explanation(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Everything about one queue. ``path``: itself first, then each above it. Levels and orders from the top down.

    The last level is that of the queues below it, if it has some. ``next``: what it gives next, None: nothing waits.
    ``use_stale_since_s``: use over time counts for nobody, as Prometheus answered then for the last time (seconds since
    the epoch, 0: never); None: it counts, or was never to count.
    """

    name: str
    path: tuple[QueueView, ...]
    unusable: Why | None = None
    levels: tuple[LevelView, ...] = ()
    orders: tuple[OrderView, ...] = ()
    next: NextView | None = None
    use_stale_since_s: int | None = None


def explanation(listed: Listed, name: str, say: Say) -> Explanation | None:
    """Explain the queue of this name; None if there is no such object."""
    queues, records = listed.queues, Records()
    chain = _chain(queues, name)
    if not chain:
        return None
    made = queues.recorded_accounts(records)
    below = children(queues.records.all())
    path = tuple(queue_view(each, queues, made, say, below=below.get(each.name, ())) for each in chain)
    queue = made.tree.find(name)
    if queue is None:
        return Explanation(name=name, path=path, unusable=path[0].unusable)
    parents = [TOP, *reversed(queue.path)]
    turns = _Turns(order_of_turns(listed, queues.accounts()), made, say)
    used = use_by_number(made.tree, queues.used) if queues.used.is_counted else None
    return Explanation(
        name=name,
        path=path,
        levels=tuple(_level(made, parent, records.of[parent], used) for parent in parents if parent in records.of),
        orders=tuple(order for parent in parents if (order := turns.below(parent)).turns),
        next=turns.next_of(queue),
        use_stale_since_s=queues.used.since_s if queues.used.source is Source.STALE else None,
    )


def _chain(queues: Queues, name: str) -> list[QueueRecord]:
    """A queue and those above it, as far as they are there; each once."""
    found: dict[str, QueueRecord] = {}
    while name not in found and (record := queues.records.get(name)) is not None:
        found[name] = record
        name = record.parent
    return list(found.values())


# --- divisions -------------------------------------------------------------------------------------------------------
def _level(made: Accounts, parent: int, records: Sequence[DivisionRecord], used: _Use) -> LevelView:
    tree = made.tree
    numbers = tree.top if parent == TOP else tree.queues[parent].children
    divisions = (_division(made, numbers, at, record, used=used) for at, record in enumerate(records))
    return LevelView(below="" if parent == TOP else tree.queues[parent].name, divisions=tuple(divisions))


def _division(made: Accounts, numbers: Sequence[int], at: int, record: DivisionRecord, *, used: _Use) -> DivisionView:
    return DivisionView(
        resource=DIMENSIONS[at],
        unit=_UNITS[at],
        total=record.total,
        queues=tuple(_part(made, number, at, used) for number in numbers),
        steps=tuple(
            StepView(kind=step.kind.value, priority=step.priority, offered=step.offered, given=step.given)
            for step in record.steps
        ),
        left=record.left,
    )


def _part(made: Accounts, number: int, at: int, used: _Use) -> PartView:
    record, account, of = made.tree.queues[number].record, made.of[number], itemgetter(at)
    return PartView(
        queue=record.name,
        priority=record.priority,
        quota=shown(of(record.quota)),
        limit=shown(of(record.limit)),
        weight_millionths=of(record.weight),
        requested=of(account.asked),
        fair_share=of(account.fair),
        used_ppb=None if used is None else used[number][at],
    )


# --- turns -----------------------------------------------------------------------------------------------------------
class _Turns:
    """Who is next, as a decision would have it."""

    def __init__(self, order: QueueOrder[Turn], made: Accounts, say: Say) -> None:
        self._order = order
        self._made = made
        self._say = say

    def below(self, parent: int) -> OrderView:
        """The queues below one, in order."""
        standings = self._order.standings(parent)
        name = "" if parent == TOP else self._made.tree.queues[parent].name
        return OrderView(below=name, turns=tuple(self._turns(standings)))

    def next_of(self, queue: TreeQueue) -> NextView | None:
        """What a queue gives next."""
        return next((self._next(each) for each in self._order.standings(queue.parent) if each.queue == queue), None)

    def _turns(self, standings: Sequence[Standing[Turn]]) -> Iterator[TurnView]:
        for before, each in pairwise([None, *standings]):
            if each is not None:
                by = "" if before is None else each.after(before).value
                yield TurnView(queue=each.queue.name, next=self._next(each), after_by=by)

    def _next(self, standing: Standing[Turn]) -> NextView:
        turn = standing.first
        refused = self._made.refusal(turn.least)
        return NextView(
            kind="PodGroup" if isinstance(turn.of, PodGroupRecord) else "Pod",
            namespace=turn.of.namespace,
            name=turn.of.name,
            queue=turn.least.queue,
            requested=amounts(turn.use),
            held_back=why(refused, self._say) if isinstance(refused, Verdict) else None,
        )
