"""PodDisruptionBudgets, counted before anybody is evicted: each pod that one selects takes one of it.

A pod that two budgets select is nobody's victim: the API server evicts it under none (500). Nor is one in a namespace
with a budget whose labels are not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from scheduler.core.convert.selectors import takes
from scheduler.core.model.records import PodRecord
from scheduler.core.model.room import Budget

#: Taken of each budget, by its place in the list; None: nothing may be taken.
Takes = Counter[int] | None


@dataclass(slots=True)
class Budgets:
    """``labels``: of bound pods, by UID. ``refused``: UIDs of pods that the API server would not evict."""

    budgets: Sequence[Budget]
    labels: Mapping[str, Mapping[str, str]]
    refused: Set[str] = frozenset()
    _in: dict[str, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self._in = {}
        for at, budget in enumerate(self.budgets):
            self._in.setdefault(budget.namespace, []).append(at)

    @property
    def forbid_nothing(self) -> bool:
        """Whether there is nothing to look at."""
        return not self.budgets and not self.refused

    def takes(self, pods: Iterable[PodRecord]) -> Takes:
        """What evicting all of these pods takes of budgets; None if it takes more than one has, or may not be."""
        taken = Counter[int]()
        for pod in pods:
            of = self._of(pod)
            if of is None:
                return None
            taken.update(of)
        return taken if self.allow(taken) else None

    def allow(self, taken: Counter[int]) -> bool:
        """Whether so much may be taken in all."""
        return all(count <= max(0, self.budgets[at].allowed) for at, count in taken.items())

    def _of(self, pod: PodRecord) -> list[int] | None:
        """The budget that selects a pod, if any; None if it may not be evicted whatever is left of budgets."""
        if pod.uid in self.refused:
            return None
        there = self._in.get(pod.namespace)
        if not there:
            return []
        labels = self.labels.get(pod.uid)
        if labels is None:
            return None
        selecting = [at for at in there if takes(self.budgets[at].selector, labels)]
        return None if len(selecting) > 1 else selecting
