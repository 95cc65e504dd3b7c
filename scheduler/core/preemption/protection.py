"""What protects a pod from eviction, and for how long nobody is evicted for a pod (docs/design/preemption.md).

Protected are pods by minimum runtimes, after evictions not long ago, and by PodDisruptionBudgets. A pod that takes may
have to wait for its queue's delay, or because a claim of it failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from scheduler.core.filters.pod_rule import takes
from scheduler.core.model.pod_class import Requirement
from scheduler.core.model.preemption import Action, Budget, Evicted, FailedClaim, Method, PreemptionSettings
from scheduler.core.model.records import PodRecord
from scheduler.core.nodes.extended_claims import made_uid
from scheduler.core.preemption.need import Need
from scheduler.core.queues.tree import Tree, TreeQueue
from wire import rfc3339
from wire.units import SECOND_NS

#: Taken of each budget, by its place in the list; None: nothing may be taken.
Takes = Counter[int] | None
#: A label with its value, or any value of it; None: any pod.
_Label = tuple[str, str | None] | None
#: The most requirements, and values of them, that are looked at for one pod.
#: Where that does not reach, its tenant has written too many: it is nobody's victim.
_MOST_LOOKS: Final = 128


@dataclass(slots=True)
class Budgets:
    """PodDisruptionBudgets, counted before anybody is evicted: each pod that one selects takes one of it.

    A pod that two budgets select is nobody's victim: the API server evicts it under none (500). Nor is one in a
    namespace with a budget whose labels are not known. One with more labels than are kept counts as selected by all
    budgets of its namespace. Pods that other nominations take, and that still exist, have had theirs.

    ``labels``: of bound pods, by UID. ``refused``: UIDs of pods that the API server would not evict.
    """

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
    """Budgets of one namespace, each under the label that the fewest others ask for: a pod meets few of them.

    ``looks``: what it costs to hold a pod against one, by its place.
    """

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


#: After its first eviction within an hour a group is protected for so long, after each further one twice as long.
_FIRST_S: Final = 30
_LONGEST_S: Final = 600


def minimum_ns(tree: Tree, action: Action, settings: PreemptionSettings, *, taker: TreeQueue, victim: TreeQueue) -> int:
    """How long a group of the victim's queue runs before it may be evicted for one of the taker's (as in KAI).

    The first queue that says it, from the victim's own upward; for reclaim, unless the settings name another, from the
    queue just below the lowest one above both.
    """
    path = victim.path
    if action is Action.PREEMPT:
        said = (tree.queues[number].record.preempt_min_runtime_ns for number in path)
        return _first(said, settings.preempt_min_runtime_ns)
    if settings.reclaim_resolve_method is Method.LCA:
        path = path[path.index(parting(taker, victim)[1]) :]
    return _first(
        (tree.queues[number].record.reclaim_min_runtime_ns for number in path), settings.reclaim_min_runtime_ns
    )


def unmoved_ns(tree: Tree, settings: PreemptionSettings, queue: TreeQueue) -> int:
    """How long a group of a queue runs before it may be moved: as long as it is protected from reclaim or preempt."""
    records = [tree.queues[number].record for number in queue.path]
    preempt = _first((each.preempt_min_runtime_ns for each in records), settings.preempt_min_runtime_ns)
    return max(preempt, _first((each.reclaim_min_runtime_ns for each in records), settings.reclaim_min_runtime_ns))


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
    until_s = min(started_s or wall_s, wall_s) - -minimum // SECOND_NS
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
    created_s = (rfc3339.parse_ns(need.created) or 0) // SECOND_NS
    since_s = max(1, created_s, evicted.last_s if evicted is not None else 0)
    return has_run_at_s(since_s, need.delay_ns, wall_s)


_FIRST_PAUSE_S: Final = 300
_LONGEST_PAUSE_S: Final = 14_400
#: The longest time is reached before.
_MOST_DOUBLINGS: Final = 10


def failed_again(before: FailedClaim | None, at_s: int) -> FailedClaim:
    """What is known of a claim that has failed now; ``before``: what was known of it, None: nothing.

    A pod gets its claims bound when its place is free, which is after the evictions: a provisioner that always fails
    would have pods evicted on one node after the other, for a pod that never runs. So after a failure the claim keeps
    its pods from having others evicted, for longer each time.
    """
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
