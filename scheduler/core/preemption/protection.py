"""What protects a pod from eviction for a while, and for how long nobody is evicted for a pod.

Protected are pods by minimum runtimes and after evictions not long ago. Who takes may have a delay of its own. A pod
gets its claims bound when its place is free, which is after the evictions: a provisioner that always fails would have
pods evicted on one node after the other, for a pod that never runs. So after a failure the claim keeps its pods from
having others evicted, for longer each time (docs/design/preemption.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from scheduler.core.model.preemption import Action, Evicted, FailedClaim, Method, RoomSettings
from scheduler.core.model.records import PodRecord
from scheduler.core.nodes.extended_claims import made_uid
from scheduler.core.preemption.need import Need
from scheduler.core.queues.tree import Tree, TreeQueue
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
    """Until when its last evictions protect a group, from when it ran again; 0: not any more.

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


_FIRST_PAUSE_S: Final = 300
_LONGEST_PAUSE_S: Final = 14_400
#: The longest time is reached before.
_MOST_DOUBLINGS: Final = 10


def failed_again(before: FailedClaim | None, at_s: int) -> FailedClaim:
    """What is known of a claim that has failed now; ``before``: what was known of it, None: nothing."""
    if before is None or before.last_s + _pause_s(before.times) + _LONGEST_PAUSE_S < at_s:
        return FailedClaim(1, at_s)
    return before if at_s < ends_s(before, at_s) else FailedClaim(before.times + 1, at_s)


def paused_until_s(pods: Iterable[PodRecord], failed: Mapping[str, FailedClaim], wall_s: int) -> int:
    """Until when nobody is evicted for these pods, which are judged (wall clock); 0: no claim keeps them from it."""
    if not failed:
        return 0
    found = (failed[uid] for pod in pods for uid in _to_be_bound(pod) if uid in failed)
    until_s = max((ends_s(each, wall_s) for each in found), default=0)
    return until_s if until_s > wall_s else 0


def next_end_s(failed: Mapping[str, FailedClaim], wall_s: int) -> int:
    """When the next pause of a claim ends (wall clock); 0: there is none."""
    ends = (ends_s(each, wall_s) for each in failed.values())
    return min((at_s for at_s in ends if at_s > wall_s), default=0)


def ends_s(failed: FailedClaim, wall_s: int) -> int:
    """When the last pause of a claim ends, or has ended. A failure in the future, of a clock ahead, is one of now."""
    return min(failed.last_s, wall_s) + _pause_s(failed.times)


def _pause_s(times: int) -> int:
    return min(_FIRST_PAUSE_S << min(times - 1, _MOST_DOUBLINGS), _LONGEST_PAUSE_S)


def _to_be_bound(pod: PodRecord) -> Iterable[str]:
    """UIDs of the claims that are to be bound, allocated, or reserved for a pod once it has a place."""
    made = (("", made_uid(pod.uid)),) if pod.cls.backed else ()
    return (uid for _, uid in (*pod.unbound_claims, *pod.to_allocate, *pod.to_reserve, *made))
