"""The objects that the page is drawn from, as watches bring them, and what has to be drawn again. No I/O, no clock.

What an object touches is marked: its node, its group, itself. The drawing code takes the marks; so the cost of a change
is that of one node, and a burst of changes to it is drawn once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from gpu.node_use import NodeUse, agents, node_use
from ui.inspect.survey import group_of, matters
from ui.page.values import EventLine
from wire import names
from wire.core import Node, ObjectMeta, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.gpunode import GpuNode
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue, QueueStatus

Key = tuple[str, str]
A = TypeVar("A")
B = TypeVar("B")
Stored = TypeVar("Stored", Node, Pod, BindRequest, PodGroup)

#: The most events that are kept, the newest: a busy cluster makes more of them than anybody reads.
MOST_EVENTS: Final = 500
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(slots=True)
class Marks:
    """What has to be drawn again: nodes by name, waiting pods by UID, events by key, groups by namespace and name.

    Queues by name.
    """

    nodes: dict[str, None] = field(default_factory=dict)
    pods: dict[str, None] = field(default_factory=dict)
    events: dict[str, None] = field(default_factory=dict)
    groups: dict[Key, None] = field(default_factory=dict)
    queues: dict[str, None] = field(default_factory=dict)


class Objects:
    """``on_change`` is called after every change."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self.nodes: dict[str, Node] = {}
        #: By UID.
        self.pods: dict[str, Pod] = {}
        self.requests: dict[Key, BindRequest] = {}
        self.groups: dict[Key, PodGroup] = {}
        self.queues: dict[str, Queue] = {}
        #: What agents report of their nodes, by node.
        self.gpu_nodes: dict[str, GpuNode] = {}
        #: The newest, by namespace/name, in the order in which they came.
        self.events: dict[str, EventLine] = {}
        self.marks = Marks()
        #: Those whose pods are here; None: all, so that it can be said what is idle.
        self.namespaces: frozenset[str] | None = None
        #: What went wrong with keeping them (ui/page/recording.py); "": nothing.
        self.trouble = ""
        self._on_node: dict[str, dict[str, None]] = {}
        self._of_group: dict[Key, dict[str, None]] = {}
        self._uid_of: dict[Key, str] = {}
        self._headed_to: dict[str, dict[Key, None]] = {}
        self._on_change = on_change

    # --- what is asked of it -----------------------------------------------------------------------------------------

    def pods_on(self, node: str) -> list[Pod]:
        """Pods that are bound there."""
        return [self.pods[uid] for uid in self._on_node.get(node, ())]

    def headed_to(self, node: str) -> list[BindRequest]:
        """Hand-overs to a node."""
        return [self.requests[key] for key in self._headed_to.get(node, ())]

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The pod of that name."""
        return self.pods.get(self._uid_of.get((namespace, name), ""))

    def pods_for(self, node: str) -> list[Pod]:
        """Pods on a node, and those that are on their way to it."""
        here = {pod.metadata.uid: pod for pod in self.pods_on(node)}
        for request in self.headed_to(node):
            if (pod := self.pod(request.metadata.namespace, request.spec.pod_name)) is not None:
                here[pod.metadata.uid] = pod
        return list(here.values())

    def use_on(self, node: str) -> NodeUse | None:
        """What tenants use there, as its agent reports it; None: no agent has reported."""
        report = self.gpu_nodes.get(node)
        if report is None:
            return None
        reads_agents = self.namespaces is None or names.NODE_NAMESPACE in self.namespaces
        return node_use(report, agents(self.pods_on(node)) if reads_agents else None)

    def members(self, group: Key) -> list[Pod]:
        """Pods that name a PodGroup."""
        return [self.pods[uid] for uid in self._of_group.get(group, ())]

    def take_marks(self) -> Marks:
        """Return what has to be drawn again; it counts as drawn from here on."""
        taken, self.marks = self.marks, Marks()
        return taken

    # --- what watches tell -------------------------------------------------------------------------------------------

    def put_node(self, node: Node) -> None:
        """Take a node as it is now. Heartbeats change nothing that is drawn."""
        known = self.nodes.get(node.metadata.name)
        self.nodes[node.metadata.name] = node
        if known is None or _shown(known) != _shown(node):
            self._mark_node(node.metadata.name)

    def drop_node(self, name: str) -> None:
        """A node is gone."""
        if self.nodes.pop(name, None) is not None:
            self._mark_node(name)

    def put_pod(self, pod: Pod) -> None:
        """Take a pod as it is now."""
        meta = pod.metadata
        if (known := self._uid_of.get((meta.namespace, meta.name))) not in {None, meta.uid}:
            self.drop_pod(str(known))  # one of the same name came after it, and its end was not seen
        self._unlink(meta.uid)
        self.pods[meta.uid] = pod
        self._uid_of[meta.namespace, meta.name] = meta.uid
        if pod.spec.node_name:
            self._on_node.setdefault(pod.spec.node_name, {})[meta.uid] = None
        if (group := group_of(pod)) is not None:
            self._of_group.setdefault(group, {})[meta.uid] = None
        self._mark_pod(pod)

    def drop_pod(self, uid: str) -> None:
        """A pod is gone."""
        pod = self.pods.get(uid)
        if pod is not None:
            self._unlink(uid)
            del self.pods[uid]
            del self._uid_of[pod.metadata.namespace, pod.metadata.name]
            self._mark_pod(pod)

    def put_request(self, request: BindRequest) -> None:
        """Take a hand-over as it is now."""
        key = placed(request.metadata)
        self.drop_request(key)
        self.requests[key] = request
        self._headed_to.setdefault(request.spec.selected_node, {})[key] = None
        self._mark_request(request)

    def drop_request(self, key: Key) -> None:
        """A hand-over is gone."""
        if (known := self.requests.pop(key, None)) is not None:
            _take_out(self._headed_to, known.spec.selected_node, key)
            self._mark_request(known)

    def put_group(self, group: PodGroup) -> None:
        """Take a PodGroup as it is now."""
        key = placed(group.metadata)
        known = self.groups.get(key)
        self.groups[key] = group
        if known is None or known.spec.queue != group.spec.queue:
            self._mark_members(key)
        self._mark_group(key)

    def drop_group(self, key: Key) -> None:
        """A PodGroup is gone."""
        if self.groups.pop(key, None) is not None:
            self._mark_members(key)
            self._mark_group(key)

    def put_queue(self, queue: Queue) -> None:
        """Take a queue as it is now. What is reported of its use changes nothing that is drawn."""
        name = queue.metadata.name
        if self.queues.get(name) != queue:
            self.queues[name] = queue
            self.marks.queues[name] = None
            self._on_change()

    def drop_queue(self, name: str) -> None:
        """A queue is gone."""
        if self.queues.pop(name, None) is not None:
            self.marks.queues[name] = None
            self._on_change()

    def put_gpu_node(self, report: GpuNode) -> None:
        """Take what the agent of a node reports now."""
        name = report.metadata.name
        known = self.gpu_nodes.get(name)
        self.gpu_nodes[name] = report
        if known is None or (known.spec, known.status) != (report.spec, report.status):
            self._mark_node(name)

    def drop_gpu_node(self, name: str) -> None:
        """A report is gone."""
        if self.gpu_nodes.pop(name, None) is not None:
            self._mark_node(name)

    def put_event(self, event: EventLine) -> None:
        """Take an event; the one that came first makes room for it."""
        self.events.pop(event.key, None)
        self.events[event.key] = event
        self.marks.events[event.key] = None
        while len(self.events) > MOST_EVENTS:
            self.drop_event(next(iter(self.events)))
        self._on_change()

    def drop_event(self, key: str) -> None:
        """An event is gone."""
        if self.events.pop(key, None) is not None:
            self.marks.events[key] = None
            self._on_change()

    # --- marking -----------------------------------------------------------------------------------------------------

    def _mark_node(self, name: str) -> None:
        self.marks.nodes[name] = None
        self._on_change()

    def _mark_group(self, key: Key) -> None:
        self.marks.groups[key] = None
        self._on_change()

    def _mark_members(self, key: Key) -> None:
        """The queue of a PodGroup's pods may be another one."""
        for pod in self.members(key):
            self._mark_pod(pod)

    def _mark_pod(self, pod: Pod) -> None:
        self.marks.pods[pod.metadata.uid] = None
        if pod.spec.node_name:
            self.marks.nodes[pod.spec.node_name] = None
        if (group := group_of(pod)) is not None:
            self.marks.groups[group] = None
        # A pod on its way is named by the node that it is going to.
        if (request := self.requests.get((pod.metadata.namespace, pod.metadata.name))) is not None:
            self.marks.nodes[request.spec.selected_node] = None
        self._on_change()

    def _mark_request(self, request: BindRequest) -> None:
        self.marks.nodes[request.spec.selected_node] = None
        if (pod := self.pod(request.metadata.namespace, request.spec.pod_name)) is not None:
            self.marks.pods[pod.metadata.uid] = None
        self._on_change()

    def _unlink(self, uid: str) -> None:
        known = self.pods.get(uid)
        if known is None:
            return
        if known.spec.node_name:
            self.marks.nodes[known.spec.node_name] = None
            _take_out(self._on_node, known.spec.node_name, uid)
        if (group := group_of(known)) is not None:
            self.marks.groups[group] = None
            _take_out(self._of_group, group, uid)


