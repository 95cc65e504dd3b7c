"""Pods as columns, so that what a matcher takes of them is found by a look at those that differ, not at each.

A matcher names the labels that it reads. Pods that are alike in these, in their namespace, in whether they go and in
whether their labels are known, are judged once. Columns of labels are made when they are first read, and brought up to
date when they are read again: so an event costs the same, however many labels are read.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.core.filters.pod_rule import COMPARISONS_PER_OPERATION, Matcher
from scheduler.core.filters.pod_terms import LabelsOf
from scheduler.core.model.records import PodRecord
from scheduler.core.nodes.table import Bools

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
    """Pods by slot. ``effort_spent``: what looking has cost so far, in operations of about a microsecond."""

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
