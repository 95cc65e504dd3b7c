"""Who its queue holds back, where evictions may help: one of each line of those who would use the same.

What one is answered says little of the others, which may ask for other nodes. So each kind has its search, and a look
costs one search a line: for the kind that was looked at longest ago, and of it for the one that was. Only those come
that are due, so nobody whose answer can't be another one stands before those whose can.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop
from typing import Final, NamedTuple

from scheduler.core.backlog.learned import GangHeldBack, ShapeHeldBack
from scheduler.core.backlog.quota_sleepers import Item
from scheduler.core.backlog.shape import ShapeKey
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.looks import Looks
from scheduler.core.decide.needed import may_be_freed
from scheduler.core.model.priority_order import Rank
from scheduler.core.queues.accounts import Use

#: Of a kind of which somebody was refused, and is not due.
_SETTLED: Final = None


class First(NamedTuple):
    """Whose turn it is in a line. ``has_others``: there may be others whose turn comes in the next look."""

    item: Item
    has_others: bool


@dataclass(frozen=True, slots=True)
class HeldBackItems:
    """All that their queues hold back, and that sleep for it: in lines, by what they would use."""

    attempts: Attempts
    looks: Looks
    lines: dict[Use, list[tuple[Rank, Item]]] = field(default_factory=dict)

    @classmethod
    def of(cls, attempts: Attempts, looks: Looks) -> HeldBackItems:
        """Those that sleep after a decision. ``looks``: when they were looked at last."""
        found = cls(attempts, looks)
        for item, use, rank in _standing(attempts):
            found.lines.setdefault(use, []).append((rank, item))
        return found

    def items(self) -> set[Item]:
        """All of them."""
        return {item for line in self.lines.values() for _, item in line}

    def freeable(self) -> set[Item]:
        """Those that their queues would take if others had gone: no search is made for the rest."""
        return {item for line in self._freeable() for _, item in line}

    def firsts(self, is_waiting: Callable[[Item], bool]) -> Iterator[First]:
        """One of each line, if there is one that is due and still waits."""
        looks = self.looks
        for line in self._freeable():
            due = self._due(line)
            heapify(due)
            while due:
                *_, item = heappop(due)
                if is_waiting(item):
                    yield First(item, any(looks.has_news(other) and is_waiting(other) for *_, other in due))
                    break

    def _freeable(self) -> Iterator[list[tuple[Rank, Item]]]:
        accounts = self.attempts.accounts
        return (line for use, line in self.lines.items() if may_be_freed(accounts, use))

    def _due(self, line: list[tuple[Rank, Item]]) -> list[tuple[int, int, Rank, Item]]:
        """Those that are due: when one of the kind was looked at last, when it was itself, and where it stands."""
        looks = self.looks
        if len(line) == 1:
            ((rank, item),) = line
            return [(0, 0, rank, item)] if looks.is_due(item) else []
        kinds = [_kind(item, rank, self.attempts) for rank, item in line]
        looked: dict[Hashable, int | None] = {}
        for kind, (_, item) in zip(kinds, line, strict=True):
            before = looked.get(kind, 0)
            if before is not _SETTLED:
                looked[kind] = max(before, looks.at_ns(item)) if looks.is_due(item) else _SETTLED
        return [
            (at_ns, looks.at_ns(item), rank, item)
            for kind, (rank, item) in zip(kinds, line, strict=True)
            if (at_ns := looked[kind]) is not None
        ]


def _kind(item: Item, rank: Rank, attempts: Attempts) -> Hashable:
    """What those have in common that get the same answer: a shape, or gangs that ask the same."""
    if isinstance(item, ShapeKey):
        return item
    group = attempts.snapshot.pod_groups.get(item)
    if group is None or group.delay_ns > 0:  # each has its own time
        return item
    classes = attempts.snapshot.backlog.gang(item).classes
    return rank.minus_priority, item[0], classes, group.minimum, group.tree, group.levels


def _standing(attempts: Attempts) -> Iterator[tuple[Item, Use, Rank]]:
    backlog, now = attempts.snapshot.backlog, dict[Item, tuple[Use, Rank]]()
    for note in attempts.notes.taken:
        match note:
            case GangHeldBack(key=key, use=use, rank=rank):
                now[key] = use, rank
            case ShapeHeldBack(key=shape):
                ranks = (rank for rank in backlog.shape(shape).ranks() if rank.uid not in note.served)
                if (first := min(ranks, default=None)) is not None:
                    now[shape] = note.held.use, first
            case _:
                pass
    for item, use, rank in backlog.quota_sleepers.standing():
        if item not in now:
            yield item, use, rank
    yield from ((item, use, rank) for item, (use, rank) in now.items())