def newest(events: Iterable[EventLine]) -> list[EventLine]:
    """Those of a list that are kept, the oldest first: a list has them by namespace.

    Of those that come one by one the order is that in which they came: what they say of their time anybody can write.
    """
    return sorted(events, key=lambda event: event.at.removesuffix("Z"))[-MOST_EVENTS:]


def kept(pod: Pod) -> Pod:
    """What is kept of a pod: what it takes of its node, and where it has to do with GPUs its metadata and environment.

    What it runs, its volumes and its manifest are never drawn, and may be large.
    """
    if matters(pod):
        # A pod that admission has not seen may have other systems' words in its environment.
        spec = msgspec.structs.replace(
            pod.spec,
            containers=[msgspec.structs.replace(c, command=None, args=None) for c in pod.spec.containers],
            init_containers=[
                msgspec.structs.replace(c, command=None, args=None) for c in pod.spec.init_containers or ()
            ]
            or None,
            volumes=None,
        )
        return msgspec.structs.replace(unapplied(pod), spec=spec)
    containers = [
        msgspec.structs.replace(c, env=None, env_from=None, command=None, args=None) for c in pod.spec.containers
    ]
    spec = msgspec.structs.replace(pod.spec, containers=containers, volumes=None, affinity=None)
    # What it was placed for, or its group, says in which queue it counts.
    written = pod.metadata.annotations or {}
    annotations = {key: written[key] for key in (names.POD_GROUP_NAME, names.CHARGED) if written.get(key)}
    meta = msgspec.structs.replace(pod.metadata, annotations=annotations or None, owner_references=None)
    return msgspec.structs.replace(pod, metadata=meta, spec=spec)


