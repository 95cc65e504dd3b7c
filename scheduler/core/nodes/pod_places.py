"""Which pods are on which nodes or on their way there, and how many of them a matcher takes on each node.

An event costs a note, with any number of rules. Who asks for a count pays for what has changed since it was asked last:
so rules that one tenant writes cost nobody else anything.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.core.filters.pod_rule import COMPARISONS_PER_OPERATION, LabelsOf, Matcher, owned_term
from scheduler.core.model.pod_class import AntiTerm, WeightedTerm
from scheduler.core.model.records import PodRecord
from scheduler.core.nodes.table import Bools, Int64s

#: In the place of a number: the last element of an array that is longer than there are numbers.
NOBODY: Final = -1


class NodeNames:
    """Numbers of the names that are in use; one that nobody uses is given to another name.

    So what is counted by node is an array. ``most``: all numbers are below this.
    """

    __slots__ = ("_at", "_free", "_names", "_number", "_positions", "_users", "most")

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._names: list[str] = []
        self._users: list[int] = []
        self._free: list[int] = []
        self.most = 0
        #: The numbers of nodes in the order that was asked last.
        self._positions: Mapping[str, int] = {}
        self._at: Int64s | None = None

    def enter(self, names: Sequence[str]) -> tuple[int, ...]:
        """Numbers of names that one more uses."""
        return tuple(map(self._enter, names))

    def _enter(self, name: str) -> int:
        number = self._number.get(name)
        if number is None:
            self._at = None
            if self._free:
                number = self._free.pop()
                self._names[number] = name
            else:
                number = self.most
                self.most += 1
                self._names.append(name)
                self._users.append(0)
            self._number[name] = number
        self._users[number] += 1
        return number

    def leave(self, names: Sequence[str]) -> None:
        """One fewer uses these names."""
        for name in names:
            number = self._number[name]
            self._users[number] -= 1
            if not self._users[number]:
                del self._number[name]
                self._free.append(number)
                self._at = None

    def of(self, number: int) -> str:
        """The name of a number in use."""
        return self._names[number]

    def at_positions(self, position_of: Mapping[str, int]) -> Int64s:
        """The numbers of nodes by position; of a node whose name is not in use NOBODY."""
        if self._at is None or self._positions is not position_of:
            self._positions = position_of
            numbers = map(self._number.get, position_of, repeat(NOBODY))
            self._at = np.fromiter(numbers, np.int64, len(position_of))
        return self._at


Codes: TypeAlias = "NDArray[np.int64]"

#: A matcher that reads more labels is asked for each pod.
MOST_KEYS: Final = 8
#: The most columns of labels that are kept: those that were read last.
_MOST_COLUMNS: Final = 64
_FEWEST_SLOTS: Final = 64
#: Codes are used as they are as long as there are no more than this many for a slot.
_CODES_PER_SLOT: Final = 4
#: What it takes to read the label of a pod, and to compare codes, in operations of about a microsecond.
_LABELS_PER_OPERATION: Final = 4
_CODES_PER_OPERATION: Final = 150
#: A look at a pod takes as long as this many comparisons.
LOOKING: Final = 4
#: Of a slot without a pod, and of a pod without a label.
_NONE: Final = 0


@dataclass(slots=True)
class _Column:
    """Values of a label as numbers from 0, by slot; 0 is none. ``seen``: how many writes are in it."""

    numbers: defaultdict[str | None, int]
    codes: Codes
    seen: int


class PodColumns:
    """Pods as columns, by slot. ``effort_spent``: what looking has cost so far, in operations of about a microsecond.

    A matcher names the labels that it reads. Pods that are alike in these, in their namespace, in whether they go and
    in whether their labels are known, are judged once. Columns of labels are made when they are first read, and brought
    up to date when they are read again: so an event costs the same, however many labels are read.
    """

    __slots__ = ("_alike", "_codes", "_columns", "_free", "_written", "effort_spent", "pods")

    def __init__(self) -> None:
        self.pods: list[PodRecord | None] = []
        self._free: list[int] = []
        #: Namespaces, whether pods go, and whether their labels are too many, as numbers; by slot.
        self._alike: dict[tuple[str, bool, bool], int] = {}
        self._codes: Codes = np.zeros(_FEWEST_SLOTS, np.int64)
        self._columns: dict[str, _Column] = {}
        #: Slots that were written since the first column of a label was made.
        self._written: list[int] = []
        self.effort_spent = 0

    def add(self, pod: PodRecord) -> int:
        """Take a pod in, and return its slot."""
        if self._free:
            slot = self._free.pop()
            self.pods[slot] = pod
        else:
            slot = len(self.pods)
            self.pods.append(pod)
            if slot >= len(self._codes):
                self._codes = np.concatenate([self._codes, np.zeros(slot, np.int64)])
        self._codes[slot] = self._alike.setdefault(_alike(pod), len(self._alike) + 1)
        if len(self._alike) > 2 * len(self.pods) + _FEWEST_SLOTS:
            self._number_again()
        self._write(slot)
        return slot

    def _number_again(self) -> None:
        """Leave out namespaces that are gone."""
        self._alike.clear()
        for slot, pod in enumerate(self.pods):
            if pod is not None:
                self._codes[slot] = self._alike.setdefault(_alike(pod), len(self._alike) + 1)

    def drop(self, slot: int) -> None:
        """A pod is gone."""
        self.pods[slot] = None
        self._codes[slot] = _NONE
        self._free.append(slot)
        self._write(slot)
        if len(self._free) == len(self.pods):
            self._forget_all()

    def _write(self, slot: int) -> None:
        if not self._columns:
            return
        self._written.append(slot)
        if len(self._written) > 2 * len(self.pods) + _FEWEST_SLOTS:
            self.forget_labels()

    def forget_labels(self) -> None:
        """Columns of labels are made again when they are read."""
        self._columns.clear()
        self._written.clear()

    def _forget_all(self) -> None:
        self.pods.clear()
        self._free.clear()
        self._alike.clear()
        self.forget_labels()

    def taken(self, matcher: Matcher, keys: Sequence[str], labels_of: LabelsOf) -> Bools:
        """Slots of the pods that a matcher takes, which reads these labels, at most MOST_KEYS."""
        codes, count = self._codes[: len(self.pods)], len(self._alike) + 1
        for key in keys:
            column = self._column(key)
            codes, count = self._narrow(codes, count)
            values = len(column.numbers)
            codes, count = codes * values + column.codes[: len(codes)], count * values
        codes, count = self._narrow(codes, count)
        slots = np.full(count, -1, np.int64)
        slots[codes] = np.arange(len(codes))
        is_taken = np.zeros(count, np.bool_)
        different = (slots >= 0).nonzero()[0]
        for code, slot in zip(different.tolist(), slots[different].tolist(), strict=True):
            pod = self.pods[slot]
            is_taken[code] = pod is not None and matcher.takes(pod, labels_of)
        self.effort_spent += (1 + len(keys)) * len(codes) // _CODES_PER_OPERATION
        self.effort_spent += len(different) * (LOOKING + matcher.effort()) // COMPARISONS_PER_OPERATION
        found: Bools = is_taken[codes]
        return found

    def _narrow(self, codes: Codes, count: int) -> tuple[Codes, int]:
        """The same differences with smaller codes, where codes are much larger than they are many."""
        if count <= _CODES_PER_SLOT * len(codes) + _FEWEST_SLOTS:
            return codes, count
        self.effort_spent += len(codes) // _LABELS_PER_OPERATION
        found, narrowed = np.unique(codes, return_inverse=True)
        return narrowed.astype(np.int64), len(found)

    def _column(self, key: str) -> _Column:
        column = self._columns.pop(key, None)
        if column is None or len(column.numbers) > 2 * len(self.pods) + _FEWEST_SLOTS:
            if len(self._columns) >= _MOST_COLUMNS:
                del self._columns[next(iter(self._columns))]
            column = _Column(_numbers(), np.zeros(len(self._codes), np.int64), len(self._written))
            self._read(column, key)
        else:
            if len(column.codes) < len(self.pods):
                more = np.zeros(len(self._codes) - len(column.codes), np.int64)
                column.codes = np.concatenate([column.codes, more])
            self._read(column, key, dict.fromkeys(self._written[column.seen :]))
            column.seen = len(self._written)
        self._columns[key] = column
        return column

    def _read(self, column: _Column, key: str, slots: Iterable[int] | None = None) -> None:
        """Write the values of these slots, or of all."""
        if slots is None:
            column.codes[: len(self.pods)] = self._numbered(column, self.pods, key)
            return
        wanted = [slot for slot in slots if slot < len(self.pods)]
        column.codes[wanted] = self._numbered(column, [self.pods[slot] for slot in wanted], key)

    def _numbered(self, column: _Column, pods: Sequence[PodRecord | None], key: str) -> Codes:
        """The numbers of the values that pods have, new ones of those that are new."""
        values = [None if pod is None else pod.labels.get(key) for pod in pods]
        self.effort_spent += len(values) // _LABELS_PER_OPERATION
        return np.fromiter(map(column.numbers.__getitem__, values), np.int64, len(values))


def _alike(pod: PodRecord) -> tuple[str, bool, bool]:
    return pod.namespace, pod.deleting, pod.are_labels_cut


def _numbers() -> defaultdict[str | None, int]:
    """Gives the next number to what has none. Slots without a pod, and pods without the label, have the same."""
    return defaultdict(itertools.count(_NONE + 1).__next__, {None: _NONE})


#: The fewest notes that are kept; with more pods than this, as many as there are pods.
_FEWEST_NOTES: Final = 1_000
#: The most counts that are kept; from then on all but those asked last are made again when they are asked.
_MOST_COUNTS: Final = 1_000
_NOBODY: Final[dict[str, None]] = {}

#: Numbers of nodes (pod_places.py).
Numbers: TypeAlias = tuple[int, ...]


@dataclass(slots=True)
class _Count:
    """``per_node``: by number of the node; its last element is nobody's. ``seen``: the number of the next note."""

    per_node: NDArray[np.int32]
    seen: int = 0


