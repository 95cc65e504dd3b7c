"""PodDisruptionBudgets, counted before anybody is evicted: each pod that one selects takes one of it.

A pod that two budgets select is nobody's victim: the API server evicts it under none (500). Nor is one in a namespace
with a budget whose labels are not known. One with more labels than are kept counts as selected by all budgets of its
namespace. Pods that other nominations take, and that are still there, have had theirs.

A budget is filed under the label that the fewest others of its namespace ask for, so a pod is held against few of them.
Where that does not help, its tenant has written more than is looked at (``_MOST_LOOKS``): it is nobody's victim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from scheduler.core.filters.pod_terms import takes
from scheduler.core.model.pod_class import Requirement
from scheduler.core.model.preemption import Budget
from scheduler.core.model.records import PodRecord

#: Taken of each budget, by its place in the list; None: nothing may be taken.
Takes = Counter[int] | None
#: A label with its value, or any value of it; None: any pod.
_Label = tuple[str, str | None] | None
#: The most requirements, and values of them, that are looked at for one pod.
_MOST_LOOKS: Final = 128


@dataclass(slots=True)
class Budgets:
    """``labels``: of bound pods, by UID. ``refused``: UIDs of pods that the API server would not evict."""

    budgets: Sequence[Budget]
    labels: Mapping[str, Mapping[str, str]]
    refused: Set[str] = frozenset()
    #: What is left of each.
    _left: list[int] = field(init=False)
    _in: dict[str, list[int]] = field(init=False)
    #: By namespace.
    _filed: dict[str, _Files] = field(default_factory=dict)
    #: What selects a pod (UID), as far as it was asked for.
    _known: dict[str, list[int] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._left = [max(0, budget.allowed) for budget in self.budgets]
        self._in = {}
        for at, budget in enumerate(self.budgets):
            self._in.setdefault(budget.namespace, []).append(at)

    @property
    def forbid_nothing(self) -> bool:
        """Whether there is nothing to look at."""
        return not self.budgets and not self.refused

    def spend(self, pods: Iterable[PodRecord]) -> None:
        """Have these pods take theirs, and nobody else: they go, and the API server has not counted that yet."""
        self._left = [max(0, budget.allowed) for budget in self.budgets]
        for pod in pods if self.budgets else ():
            for at in self._of(pod) or ():
                self._left[at] = max(0, self._left[at] - 1)

    def takes(self, pods: Iterable[PodRecord]) -> Takes:
        """What evicting all of these pods takes of budgets; None if it takes more than one has, or may not be."""
        taken = Counter[int]()
        for pod in pods:
            of = self._of(pod)
            if of is None:
                return None
            taken.update(of)
        return taken if self.allow(taken) else None

    def allow(self, taken: Counter[int], more: Counter[int] | None = None) -> bool:
        """Whether so much may be taken in all; of ``more``, beside what is taken already and was allowed."""
        if more is None:
            return all(count <= self._left[at] for at, count in taken.items())
        return all(taken[at] + count <= self._left[at] for at, count in more.items())

    def _of(self, pod: PodRecord) -> list[int] | None:
        """The budget that selects a pod, if any; None if it may not be evicted under any budget."""
        if pod.uid in self.refused:
            return None
        if pod.namespace not in self._in:
            return []
        if pod.uid not in self._known:
            self._known[pod.uid] = self._selecting(pod)
        return self._known[pod.uid]

    def _selecting(self, pod: PodRecord) -> list[int] | None:
        if pod.are_labels_cut:
            return self._in[pod.namespace] if len(self._in[pod.namespace]) == 1 else None
        labels = self.labels.get(pod.uid)
        if labels is None:
            return None
        files = self._filed.get(pod.namespace)
        if files is None:
            there = ((at, self.budgets[at].selector) for at in self._in[pod.namespace])
            files = self._filed[pod.namespace] = _Files([(at, said) for at, said in there if said is not None])
        selecting = list[int]()
        looks = 0
        for at, selector in files.for_labels(labels):
            looks += files.looks[at]
            if looks > _MOST_LOOKS:
                return None
            if takes(selector, labels):
                selecting.append(at)
            if len(selecting) > 1:
                return None
        return selecting


class _Files:
    """Budgets of one namespace. ``looks``: what it costs to hold a pod against one, by its place."""

    def __init__(self, budgets: Sequence[tuple[int, tuple[Requirement, ...]]]) -> None:
        asked = Counter(label for _, selector in budgets for each in selector for label in _labels(each))
        self.looks = {at: 1 + sum(1 + len(each.values) for each in selector) for at, selector in budgets}
        self._under: dict[_Label, list[tuple[int, tuple[Requirement, ...]]]] = {}
        for budget in budgets:
            choices = [labels for each in budget[1] if (labels := _labels(each))]
            rarest = min(choices, key=lambda labels: sum(asked[label] for label in labels), default=(None,))
            for label in dict.fromkeys(rarest):
                self._under.setdefault(label, []).append(budget)

    def for_labels(self, labels: Mapping[str, str]) -> Iterable[tuple[int, tuple[Requirement, ...]]]:
        """Budgets that may select a pod of these labels: each one once."""
        yield from self._under.get(None, ())
        for key, value in labels.items():
            yield from self._under.get((key, value), ())
            yield from self._under.get((key, None), ())


def _labels(requirement: Requirement) -> tuple[_Label, ...]:
    """Of which labels a pod has one, if it meets a requirement; none if it may meet it without any."""
    if requirement.operator == "In":
        return tuple((requirement.key, value) for value in requirement.values)
    return ((requirement.key, None),) if requirement.operator == "Exists" else ()