def kept_queue(queue: Queue) -> Queue:
    """What is kept of a queue: what is written in it. Controllers report its use every few seconds."""
    meta = queue.metadata
    pool = (meta.labels or {}).get(names.NODE_POOL_LABEL)
    labels = {names.NODE_POOL_LABEL: pool} if pool is not None else None
    known = ObjectMeta(name=meta.name, uid=meta.uid, creation_timestamp=meta.creation_timestamp, labels=labels)
    return msgspec.structs.replace(queue, metadata=known, status=QueueStatus())


def _shown(node: Node) -> tuple[object, ...]:
    status = node.status
    told = [(c.type, c.status) for c in status.conditions or ()]
    return node.metadata.labels, node.metadata.annotations, node.spec, status.capacity, status.allocatable, told


def placed(meta: ObjectMeta) -> Key:
    """By what an object is known that has a namespace."""
    return meta.namespace, meta.name


def _take_out(index: dict[A, dict[B, None]], at: A, what: B) -> None:
    if (held := index.get(at)) is not None:
        held.pop(what, None)
        if not held:
            del index[at]


def unapplied(obj: Stored) -> Stored:
    """Without what kubectl keeps of its manifest."""
    annotations = obj.metadata.annotations or {}
    if _APPLIED not in annotations:
        return obj
    left = {key: value for key, value in annotations.items() if key != _APPLIED}
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, annotations=left))
