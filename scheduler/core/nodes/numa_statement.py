"""Which nodes can align a pod now, on the working copy of one decision.

A NodeResourceTopology says what is free on each NUMA node as of a moment ago. Pods on their way, those that their node
has not taken up, and those that the decision has placed are put on NUMA nodes as their kubelet will do. Where more
devices or whole CPUs of a node are in use than it reports, its newest pods are not in the report yet, and are put there
as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from scheduler.core.filters.numa import Aligning, Free, aligned, free_of, taken_anywhere
from scheduler.core.model.numa import NumaAsk, NumaRecord
from scheduler.core.model.records import NodeRecord, PodRecord
from scheduler.core.nodes.table import Bools, Selection, Table

_CPU: Final = "cpu"
#: What it takes to look at a node and at each of its pods, in operations of about a microsecond.
_LOOKING: Final = 8
#: Of a node: pods bound to it, and pods on their way to it.
Pods = Callable[[str], tuple[Sequence[PodRecord], Sequence[PodRecord]]]


class NumaStatement:
    """What is free on NUMA nodes, by position. ``pods``: of a node; asked once, and again after a change there.

    ``kept``: what was counted, by node, as long as nothing has changed there (Ledger.numa_free).
    """

    __slots__ = ("_changes", "_effort", "_here", "_judges", "_kept", "_nodes", "_placed", "_pods")

    def __init__(self, nodes: Sequence[NodeRecord], pods: Pods, kept: dict[str, Aligning]) -> None:
        self._nodes = nodes
        self._pods = pods
        self._kept = kept
        self._placed: dict[int, list[NumaAsk]] = {}
        #: Changes that stand, by position; and what was counted beside these, by node.
        self._changes: Counter[int] = Counter()
        self._here: dict[str, Aligning] = {}
        #: Positions of nodes that refuse pods; None: not looked for yet.
        self._judges: frozenset[int] | None = None
        self._effort = 0

    def take_effort(self) -> int:
        """What it took since this was asked last, in operations of about a microsecond."""
        effort, self._effort = self._effort, 0
        return effort

    def fits(self, table: Table, ask: NumaAsk, selection: Selection) -> Bools:
        """Which of these nodes can align a pod."""
        if self._judges is None:
            self._judges = frozenset(at for at, node in enumerate(self._nodes) if node.numa is not None)
        if not self._judges:
            size = len(self._nodes) if isinstance(selection, slice) else len(selection)
            return np.ones(size, np.bool_)
        positions = range(len(self._nodes))[selection] if isinstance(selection, slice) else selection.tolist()
        judges = self._judges
        return np.array([at not in judges or self.admits(table, ask, at) for at in positions], np.bool_)

    def admits(self, table: Table, ask: NumaAsk, position: int) -> bool:
        """Whether one node can."""
        node = self._nodes[position]
        if node.numa is None:
            return True
        self._effort += 1
        known = self._here if self._changes[position] else self._kept
        found = known.get(node.name)
        if found is None:
            found = known[node.name] = Aligning(node.numa, self._count(table, node.numa, position))
        return found.admits(ask)

    # --- changes -----------------------------------------------------------------------------------------------------
    def take(self, position: int, ask: NumaAsk | None) -> None:
        """Something has changed on a node. ``ask``: of a pod that was placed there."""
        if self._nodes[position].numa is not None:
            self._here.pop(self._nodes[position].name, None)
            self._changes[position] += 1
            if ask is not None:
                self._placed.setdefault(position, []).append(ask)

    def give_back(self, position: int, ask: NumaAsk | None) -> None:
        """The last change there was taken back."""
        if self._nodes[position].numa is not None:
            self._here.pop(self._nodes[position].name, None)
            self._changes[position] -= 1
            if ask is not None:
                self._placed[position].pop()

    # --- counting ----------------------------------------------------------------------------------------------------
    def _count(self, table: Table, record: NumaRecord, position: int) -> Free:
        bound, coming = self._pods(record.node)
        self._effort += _LOOKING + len(bound) + len(coming)
        sure = [pod.aligned for pod in bound if not pod.started_s and pod.aligned is not None]
        sure += [pod.aligned for pod in coming if pod.aligned is not None]
        sure += self._placed.get(position, ())
        missing = _missing(table, record, position)
        for ask in sure:
            missing.subtract(dict(ask.whole))
        missing[_CPU] = _missing_cpus(record, bound)
        newest = list(_newest(bound, missing)) if any(amount > 0 for amount in missing.values()) else []
        free = free_of(record)
        for ask in (*reversed(newest), *sure):
            free = aligned(record, free, ask) or free
        # Reservations that nobody has seen yet hold a device each, and pods of before may hold others.
        for number, name in enumerate(record.resources):
            if missing[name] > 0 and name != _CPU:
                taken_anywhere(free, number, missing[name])
        return free


def _missing(table: Table, record: NumaRecord, position: int) -> Counter[str]:
    """Devices that are in use and not reported so, by resource."""
    found: Counter[str] = Counter()
    for number, name in enumerate(record.resources):
        if name == _CPU or name not in table.resources:
            continue
        row = table.resources.index(name)
        found[name] = int(table.total[row, position] - table.free[row, position]) - _reported(record, number)
    return found


def _missing_cpus(record: NumaRecord, bound: Sequence[PodRecord]) -> int:
    """Milli CPUs that pods were given alone since their node took them up, and that are not reported so."""
    if _CPU not in record.resources:
        return 0
    asks = [pod.aligned for pod in bound if pod.started_s and pod.aligned is not None]
    # An exporter lists containers that last: what an init container had and they don't need is free again.
    given = sum(dict(part.amounts).get(_CPU, 0) for ask in asks for part in ask.containers if not part.is_brief)
    return given - _reported(record, record.resources.index(_CPU))


def _reported(record: NumaRecord, number: int) -> int:
    """How much of a resource the node reports as in use."""
    return sum(zone.allocatable[number] - zone.available[number] for zone in record.zones)


def _newest(bound: Sequence[PodRecord], missing: Counter[str]) -> Iterator[NumaAsk]:
    """Of pods that their node has taken up, newest first, those that have what is missing; it is taken off."""
    started = [pod for pod in bound if pod.started_s and pod.aligned is not None]
    for pod in sorted(started, key=lambda pod: (-pod.started_s, pod.uid)):
        if pod.aligned is not None and any(missing[name] > 0 for name, _ in pod.aligned.whole):
            missing.subtract(dict(pod.aligned.whole))
            yield pod.aligned
