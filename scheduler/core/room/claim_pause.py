"""For how long nobody is evicted for a pod with a claim that could not be bound (docs/design/room.md).

A pod gets its claims bound when its place is free, which is after the evictions. A provisioner that always fails would
have pods evicted on one node after the other, for a pod that never runs. So after a failure the claim keeps its pods
from taking from others: for 5 minutes, and if it fails again afterwards twice as long, up to 4 hours. They may still
have places that are free; what fails there within the pause does not make it longer. A claim that is bound, or is made
again under its name, keeps nobody from anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from scheduler.core.model.preemption import FailedClaim
from scheduler.core.model.records import PodRecord
from scheduler.core.nodes.extended_claims import made_uid

_FIRST_S: Final = 300
_LONGEST_S: Final = 14_400
#: The longest time is reached before.
_MOST_DOUBLINGS: Final = 10


def failed_again(before: FailedClaim | None, at_s: int) -> FailedClaim:
    """What is known of a claim that has failed now; ``before``: what was known of it, None: nothing."""
    if before is None or before.last_s + _pause_s(before.times) + _LONGEST_S < at_s:
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
    return min(_FIRST_S << min(times - 1, _MOST_DOUBLINGS), _LONGEST_S)


def _to_be_bound(pod: PodRecord) -> Iterable[str]:
    """UIDs of the claims that are to be bound, allocated, or reserved for a pod once it has a place."""
    made = (("", made_uid(pod.uid)),) if pod.cls.backed else ()
    return (uid for _, uid in (*pod.unbound_claims, *pod.to_allocate, *pod.to_reserve, *made))
