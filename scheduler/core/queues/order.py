"""Who is next: down the tree to the queue that it is due to, then by rank within it (as in KAI).

The key of a queue is made for the group that it would give next. After a turn only keys on that group's path are made
again; older ones are left in the heaps and passed over.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from scheduler.core.model.priority_order import Rank
from scheduler.core.model.quota import UNITS, UNLIMITED, Resources
from scheduler.core.queues.accounts import Accounts
from scheduler.core.queues.tree import TreeQueue

#: Shares are compared to this many binary places.
_PLACES: Final = 32
#: What counts in a dimension of which nothing can be had counts this many times (KAI's number).
_VOID: Final = 1000
_TOP: Final = -1


class Criterion(enum.Enum):
    """What puts one queue before another, in the order in which they are compared: the places of a ``Key``."""

    #: It is not above its fair share in every dimension.
    SHARE = "share"
    #: It stays within its quota with its next group.
    QUOTA = "quota"
    #: Its priority is higher.
    PRIORITY = "priority"
    #: It neither uses nor asks for what it can't have.
    VOID = "void"
    #: With its next group it uses a smaller part of its share.
    SHARE_USED_WITH = "shareUsedWith"
    #: Without it.
    SHARE_USED_WITHOUT = "shareUsedWithout"
    #: Its share is smaller.
    SMALLER_SHARE = "smallerShare"
    #: It is older.
    AGE = "age"
    NAME = "name"


Key = tuple[bool, bool, int, bool, int, int, tuple[int, ...], str, str]
#: The key of a queue without siblings.
_ALONE: Final[Key] = (False, False, 0, False, 0, 0, (), "", "")


class Due(Protocol):
    """What waits for its turn in a queue."""

    @property
    def use(self) -> Resources:
        """What its next pods would use."""
        ...

    def is_settled(self) -> bool:
        """Whether nothing is left to decide, as what was decided on others holds for it; it then has said so."""
        ...


W = TypeVar("W", bound=Due)
_CRITERIA: Final = tuple(Criterion)


class RankedQueue(NamedTuple, Generic[W]):
    """A queue among its siblings: its key, and the group that it gives next."""

    queue: TreeQueue
    key: Key
    first: W

    def after(self, before: RankedQueue[W]) -> Criterion:
        """Why it comes after another one. Names differ, so there is always a reason."""
        pairs = zip(_CRITERIA, before.key, self.key, strict=True)
        return next(criterion for criterion, first, second in pairs if first != second)


def key(accounts: Accounts, queue: TreeQueue, more: Resources) -> Key:
    """Smaller is served first. ``more``: what the next group of the queue would use.

    In this order: not above its fair share in every dimension; within its quota with the group; the higher priority;
    not using what it can't have; the smaller dominant share with the group, then without it; the smaller allocatable
    share; the older queue, then the name.
    """
    account, record = accounts.of[queue.number], queue.record
    after, most = account.kept.plus(more), account.allocatable
    return (
        all(kept > fair for kept, fair in zip(account.kept, account.fair, strict=True)),
        not all(amount <= quota for amount, quota in zip(after, record.quota, strict=True)),
        -record.priority,
        any(amount > 0 and not share for amount, share in zip(after, most, strict=True)),
        _dominant(after, most, accounts.total),
        _dominant(account.kept, most, accounts.total),
        tuple(reversed(most)),
        record.created,
        record.name,
    )


def _dominant(amounts: Resources, allocatable: Resources, total: Resources) -> int:
    """The largest part that it is of any dimension's allocatable share; of the total, if that has no end."""
    return max(map(_part, amounts, allocatable, total, UNITS))


def _part(amount: int, allocatable: int, total: int, unit: int) -> int:
    most = total if allocatable >= UNLIMITED else allocatable
    if most > 0:
        return (amount << _PLACES) // most
    return (amount * _VOID << _PLACES) // unit


@dataclass(slots=True)
class QueueOrder(Generic[W]):
    """What waits, by queue. ``accounts`` change between turns, for the queue that had its turn only."""

    accounts: Accounts
    #: By leaf: what waits in it, by rank. The number decides between equals.
    _waiting: dict[int, list[tuple[Rank, int, W]]] = field(default_factory=dict)
    #: By queue: keys of the queues below it that have something to give, each with the version that it is of.
    _below: dict[int, list[tuple[Key, int, int]]] = field(default_factory=dict)
    _version: dict[int, int] = field(default_factory=dict)
    #: Leaves whose keys are to be made again. A dict keeps the order.
    _changed: dict[int, None] = field(default_factory=dict)
    _put: int = 0

    def put(self, queue: TreeQueue, rank: Rank, waiting: W) -> None:
        """Have it wait for its turn in a queue that has no children."""
        self._put += 1
        heappush(self._waiting.setdefault(queue.number, []), (rank, self._put, waiting))
        self._changed[queue.number] = None

    def pop(self) -> W | None:
        """Give the next one its turn; None if nothing waits."""
        self._refresh()
        first = self._first_of(_TOP)
        if first is not None:
            number = self._leaf_of(_TOP)
            heappop(self._waiting[number])
            self._changed[number] = None
        return first

    def ranking(self, parent: int) -> list[RankedQueue[W]]:
        """The queues below one (-1: at the top) that have something to give, in the order of their turns."""
        self._refresh()
        tree = self.accounts.tree
        found = []
        for number in tree.top if parent == _TOP else tree.queues[parent].children:
            queue, first = tree.queues[number], self._first_of(number)
            if first is not None:
                found.append(RankedQueue(queue, key(self.accounts, queue, first.use), first))
        return sorted(found, key=lambda each: each.key)

    def _refresh(self) -> None:
        """Make the keys again that turns have changed."""
        for number in self._changed:
            self._make_keys(self.accounts.tree.queues[number].path)
        self._changed.clear()

    def _make_keys(self, path: Sequence[int]) -> None:
        """Make the keys of these queues, each of which is above the one before."""
        for number in path:
            queue = self.accounts.tree.queues[number]
            version = self._version[number] = self._version.get(number, 0) + 1
            first = self._first_of(number)
            if first is not None:
                below = self._below.setdefault(queue.parent, [])
                is_alone = len(self._siblings(queue)) == 1
                heappush(below, (_ALONE if is_alone else key(self.accounts, queue, first.use), number, version))

    def _siblings(self, queue: TreeQueue) -> tuple[int, ...]:
        tree = self.accounts.tree
        return tree.top if queue.parent == _TOP else tree.queues[queue.parent].children

    def _first_of(self, number: int) -> W | None:
        """The next group of a queue; None if nothing waits in it.

        What was settled since the keys were made is left out, and the keys that were made for it are made again.
        """
        while waiting := self._waiting.get(leaf := self._leaf_of(number)):
            if not waiting[0][2].is_settled():
                return waiting[0][2]
            heappop(waiting)
            path = self.accounts.tree.queues[leaf].path
            self._make_keys(path if number == _TOP else path[: path.index(number)])
        return None

    def _leaf_of(self, number: int) -> int:
        """The queue without children to which the keys lead down from here, or where they end."""
        while number not in self._waiting:
            child = self._first_below(number)
            if child is None:
                return number
            number = child
        return number

    def _first_below(self, number: int) -> int | None:
        """The queue below that is served first."""
        below = self._below.get(number, [])
        while below:
            _, child, version = below[0]
            if self._version[child] == version:
                return child
            heappop(below)
        return None
