"""Who its queue holds back, where evictions may help: one of each line of those who would use the same.

Of a line the one comes first that was not searched for yet, then the one that was refused longest ago: what one is
answered says little of the others, which may ask for other nodes. So each has its search, and a look costs one search
a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop
from typing import Final

from scheduler.core.backlog.learned import GangHeldBack, ShapeHeldBack
from scheduler.core.backlog.quota_sleepers import Item
from scheduler.core.backlog.room_memo import NeedKey, Refused
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.needed import may_be_freed
from scheduler.core.model.priority_order import Rank
from scheduler.core.queues.accounts import Use

#: Whoever was not searched for yet.
_NEVER_NS: Final = -1


def of_each_line(
    attempts: Attempts, refused: Mapping[NeedKey, Refused], is_waiting: Callable[[Item], bool]
) -> Iterator[tuple[Item, Use, Rank]]:
    """One of each line, if there is one that still waits."""
    lines: dict[Use, list[tuple[int, Rank, Item]]] = {}
    for item, use, rank in _standing(attempts):
        known = refused.get(item)
        lines.setdefault(use, []).append((_NEVER_NS if known is None else known.at_ns, rank, item))
    for use, line in lines.items():
        if not may_be_freed(attempts.accounts, use):
            continue
        heapify(line)
        while line:
            _, rank, item = heappop(line)
            if is_waiting(item):
                yield item, use, rank
                break


def items(attempts: Attempts) -> set[Item]:
    """All that their queues hold back, and that sleep for it."""
    return {item for item, _, _ in _standing(attempts)}


def freeable(attempts: Attempts) -> set[Item]:
    """Those of ``items`` that their queues would take if others had gone: no search is made for the rest."""
    lines: dict[Use, bool] = {}
    found: set[Item] = set()
    for item, use, _ in _standing(attempts):
        if use not in lines:
            lines[use] = may_be_freed(attempts.accounts, use)
        if lines[use]:
            found.add(item)
    return found


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
