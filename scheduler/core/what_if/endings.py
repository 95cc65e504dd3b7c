"""Family 6: a pod or PodGroup that runs has ended; also a node that is drained, as an administrator asks.

Those are tried, of the same queue and smallest first, that leave room for a pod of the group on a node of theirs, or
use the queue that is at its limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from scheduler.core.decide.changes import Change, Cordoned, Drained, WithoutPods
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Code
from scheduler.core.nodes.table import CPU, GPUS, MEMORY
from scheduler.core.queues.tree import TreeQueue
from scheduler.core.what_if.asking import Finding, Pause, Question, paused
from scheduler.core.what_if.edit import Family, NotPossible, some
from scheduler.core.what_if.subject import Subject
from scheduler.core.what_if.trying import Trying
from scheduler.core.what_if.units import Running, finding_running, gpu_nano, running

#: Pods and PodGroups that are tried.
_MOST: Final = 16
#: What runs is judged so much in one step; and what one costs for each class of the group, in operations.
_AT_ONCE: Final = 256
_JUDGING: Final = 12
_OF_QUEUE: Final = frozenset({Code.OVER_LIMIT, Code.OVER_QUOTA})


class Ended(msgspec.Struct, frozen=True):
    """A pod or PodGroup is gone. ``namespace`` "": the group's own."""

    name: str
    namespace: str = ""

    @property
    def family(self) -> Family:
        """Family 6."""
        return Family.ENDED

    @property
    def is_own(self) -> bool:
        """Others may take what it leaves."""
        return False

    def spelled(self) -> str:
        """``finish job-x``."""
        return f"finish {self.namespace}/{self.name}" if self.namespace else f"finish {self.name}"

    def changes(self, snapshot: Snapshot, subject: Subject) -> tuple[Change, ...]:
        """Drop its pods. Raises NotPossible if none of that name runs."""
        namespace = self.namespace or subject.namespace
        there = running(snapshot, subject.uids)
        found = [each for each in there if (each.namespace, each.name) == (namespace, self.name)]
        if not found:
            names = sorted({f"{each.namespace}/{each.name}" for each in there})
            allowed = f"allowed are pods and PodGroups that run: {some(names)}" if names else "nothing runs"
            raise NotPossible(f"finish {namespace}/{self.name}: {allowed}")
        return (WithoutPods(tuple(uid for each in found for uid in each.uids)),)


class NodeOut(msgspec.Struct, frozen=True):
    """A node is drained, or cordoned."""

    node: str
    is_drained: bool = True

    @property
    def family(self) -> Family:
        """It helps nobody in most cases; its pods end, so family 6."""
        return Family.ENDED

    @property
    def is_own(self) -> bool:
        """Others are concerned."""
        return False

    def spelled(self) -> str:
        """``drain n4``."""
        return f"{'drain' if self.is_drained else 'cordon'} {self.node}"

    def changes(self, snapshot: Snapshot, subject: Subject) -> tuple[Change, ...]:
        """Cordon it and take its pods off. Raises NotPossible if it is not there."""
        del subject
        if self.node not in snapshot.ledger.row_of:
            raise NotPossible(f"{self.spelled()}: {no_node(snapshot)}")
        return (Drained(self.node) if self.is_drained else Cordoned(self.node),)


def no_node(snapshot: Snapshot) -> str:
    """Which nodes may be named."""
    return f"allowed are nodes: {some(sorted(snapshot.ledger.row_of))}"


def candidates(trying: Trying) -> Finding:
    """Find edits that help: what is of the group's own queue first, and of that what holds least."""
    snapshot, subject = trying.snapshot, trying.subject
    tried = 0
    there = yield from paused(finding_running(snapshot, (pod.uid for pod in subject.bound)))
    classes = tuple(subject.classes())
    for number, each in enumerate(sorted(there, key=lambda each: each.queue != subject.queue), 1):
        if number % _AT_ONCE == 0:
            yield Pause(_AT_ONCE * _JUDGING * len(classes))
        if not _may_help(each, classes, trying):
            continue
        if tried == _MOST:
            return
        tried += 1
        if (yield Question((WithoutPods(each.uids),))):
            yield Ended(each.name, "" if each.namespace == subject.namespace else each.namespace)


# --- who may help at all ---------------------------------------------------------------------------------------------
def _may_help(each: Running, classes: Sequence[PodClass], trying: Trying) -> bool:
    verdict = trying.outcome().verdict
    if verdict is not None and verdict.code in _OF_QUEUE and verdict.queue is not None:
        leaf, tree = trying.snapshot.queues.tree.find(each.queue), trying.snapshot.queues.tree
        return isinstance(leaf, TreeQueue) and any(tree.queues[at].name == verdict.queue.at for at in leaf.path)
    if any(cls.rules is not None or cls.avoids for cls in classes) or any(pod.keeps_off for pod in each.pods):
        return True
    at_nodes: dict[str, list[PodRecord]] = {}
    for pod in each.pods:
        at_nodes.setdefault(pod.node, []).append(pod)
    return any(_leaves_room(name, pods, cls, trying) for name, pods in at_nodes.items() for cls in classes)


def _leaves_room(name: str, pods: list[PodRecord], cls: PodClass, trying: Trying) -> bool:
    """Whether a node has enough for a pod without these, as far as CPU, memory and whole GPUs go."""
    ledger = trying.snapshot.ledger
    row = ledger.row_of.get(name)
    if row is None:
        return False
    free = ledger.table.free
    for at, asked, held in (
        (CPU, cls.demand.cpu_milli, sum(pod.cls.demand.cpu_milli for pod in pods)),
        (MEMORY, cls.demand.mem_mib, sum(pod.cls.demand.mem_mib for pod in pods)),
    ):
        if int(free[at, row]) + held < asked:
            return False
    whole = sum(pod.cls.demand.gpus for pod in pods) + len({held.group for pod in pods for held in pod.held})
    if int(free[GPUS, row]) + whole < cls.demand.gpus:
        return False
    is_for_gpu = not cls.request.is_shared or any(map(gpu_nano, pods))
    return is_for_gpu or cls.demand.cpu_milli > int(free[CPU, row]) or cls.demand.mem_mib > int(free[MEMORY, row])
