"""What queues hold, request and are due, counted by the scheduler's core from the page's objects. Pure.

Each pod has a row in the core's sums, counted again when something about it was marked; shares are divided again when a
sum has changed. So a change costs that of its pods and one division. Rows know no earlier version of an object, so a
recorded run may be shown backwards as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from cli.page.objects import Key, Marks, Objects
from scheduler.core.convert.bind_requests import bind_request_record
from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.pod_groups import pod_group_record
from scheduler.core.convert.pods import pod_record
from scheduler.core.convert.queues import queue_record
from scheduler.core.model.records import NodeRecord, PodGroupRecord, PodRecord
from scheduler.core.model.resources import Resources
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.node_usage import Charge
from scheduler.core.queues.queues import Queues
from scheduler.core.queues.sums import Row
from scheduler.core.queues.tree import Tree
from scheduler.core.report.queue_view import QueueView, queue_views
from scheduler.status.reasons import told

_SETTINGS: Final = Settings()
#: Pods or nodes that are counted before other tasks run: about 50 us each.
_PER_TURN: Final = 64


class QueueCounts:
    """Counts of ``objects``, as of what was marked when they were last brought up to date."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._queues = Queues(lambda: None)
        self._nodes: dict[str, NodeRecord] = {}
        #: By UID: of pods that count, here or off what queues divide.
        self._pods: dict[str, PodRecord] = {}
        self._groups: dict[Key, PodGroupRecord] = {}
        #: What was shown last, and of what: the tree, the version of the sums, and what is divided.
        self._made: tuple[tuple[Tree, int, Resources], list[QueueView]] | None = None

    def update(self, marks: Marks) -> Iterator[None]:
        """Count again what is marked; yields now and then, so that others get a turn."""
        for name in marks.queues:
            self._read_queue(name)
        pods = dict(marks.pods)
        for key in marks.groups:
            pods |= dict.fromkeys(self._read_group(key))
        for number, uid in enumerate(pods, 1):
            self._read_pod(uid)
            if number % _PER_TURN == 0:
                yield
        for number, name in enumerate(marks.nodes, 1):
            pods |= dict.fromkeys(self._read_node(name))
            if number % _PER_TURN == 0:
                yield
        for number, uid in enumerate(pods, 1):
            self._queues.sums.put(uid, self._row(uid))
            if number % _PER_TURN == 0:
                yield

    def views(self) -> list[QueueView]:
        """All queues by name; the same list as long as nothing about them has changed."""
        made = self._queues.accounts()
        made_of = made.tree, self._queues.sums.version, made.total
        if self._made is None or self._made[0] != made_of:
            self._made = made_of, queue_views(self._queues, made, lambda verdict: told(verdict).message)
        return self._made[1]

    # --- reading -----------------------------------------------------------------------------------------------------
    def _read_queue(self, name: str) -> None:
        queue = self._objects.queues.get(name)
        if queue is not None:
            self._queues.records.put(queue_record(queue))
        elif (known := self._queues.records.get(name)) is not None:
            self._queues.records.drop(known)

    def _read_group(self, key: Key) -> Iterable[str]:
        """Read a PodGroup; return the pods (UIDs) whose counts change with it."""
        group, known = self._objects.groups.get(key), self._groups.pop(key, None)
        record = pod_group_record(group) if group is not None else None
        if record is not None:
            self._groups[key] = record
        if _counts(record) == _counts(known):
            return ()
        return [pod.metadata.uid for pod in self._objects.members(key)]

    def _read_pod(self, uid: str) -> None:
        pod = self._objects.pods.get(uid)
        record = pod_record(pod, _SETTINGS) if pod is not None else None
        if record is None:
            self._pods.pop(uid, None)
        else:
            self._pods[uid] = record

    def _read_node(self, name: str) -> Iterable[str]:
        """Read a node; return the pods (UIDs) whose counts change with it."""
        node, known = self._objects.nodes.get(name), self._nodes.pop(name, None)
        here = [pod.metadata.uid for pod in self._objects.pods_on(name)]
        record = node_record(node) if node is not None else None
        if record is None:
            is_other = self._queues.drop_node(name)
        else:
            self._nodes[name] = record
            is_other = self._queues.count_node(record, [self._pods[uid] for uid in here if uid in self._pods])
        changed = here if _card(record) != _card(known) else []
        return [*changed, *(uid for uid, pod in self._pods.items() if not pod.node)] if is_other else changed

    def _row(self, uid: str) -> Row | None:
        pod = self._pods.get(uid)
        if pod is None:
            return None
        group = self._groups.get((pod.namespace, pod.pod_group)) if pod.pod_group else None
        charges = () if pod.node else tuple(self._charges(pod, group))
        return self._queues.row(pod, group, charges, self._nodes.get(pod.node))

    def _charges(self, pod: PodRecord, group: PodGroupRecord | None) -> Iterator[Charge]:
        """Where a pod is on its way to, or has a place in its group's plan."""
        request = self._objects.requests.get((pod.namespace, pod.name))
        record = bind_request_record(request) if request is not None else None
        if record is not None and record.pod_uid == pod.uid:
            yield Charge(pod_uid=pod.uid, node=record.node, devices=record.devices)
        planned = group.planned.get(pod.uid) if group is not None else None
        if planned is not None:
            yield Charge(pod_uid=pod.uid, node=planned.node, devices=planned.devices)


def _counts(group: PodGroupRecord | None) -> object:
    """What of a PodGroup says where and as what its pods count."""
    return None if group is None else (group.queue, group.is_preemptible, group.planned)


def _card(node: NodeRecord | None) -> int:
    """What pods without a grant count for depends on the cards of their node."""
    return node.smallest_card_mib if node is not None else 0