@dataclass(slots=True)
class _Place:
    """A pod, the nodes where it counts, and its slot among the columns."""

    pod: PodRecord
    nodes: tuple[str, ...]
    numbers: Numbers
    slot: int


class PodPlaces:
    """Pods by UID with their nodes. A pod that is on its way to several nodes counts on each.

    ``effort_spent``: what counting has cost so far, in operations of about a microsecond.

    A count is made again from all pods if it is new, if nobody asked for it for a long time, and if labels of
    namespaces have changed: by columns, as pods are many and mostly alike. Owners of a term are counted by an index:
    terms of one tenant's pods are asked for pods of others, and may be new each time; and so are pods with ports or
    disks, which are few.
    """

    def __init__(self, labels_of: LabelsOf) -> None:
        self.labels_of = labels_of
        self._places: dict[str, _Place] = {}
        self._names = NodeNames()
        self._columns = PodColumns()
        #: Of each slot the number of its pod's node; slots of pods that count on several nodes, or on none.
        self._node_of: Int64s = np.zeros(0, np.int64)
        self._several: dict[int, Numbers] = {}
        #: Pods (UIDs) by the terms that they have, and those with terms, ports or disks.
        self._owners: dict[AntiTerm | WeightedTerm, dict[str, None]] = {}
        self._with_own: dict[str, None] = {}
        #: Of what came and went: a pod, its nodes, 1 or -1. ``_first``: the number of the first note.
        self._notes: list[tuple[PodRecord, Numbers, int]] = []
        self._first = 0
        self._counts: dict[Matcher, _Count] = {}
        #: Counts that were asked in this period.
        self._asked: set[Matcher] = set()
        self._spent = 0

    @property
    def effort_spent(self) -> int:
        """What counting has cost so far, in operations of about a microsecond."""
        return self._spent + self._columns.effort_spent

    def put(self, pod: PodRecord, nodes: tuple[str, ...]) -> None:
        """A pod is on these nodes, or on its way there."""
        known = self._places.get(pod.uid)
        if known is not None and known.nodes == nodes and is_alike(known.pod, pod):
            return
        self.drop(pod.uid)
        if nodes:
            numbers, slot = self._names.enter(nodes), self._columns.add(pod)
            self._places[pod.uid] = _Place(pod, nodes, numbers, slot)
            self._set_node(slot, numbers)
            for term in _terms(pod):
                self._owners.setdefault(term, {})[pod.uid] = None
            if pod.ports or pod.disks or pod.keeps_off or pod.draws:
                self._with_own[pod.uid] = None
            self._note(pod, numbers, 1)

    def _set_node(self, slot: int, numbers: Numbers) -> None:
        if slot >= len(self._node_of):
            self._node_of = np.concatenate([self._node_of, np.zeros(max(64, slot), np.int64)])
        self._node_of[slot] = numbers[0]
        if len(numbers) > 1:
            self._several[slot] = numbers

    def drop(self, uid: str) -> None:
        """A pod is nowhere."""
        known = self._places.pop(uid, None)
        if known is None:
            return
        for term in _terms(known.pod):
            owners = self._owners[term]
            del owners[uid]
            if not owners:
                del self._owners[term]
        self._with_own.pop(uid, None)
        self._several.pop(known.slot, None)
        self._columns.drop(known.slot)
        self._note(known.pod, known.numbers, -1)
        self._names.leave(known.nodes)

    def of(self, uid: str) -> Iterator[tuple[PodRecord, str]]:
        """A pod with each node that it is on, or on its way to."""
        known = self._places.get(uid)
        if known is not None:
            yield from ((known.pod, name) for name in known.nodes)

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
            self._columns.forget_labels()

    def _forget_notes(self) -> None:
        self._first += len(self._notes)
        self._notes.clear()

    def _note(self, pod: PodRecord, numbers: Numbers, by: int) -> None:
        if not self._counts:
            self._first += 1
            return
        self._notes.append((pod, numbers, by))
        if len(self._notes) > max(_FEWEST_NOTES, len(self._places)):
            self._forget_notes()

    def per_node(self, matcher: Matcher) -> dict[str, int]:
        """How many pods of those that a matcher takes are on each node that has some."""
        per_node = self._asked_for(matcher).per_node
        return {self._names.of(number): int(per_node[number]) for number in per_node.nonzero()[0].tolist()}

    def at_positions(self, matcher: Matcher, position_of: Mapping[str, int]) -> Int64s:
        """The same by position, for nodes in any order; those of an equal order are found once for each object."""
        per_node = self._asked_for(matcher).per_node
        found: Int64s = per_node[self._names.at_positions(position_of)].astype(np.int64)
        return found

    def _asked_for(self, matcher: Matcher) -> _Count:
        count = self._as_of_now(matcher)
        self._counts.pop(matcher, None)
        self._asked.add(matcher)
        if len(self._counts) >= _MOST_COUNTS:
            del self._counts[next(iter(self._counts))]
        self._counts[matcher] = count
        return count

    def _as_of_now(self, matcher: Matcher) -> _Count:
        self._spent += 1
        count = self._counts.get(matcher)
        if count is None or count.seen < self._first:
            count = _Count(self._counted(matcher))
        elif count.seen < self._first + len(self._notes):
            effects = self._notes[count.seen - self._first :]
            self._spent += len(effects) * (LOOKING + matcher.effort()) // COMPARISONS_PER_OPERATION
            if len(count.per_node) <= self._names.most:
                count.per_node = np.concatenate([count.per_node, np.zeros(self._names.most, np.int32)])
            for pod, numbers, by in effects:
                if matcher.takes(pod, self.labels_of):
                    for number in numbers:
                        count.per_node[number] += by
        count.seen = self._first + len(self._notes)
        return count

    def _counted(self, matcher: Matcher) -> NDArray[np.int32]:
        keys, term = matcher.reads, owned_term(matcher)
        if keys is None or len(keys) > MOST_KEYS:
            few = self._with_own if keys is None else self._places
            return self._counted_one_by_one(matcher, few if term is None else self._owners.get(term, _NOBODY))
        is_taken = self._columns.taken(matcher, keys, self.labels_of)
        of_taken = self._node_of[: len(is_taken)][is_taken]
        found = np.bincount(of_taken, minlength=self._names.most + 1).astype(np.int32)
        for slot, numbers in self._several.items():
            if is_taken[slot]:
                for number in numbers[1:]:
                    found[number] += 1
        return found

    def _counted_one_by_one(self, matcher: Matcher, among: Collection[str]) -> NDArray[np.int32]:
        self._spent += len(among) * (LOOKING + matcher.effort()) // COMPARISONS_PER_OPERATION
        found = np.zeros(self._names.most + 1, np.int32)
        for uid in among:
            known = self._places[uid]
            if matcher.takes(known.pod, self.labels_of):
                for number in known.numbers:
                    found[number] += 1
        return found

    def differences(self, places: Mapping[str, tuple[PodRecord, tuple[str, ...]]]) -> list[str]:
        """Where places and counts differ from what is known of pods."""
        problems = [f"pod {uid} is counted elsewhere" for uid in places.keys() ^ self._places.keys()]
        for uid in places.keys() & self._places.keys():
            (pod, nodes), known = places[uid], self._places[uid]
            if nodes != known.nodes or not is_alike(pod, known.pod):
                problems.append(f"pod {uid} is counted on {known.nodes}, it is on {nodes}")
        spent = self._spent, self._columns.effort_spent
        wrong = [each for each in self._counts if self._is_wrong(each)]
        self._spent, self._columns.effort_spent = spent
        return problems + [f"pods that {matcher} takes are counted wrongly" for matcher in wrong]

    def _is_wrong(self, matcher: Matcher) -> bool:
        counted, as_of_now = self._counted_one_by_one(matcher, self._places), self._as_of_now(matcher).per_node
        both = min(len(counted), len(as_of_now))
        return bool((counted[:both] != as_of_now[:both]).any() or counted[both:].any() or as_of_now[both:].any())


def is_alike(one: PodRecord, other: PodRecord) -> bool:
    """Whether matchers take both or neither."""
    return one is other or _asked(one) == _asked(other)


def _asked(pod: PodRecord) -> tuple[object, ...]:
    keeps_off = (pod.keeps_off, bool(pod.keeps_off and pod.node))
    return pod.namespace, pod.labels, pod.are_labels_cut, pod.deleting, pod.ports, pod.disks, *keeps_off, pod.draws


def _terms(pod: PodRecord) -> tuple[AntiTerm | WeightedTerm, ...]:
    return tuple(dict.fromkeys((*pod.keeps_off, *pod.draws))) if pod.keeps_off or pod.draws else ()
