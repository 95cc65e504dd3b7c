"""What room is made for: a pod alone, or what a gang's minimum still lacks."""

from __future__ import annotations

import msgspec

from scheduler.core.groups.quorum import Quorum
from scheduler.core.model.records import PodGroupRecord, PodRecord


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """``pods`` wait and are judged, in the order in which they are placed: of a gang all that may be placed now.

    ``group`` and ``quorum``: of a gang; ``quorum`` says how many of ``pods`` it needs. A pod alone, and one beyond its
    gang's minimum, has no ``quorum`` and is the only one. ``queue``, ``priority``, ``is_fixed`` (it can't be preempted
    itself): of all pods. ``created`` as the API server writes it, and ``delay_ns`` (``preemptionDelay``) from then on:
    before that it takes from nobody. ``may_evict``: all its pods may (``preemptionPolicy``). Until when (wall clock; 0:
    it may) it takes from nobody as a claim failed (``paused_until_s``, protection.py), and from no other namespace for
    what its own gave up (``own_until_s``, eviction_history.py). ``others``: needs that are equal to it but for their
    pods, and come after it: they may be searched for together.
    """

    pods: tuple[PodRecord, ...]
    group: PodGroupRecord | None = None
    quorum: Quorum | None = None
    queue: str
    priority: int
    is_fixed: bool = False
    created: str = ""
    delay_ns: int = 0
    may_evict: bool = True
    paused_until_s: int = 0
    own_until_s: int = 0
    others: tuple[Need, ...] = ()

    @property
    def all(self) -> tuple[Need, ...]:
        """It, and the others."""
        return self, *self.others

    def first(self, count: int) -> Need:
        """The first ``count`` of it and its others."""
        return self if count > len(self.others) else msgspec.structs.replace(self, others=self.others[: count - 1])

    @property
    def takes(self) -> bool:
        """Whether pods may be taken off their nodes for it now."""
        return self.may_evict and not self.paused_until_s

    @property
    def form(self) -> tuple[object, ...]:
        """What equal needs have in common."""
        asked = tuple((pod.cls, pod.subgroup) for pod in self.pods)
        state = self.quorum
        lacks = None if state is None else (state.tree, tuple(state.lacks), state.of_all, state.total)
        places = None if self.group is None else self.group.levels
        own = (self.own_until_s, self.pods[0].namespace) if self.own_until_s else None
        waits = self.delay_ns, self.may_evict, self.paused_until_s, own
        return self.queue, self.priority, self.is_fixed, waits, places, lacks, asked

    @property
    def has_places(self) -> bool:
        """Whether its pods have to be in one domain of a topology, or prefer that."""
        return self.group is not None and bool(self.group.levels)

    @property
    def owner(self) -> str:
        """By what evictions of its pods are counted."""
        return owner_of(self.pods[0], self.group)


def owner_of(pod: PodRecord, group: PodGroupRecord | None) -> str:
    """By what evictions of a pod are counted: the UID of its PodGroup, its controller's identity, or its own UID."""
    return group.uid if group is not None else pod.controller or pod.uid
