"""What making room reads besides nodes, queues and pods, kept true while pods are evicted and start again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from scheduler.core.cluster import Cluster
from scheduler.core.filters.pod_terms import takes
from scheduler.core.model.preemption import Budget, Evicted
from scheduler.core.model.records import PodRecord

#: By ``RoomFacts.asked`` None: all victims count as asked to go, since they go at once.
_ALL_ASKED: Final = None


class Evictions:
    """Evictions of the last hour and PodDisruptionBudgets of a cluster, as ``note`` tells it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        facts = cluster.snapshot().room_facts
        self._facts = msgspec.structs.replace(facts, asked=_ALL_ASKED)
        self._labels = dict(facts.labels)
        self._evicted = dict(facts.evicted)
        self._budgets = list(facts.budgets)
        #: By successor (UID): numbers of the budgets that one pod less disturbs once it runs.
        self._disturbs: dict[str, tuple[int, ...]] = {}
        self._has_changed = True

    def note(self) -> None:
        """Tell the cluster what has changed."""
        if self._has_changed:
            self._has_changed = False
            self._facts = msgspec.structs.replace(
                self._facts,
                version=self._facts.version + 1,
                labels=dict(self._labels),
                evicted=dict(self._evicted),
                budgets=tuple(self._budgets),
            )
            self._cluster.note_room_facts(self._facts)

    def is_allowed(self, pod: PodRecord) -> bool:
        """Whether budgets let a pod be evicted now."""
        return all(self._budgets[at].allowed > 0 for at in self._of(pod))

    def evicted(self, pod: PodRecord, owner: str, *, wall_s: int, successor: str) -> None:
        """A pod was evicted for others. ``successor``: the UID of what takes its place, "" if nothing does."""
        known = self._evicted.get(owner, Evicted(0, 0))
        self._evicted[owner] = Evicted(known.times + 1, wall_s)
        disturbed = tuple(self._of(pod))
        self._allow(disturbed, -1)
        if successor and disturbed:
            self._disturbs[successor] = disturbed
        self._has_changed = True

    def started(self, pod: PodRecord) -> None:
        """A pod has a node now."""
        self._allow(self._disturbs.pop(pod.uid, ()), 1)
        if any(budget.namespace == pod.namespace for budget in self._budgets):
            self._labels[pod.uid] = pod.labels
            self._has_changed = True

    def gone(self, uid: str) -> None:
        """A pod is gone."""
        if self._labels.pop(uid, None) is not None:
            self._has_changed = True

    def _of(self, pod: PodRecord) -> Iterator[int]:
        for at, budget in enumerate(self._budgets):
            if budget.namespace == pod.namespace and takes(budget.selector, pod.labels):
                yield at

    def _allow(self, numbers: tuple[int, ...], more: int) -> None:
        for at in numbers:
            budget: Budget = self._budgets[at]
            self._budgets[at] = msgspec.structs.replace(budget, allowed=budget.allowed + more)
            self._has_changed = True
