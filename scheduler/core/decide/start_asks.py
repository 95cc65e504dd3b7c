"""What the start of a gang asks beside the nodes: while that is the same, a verdict on it may still be true."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import groupby

from scheduler.core.backlog.asleep import KeptGang
from scheduler.core.backlog.gang_lines import Alike
from scheduler.core.groups.quorum import Quorum
from scheduler.core.model.records import PodGroupRecord, PodRecord


def asked(group: PodGroupRecord, state: Quorum, ready: Sequence[PodRecord], places: Hashable = ()) -> Hashable:
    """All that the start of a gang depends on beside the nodes. ``places``: the Topologies that it names."""
    members = tuple((pod.uid, pod.cls, pod.subgroup, pod.alone) for pod in ready)
    return *_needs(group, state), members, places


def speaks_of(kept: KeptGang, group: PodGroupRecord, state: Quorum, waiting: int) -> bool:
    """Whether a gang needs what it needed when it was told, and has no fewer members: then that is still true."""
    if not isinstance(kept.asked, tuple):
        return False
    return kept.asked[:5] == _needs(group, state) and waiting >= len(kept.asked[5])


def _needs(group: PodGroupRecord, state: Quorum) -> tuple[Hashable, ...]:
    return group.minimum, (group.tree, group.levels), tuple(state.lacks), state.bound, state.total


def alike(
    group: PodGroupRecord, state: Quorum, ready: Sequence[PodRecord], waiting: int, *, places: Hashable = ()
) -> Alike | None:
    """What the start depends on where that may be the same for others; else None. ``waiting``: how many members do."""
    is_fresh = not state.bound and not state.done and len(ready) == waiting
    if not is_fresh or any(pod.alone for pod in ready):
        return None
    runs = groupby((pod.cls, pod.subgroup) for pod in ready)
    members = tuple((cls, subgroup, sum(1 for _ in run)) for (cls, subgroup), run in runs)
    return Alike(group.minimum, state.total, group.tree, members, (group.levels, places) if group.levels else ())
