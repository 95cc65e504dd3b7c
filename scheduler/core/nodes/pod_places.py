"""Which pods are on which nodes or on their way there, and how many of them a matcher takes on each node.

An event costs a note, with any number of rules. Who asks for a count pays for what has changed since it was asked last:
so rules that one tenant writes cost nobody else anything. A count is made again from all pods if it is new, if nobody
asked for it for a long time, and if labels of namespaces have changed. Owners of a term are counted by an index: terms
of one tenant's pods are asked for pods of others, and may be new each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from scheduler.core.filters.pod_rule import Matcher
from scheduler.core.filters.pod_terms import LabelsOf, owned_term
from scheduler.core.model.pod_preferences import WeightedTerm
from scheduler.core.model.records import AntiTerm, PodRecord

#: So many notes are kept at least; beyond that, as many as there are pods.
_FEWEST_NOTES: Final = 1_000
#: So many counts are kept; from then on all but those asked last are made again when they are asked.
_MOST_COUNTS: Final = 1_000
#: A look at a pod takes as long as so many comparisons, and an operation as long as so many.
_LOOKING: Final = 4
COMPARISONS_PER_OPERATION: Final = 12
_NOBODY: Final[dict[str, None]] = {}


@dataclass(slots=True)
class _Count:
    """``seen``: the number of the next note to be counted."""

    per_node: Counter[str] = field(default_factory=Counter)
    seen: int = 0


class PodPlaces:
    """Pods by UID with their nodes. A pod that is on its way to several nodes counts on each."""

    def __init__(self, labels_of: LabelsOf) -> None:
        self.labels_of = labels_of
        self._places: dict[str, tuple[PodRecord, tuple[str, ...]]] = {}
        #: Pods (UIDs) by the terms that they have.
        self._owners: dict[AntiTerm | WeightedTerm, dict[str, None]] = {}
        #: Of what came and went: a pod, its nodes, 1 or -1. ``_first``: the number of the first note.
        self._notes: list[tuple[PodRecord, tuple[str, ...], int]] = []
        self._first = 0
        self._counts: dict[Matcher, _Count] = {}
        #: Counts that were asked in this period.
        self._asked: set[Matcher] = set()

    def put(self, pod: PodRecord, nodes: tuple[str, ...]) -> None:
        """A pod is on these nodes, or on its way there."""
        known = self._places.get(pod.uid)
        if known is not None and known[1] == nodes and is_alike(known[0], pod):
            return
        self.drop(pod.uid)
        if nodes:
            self._places[pod.uid] = (pod, nodes)
            for term in _terms(pod):
                self._owners.setdefault(term, {})[pod.uid] = None
            self._note(pod, nodes, 1)

    def drop(self, uid: str) -> None:
        """A pod is nowhere."""
        known = self._places.pop(uid, None)
        if known is None:
            return
        for term in _terms(known[0]):
            owners = self._owners[term]
            del owners[uid]
            if not owners:
                del self._owners[term]
        self._note(*known, -1)

    def of(self, uid: str) -> Iterator[tuple[PodRecord, str]]:
        """A pod with each node that it is on, or on its way to."""
        pod, nodes = self._places.get(uid, (None, ()))
        if pod is not None:
            yield from ((pod, name) for name in nodes)

    def forget_counts(self) -> None:
        """Something has changed that matchers depend on beside pods."""
        self._counts.clear()
        self._forget_notes()
        self._first += 1  # so that nobody takes it for unchanged

    @property
    def number(self) -> int:
        """The number of the next change of places."""
        return self._first + len(self._notes)

    def changes_since(self, number: int, most: int) -> list[tuple[PodRecord, int]] | None:
        """Pods that came (1) or went (-1) since a number; None if that is not known, or they are more than ``most``."""
        if number < self._first or self.number - number > most:
            return None
        return [(pod, by) for pod, _, by in self._notes[number - self._first :]]

    def age(self) -> None:
        """A period is over: forget counts that nobody has asked in it."""
        self._counts = {matcher: count for matcher, count in self._counts.items() if matcher in self._asked}
        self._asked.clear()
        if not self._counts:
            self._forget_notes()

    def _forget_notes(self) -> None:
        self._first += len(self._notes)
        self._notes.clear()

    def _note(self, pod: PodRecord, nodes: tuple[str, ...], by: int) -> None:
        if not self._counts:
            self._first += 1
            return
        self._notes.append((pod, nodes, by))
        if len(self._notes) > max(_FEWEST_NOTES, len(self._places)):
            self._forget_notes()

    def effort(self, matcher: Matcher) -> int:
        """About what it takes to count these pods now, in operations of about a microsecond."""
        count, looked_at = self._counts.get(matcher), len(self._candidates(matcher))
        if count is not None and count.seen >= self._first:
            looked_at = self._first + len(self._notes) - count.seen
        return 1 + looked_at * (_LOOKING + matcher.effort()) // COMPARISONS_PER_OPERATION

    def per_node(self, matcher: Matcher) -> Mapping[str, int]:
        """How many pods of those that a matcher takes are on each node that has some."""
        count = self._as_of_now(matcher)
        self._counts.pop(matcher, None)
        self._asked.add(matcher)
        if len(self._counts) >= _MOST_COUNTS:
            del self._counts[next(iter(self._counts))]
        self._counts[matcher] = count
        return count.per_node

    def _as_of_now(self, matcher: Matcher) -> _Count:
        count = self._counts.get(matcher)
        if count is None or count.seen < self._first:
            count = self._counted(matcher)
        else:
            for pod, nodes, by in self._notes[count.seen - self._first :]:
                if matcher.takes(pod, self.labels_of):
                    _add(count.per_node, nodes, by)
        count.seen = self._first + len(self._notes)
        return count

    def _candidates(self, matcher: Matcher) -> Collection[str]:
        """Pods (UIDs) that a matcher may take."""
        term = owned_term(matcher)
        return self._places if term is None else self._owners.get(term, _NOBODY)

    def _counted(self, matcher: Matcher, among: Collection[str] | None = None) -> _Count:
        count = _Count()
        for uid in self._candidates(matcher) if among is None else among:
            pod, nodes = self._places[uid]
            if matcher.takes(pod, self.labels_of):
                _add(count.per_node, nodes, 1)
        return count

    def differences(self, places: Mapping[str, tuple[PodRecord, tuple[str, ...]]]) -> list[str]:
        """Where places and counts differ from what is known of pods."""
        problems = [f"pod {uid} is counted elsewhere" for uid in places.keys() ^ self._places.keys()]
        for uid in places.keys() & self._places.keys():
            (pod, nodes), (known, counted) = places[uid], self._places[uid]
            if nodes != counted or not is_alike(pod, known):
                problems.append(f"pod {uid} is counted on {counted}, it is on {nodes}")
        of_all = ((each, self._counted(each, self._places).per_node) for each in self._counts)
        wrong = [each for each, per_node in of_all if self._as_of_now(each).per_node != per_node]
        return problems + [f"pods that {matcher} takes are counted wrongly" for matcher in wrong]


def is_alike(one: PodRecord, other: PodRecord) -> bool:
    """Whether matchers take both or neither."""
    return one is other or _asked(one) == _asked(other)


def _asked(pod: PodRecord) -> tuple[object, ...]:
    keeps_off = (pod.keeps_off, bool(pod.keeps_off and pod.node))
    return pod.namespace, pod.labels, pod.deleting, pod.ports, pod.disks, *keeps_off, pod.draws


def _terms(pod: PodRecord) -> tuple[AntiTerm | WeightedTerm, ...]:
    return tuple(dict.fromkeys((*pod.keeps_off, *pod.draws)))


def _add(per_node: Counter[str], nodes: tuple[str, ...], by: int) -> None:
    for node in nodes:
        per_node[node] += by
        if not per_node[node]:
            del per_node[node]
