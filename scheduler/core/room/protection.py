"""What protects a pod for a while from all: minimum runtimes, evictions not long ago; and the taker's own delay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from scheduler.core.model.preemption import Action, Evicted, Method, RoomSettings
from scheduler.core.queues.tree import Tree, TreeQueue
from scheduler.core.room.need import Need
from wire import rfc3339

_S: Final = 1_000_000_000
#: After its first eviction within an hour a group is protected for so long, after each further one twice as long.
_FIRST_S: Final = 30
_LONGEST_S: Final = 600


def minimum_ns(tree: Tree, action: Action, settings: RoomSettings, *, taker: TreeQueue, victim: TreeQueue) -> int:
    """How long a group of the victim's queue runs before it may be evicted for one of the taker's (kai-contract 4.6).

    The first queue that says it, from the victim's own upward; for reclaim, unless the settings name another, from the
    queue just below the lowest one above both.
    """
    path = victim.path
    if action is Action.PREEMPT:
        said = (tree.queues[number].record.preempt_min_runtime_ns for number in path)
        return _first(said, settings.preempt_min_ns)
    if settings.reclaim_method is Method.LCA:
        path = path[path.index(parting(taker, victim)[1]) :]
    return _first((tree.queues[number].record.reclaim_min_runtime_ns for number in path), settings.reclaim_min_ns)


def unmoved_ns(tree: Tree, settings: RoomSettings, queue: TreeQueue) -> int:
    """How long a group of a queue runs before it may be moved: as long as it is protected from reclaim or preempt."""
    records = [tree.queues[number].record for number in queue.path]
    preempt = _first((each.preempt_min_runtime_ns for each in records), settings.preempt_min_ns)
    return max(preempt, _first((each.reclaim_min_runtime_ns for each in records), settings.reclaim_min_ns))


def parting(taker: TreeQueue, victim: TreeQueue) -> tuple[int, int]:
    """The queues of both just below the lowest one above both. Both have no children, and are not the same."""
    pairs = zip(reversed(taker.path), reversed(victim.path), strict=False)
    return next((one, other) for one, other in pairs if one != other)


def _first(said: Iterable[int | None], otherwise: int) -> int:
    return next((each for each in said if each is not None), otherwise)


def has_run_at_s(started_s: int, minimum: int, wall_s: int) -> int:
    """When a group has run for this time in nanoseconds; 0: it has. One whose start nobody knows counts from now on."""
    if minimum <= 0:
        return 0
    until_s = min(started_s or wall_s, wall_s) - -minimum // _S
    return until_s if until_s > wall_s else 0


def protected_until_s(evicted: Evicted | None, started_s: int, wall_s: int) -> int:
    """Until when its last evictions protect a group, from when it ran again; 0: not any more (docs/design/room.md).

    30 s after the first within an hour, doubled with each further one up to 10 minutes: so nobody is evicted for
    others more than ten times in any hour.
    """
    if evicted is None or evicted.times < 1:
        return 0
    gap_s = min(_FIRST_S << min(evicted.times - 1, 10), _LONGEST_S)
    until_s = max(min(started_s or wall_s, wall_s), evicted.last_s) + gap_s
    return until_s if until_s > wall_s else 0


def delayed_until_s(need: Need, evicted: Evicted | None, wall_s: int) -> int:
    """Until when a need takes from nobody: its delay counts from its creation or its last eviction; 0: it is over."""
    if need.delay_ns <= 0:
        return 0
    created_s = (rfc3339.parse_ns(need.created) or 0) // _S
    since_s = max(1, created_s, evicted.last_s if evicted is not None else 0)
    return has_run_at_s(since_s, need.delay_ns, wall_s)
