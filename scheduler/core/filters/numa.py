"""Nodes whose kubelet could not align a pod on NUMA nodes even if nobody else were there, and which it takes.

A container's hints agree if each of its resources fits on the same NUMA nodes, and each could not do with fewer on an
empty machine. Of such sets kubelet takes the one with the lowest numbers; policy ``single-numa-node`` takes sets of
one. Resources that no NUMA node has are not aligned. What an init container had is had again by those after it: such a
container is put only on NUMA nodes that have all of it. Sources: pkg/kubelet/cm/topologymanager, and generation of
hints in cpumanager and devicemanager beside it (Kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Final

from typing_extensions import override

from scheduler.core.filters.filter import Filter
from scheduler.core.model.numa import AlignedPart, NumaAsk, NumaRecord
from scheduler.core.model.pod_class import Constraints
from scheduler.core.model.records import NodeRecord

#: Answers that are kept of one node.
_MOST_ANSWERS: Final = 64
#: What is free on each NUMA node, in the order of the record's resources.
Free = list[list[int]]


class Aligning:
    """What is free on the NUMA nodes of one node, with the answers that were given; it never changes."""

    __slots__ = ("_answers", "_free", "_record")

    def __init__(self, record: NumaRecord, free: Free) -> None:
        self._record = record
        self._free = free
        self._answers: dict[NumaAsk, bool] = {}

    def admits(self, ask: NumaAsk) -> bool:
        """Whether the kubelet takes a pod."""
        answer = self._answers.get(ask)
        if answer is None:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            answer = self._answers[ask] = admits(self._record, self._free, ask)
        return answer


def free_of(record: NumaRecord) -> Free:
    """What is free as it was reported."""
    return [list(zone.available) for zone in record.zones]


def empty(record: NumaRecord) -> Free:
    """What would be free without any pod."""
    return [list(zone.allocatable) for zone in record.zones]


def admits(record: NumaRecord, free: Free, ask: NumaAsk) -> bool:
    """Whether kubelet takes a pod, with this left on its NUMA nodes."""
    return aligned(record, free, ask) is not None


def aligned(record: NumaRecord, free: Free, ask: NumaAsk) -> Free | None:
    """What is left beside a pod; None if kubelet refuses it."""
    left = [list(zone) for zone in free]
    #: What init containers that have ended leave to those after them; it is free as well.
    reused = [[0] * len(record.resources) for _ in free]
    if record.by_pod:
        return left if _take(record, left, reused, AlignedPart(ask.whole)) else None
    return left if all(_take(record, left, reused, part) for part in ask.containers) else None


def taken_anywhere(free: Free, number: int, amount: int) -> None:
    """Take so much of a resource, from the lowest NUMA nodes: nobody knows from which it is."""
    for zone in free:
        part = min(zone[number], amount)
        zone[number] -= part
        amount -= part


def _take(record: NumaRecord, free: Free, reused: Free, part: AlignedPart) -> bool:
    """Take what one container, or a pod, asks. False: kubelet refuses."""
    numbers = _numbers(record.resources)
    asked = [(numbers[name], amount) for name, amount in part.amounts if name in numbers]
    if not asked:
        return True
    sizes = {_fewest((zone.capacity[number] for zone in record.zones), amount) for number, amount in asked}
    size = sizes.pop()
    if sizes or not size or (record.is_single and size > 1):
        return False
    needed = {at for at, zone in enumerate(reused) for number, _ in asked if zone[number]}
    for zones in _sets(len(free), size):
        if needed.issubset(zones) and all(sum(free[at][number] for at in zones) >= amount for number, amount in asked):
            for number, amount in asked:
                _charge([(free[at], reused[at]) for at in zones], number, amount, is_brief=part.is_brief)
            return True
    return False


def _charge(zones: Sequence[tuple[list[int], list[int]]], number: int, amount: int, *, is_brief: bool) -> None:
    """Take so much of a resource from NUMA nodes: first what may be had again. What is brief may be so afterwards."""
    left = max(0, amount - sum(again[number] for _, again in zones))
    had = amount - left
    for free, again in zones:
        old, fresh = min(again[number], had), min(free[number] - again[number], left)
        had, left = had - old, left - fresh
        if is_brief:
            again[number] += fresh
        else:
            again[number] -= old
            free[number] -= old + fresh


@lru_cache(maxsize=256)
def _numbers(resources: tuple[str, ...]) -> dict[str, int]:
    return {name: number for number, name in enumerate(resources)}


def _fewest(capacities: Iterable[int], amount: int) -> int:
    """How many NUMA nodes have that much when all is free; 0: all together don't."""
    left = amount
    for count, capacity in enumerate(sorted(capacities, reverse=True), 1):
        left -= capacity
        if left <= 0:
            return count
    return 0


@lru_cache(maxsize=64)
def _sets(zones: int, size: int) -> Sequence[tuple[int, ...]]:
    """All sets of this size, in the order of kubelet: by their bits as a number."""
    return sorted(combinations(range(zones), size), key=lambda each: sum(1 << at for at in each))


class NumaAlignment(Filter):
    """Policies ``restricted`` and ``single-numa-node`` of kubelets. What is free is nodes/numa_statement.py's."""

    kind = "numa"
    words = "node(s) whose kubelet can't align the Pod on NUMA nodes"

    @override
    def asked(self, constraints: Constraints) -> NumaAsk | None:
        """What kubelets align of the pod; nothing where no NodeResourceTopology is read."""
        return constraints.aligned

    @override
    def admits(self, node: NodeRecord, asked: NumaAsk) -> bool:
        """Whether the pod fits with nobody else on the node."""
        return node.numa is None or admits(node.numa, empty(node.numa), asked)

    @override
    def effort(self, asked: NumaAsk) -> int:
        """Each container is put on NUMA nodes."""
        return 4 * len(asked.containers)

    @override
    def reads(self, node: NodeRecord) -> object:
        """What was reported of it."""
        return node.numa
