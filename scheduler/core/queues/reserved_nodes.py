"""Reserved nodes: a group that has waited longer than its queue's patience gets a node reserve.

A node reserve is a set of nodes that its owner fits on once what runs there has ended. Until then no group of the same
queue that comes after the owner is placed there, nor one of another queue that has its quota. A group whose end is
known may be placed there if it ends before the node reserve is expected to be free.

The rules as functions of values; the folder ``decide`` applies them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.priority_order import Rank
from scheduler.core.model.quota import Resources
from scheduler.core.queues.accounts import Account
from scheduler.core.queues.tree import Tree, TreeQueue
from wire.units import SECOND_NS

#: ``NodeReserve.free_s`` where the end of something on its nodes is not known.
UNKNOWN: Final = 0
#: The longest time for which nodes are reserved while nobody knows when they are free. Where no others help, their
#: owner gets none for the same time.
LONGEST_S: Final = 3600


class NodeReserve(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Nodes that are kept for one group, its owner. Times in seconds since the epoch.

    ``queue``: name of the leaf in the tree. ``namespace``, ``name``: of the PodGroup, of the pod where it is alone.
    ``since_s``: since when it waits. ``begun_s``: since when it has these nodes and, where nobody knows when they are
    free, since when nobody does. ``gpus``: GPUs and MIG slices of the nodes. ``free_s``: when the last pod there ends.
    """

    queue: str
    rank: Rank
    namespace: str
    name: str
    is_gang: bool
    since_s: int
    begun_s: int
    nodes: tuple[str, ...]
    gpus: int
    free_s: int = UNKNOWN

    @property
    def uid(self) -> str:
        """Of the PodGroup, or of the pod."""
        return self.rank.uid

    def keeps_off(self, *, queue: str, rank: Rank, is_starved: bool, end_s: int) -> bool:
        """Whether a group may not be placed on its nodes. ``end_s``: when that group ends, UNKNOWN if nobody knows."""
        if rank.uid == self.uid:
            return False
        if (rank < self.rank) if queue == self.queue else is_starved:
            return False
        return UNKNOWN in {end_s, self.free_s} or end_s > self.free_s

    def free_at(self, free_s: int, now_s: int) -> NodeReserve:
        """It, with when its nodes are free; where that was known and is not any more, its hour begins now.

        A pod that was let in as it ends in time has no end until it has started.
        """
        is_lost = self.free_s != UNKNOWN and free_s == UNKNOWN
        return msgspec.structs.replace(self, free_s=free_s, begun_s=now_s if is_lost else self.begun_s)

    @property
    def next_look_s(self) -> int:
        """When time alone may end it: its hour is over, or its nodes should be free, and may not be."""
        return self.begun_s + LONGEST_S if self.free_s == UNKNOWN else self.free_s + 1

    def is_too_long(self, now_s: int) -> bool:
        """Whether it has stood for too long, and nobody knows when its nodes are free."""
        return self.free_s == UNKNOWN and now_s >= self.begun_s + LONGEST_S


class Refused(msgspec.Struct, frozen=True, gc=False):
    """A group that found no node reserve at ``at_ns``, by what the answer depended on.

    ``is_passed``: nor would it have, had nobody else one. Others of its queue come before it until it is tried again.
    ``not_before_ns``: it is not tried again before that.
    """

    at_ns: int
    stamp: tuple[object, ...]
    is_passed: bool = False
    not_before_ns: int = 0


class NodeReserves(msgspec.Struct, frozen=True):
    """All node reserves, and what is known of the last look for more. ``next_ns``: when to look next at the latest.

    ``refused``: by UID of the group.
    """

    of: tuple[NodeReserve, ...] = ()
    looked_ns: int | None = None
    stamp: tuple[object, ...] = ()
    refused: Mapping[str, Refused] = {}
    next_ns: int | None = None


def patience_ns(tree: Tree, queue: TreeQueue, default_ns: int) -> int:
    """How long a group of a leaf waits: as the queue says, or the nearest one above it that says something."""
    said = (tree.queues[number].record.patience_ns for number in queue.path)
    return next((each for each in said if each is not None), default_ns)


def ends_of_patience_s(since_s: int, patience_ns: int) -> int:
    """When a group has waited that long, in whole seconds."""
    return since_s - (-patience_ns // SECOND_NS)


def is_starved(account: Account, queue: TreeQueue, use: Resources) -> bool:
    """Whether a queue stays within its quota with that use: nodes that are kept for others are not kept from it."""
    kept = account.kept.plus(use)
    return all(amount <= quota for amount, quota in zip(kept, queue.record.quota, strict=True))


def is_entitled(account: Account, use: Resources, *, behind: Resources) -> bool:
    """Whether a queue is within its fair share with a group. ``behind``: what it uses for groups that come after it.

    Those have overtaken the group: they are no reason to make it wait. Dimensions that it does not ask don't count.
    """
    return all(
        not asked or kept - after + asked <= fair
        for asked, kept, after, fair in zip(use, account.kept, behind, account.fair, strict=True)
    )


def end_s(classes: Iterable[PodClass], begun_s: int, *, is_own: bool) -> int:
    """When the last of these pods ends at the latest, if all begin then; UNKNOWN if nobody knows of one of them.

    Only its kubelet ends a pod in time, so what a pod says of itself counts for its own queue only: else any user could
    have a place on what is kept for others. ``is_own``: the node reserve is of the same queue.
    """
    runtimes = [_runtime_s(cls, is_own=is_own) for cls in classes]
    return begun_s + max(runtimes) if runtimes and all(runtimes) else UNKNOWN


def is_sooner(end_s: int, than_s: int) -> bool:
    """Whether an end is before another one; one that nobody knows is never before, and always after."""
    return end_s != UNKNOWN and (than_s == UNKNOWN or end_s < than_s)


def _runtime_s(cls: PodClass, *, is_own: bool) -> int:
    known = [each for each in (cls.deadline_s, cls.max_runtime_s if is_own else 0) if each]
    return min(known, default=0)
