"""What a snapshot can be changed by, as values: ``Snapshot.with_`` takes them, and gives another snapshot.

Each says how the cluster would be, not how it came to that. What a pod that is gone had mounted, and the anti-affinity
of its terms, stay where they are, as after an eviction on paper.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from scheduler.core.decide.draft import Draft
from scheduler.core.model.devices import SliceRecord
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.quota import QueueRecord
from scheduler.core.model.records import NodeRecord
from scheduler.core.queues.use import is_fixed

#: Below every priority that Kubernetes allows.
_LOWEST: Final = -(1 << 31)


class Change(Protocol):
    """One thing that differs; a value."""

    def apply(self, draft: Draft) -> None:
        """Change the parts of the snapshot that is being made."""
        ...


class UnknownObject(LookupError):
    """Raised when a change names an object that the snapshot does not have. ``field``: of the change."""

    def __init__(self, field: str, value: str) -> None:
        super().__init__(f"{field}: {value!r} is not known; name one that is")


class AnotherNode(msgspec.Struct, frozen=True):
    """A node is there, empty, or has this record instead of its own.

    ``slices``: what drivers publish for it, of a node that is new.
    """

    node: NodeRecord
    slices: tuple[SliceRecord, ...] = ()

    def apply(self, draft: Draft) -> None:
        """Put the node, and its devices."""
        draft.put_node(self.node)
        if self.slices:
            draft.publish(self.node.name, self.slices)


class Cordoned(msgspec.Struct, frozen=True):
    """A node takes no further pods."""

    node: str

    def apply(self, draft: Draft) -> None:
        """Put the node with another record."""
        draft.put_node(msgspec.structs.replace(_node(draft, self.node), is_cordoned=True))


class Drained(msgspec.Struct, frozen=True):
    """A node takes no further pods, and those that count in a queue are gone from it."""

    node: str

    def apply(self, draft: Draft) -> None:
        """Cordon the node and take its pods off."""
        Cordoned(self.node).apply(draft)
        for uid in [pod.uid for pod in draft.pods.bound_to(self.node) if pod.queue]:
            draft.drop_pod(uid)


class WithoutPods(msgspec.Struct, frozen=True):
    """These pods (UIDs) are gone. One that is named twice is gone once."""

    uids: tuple[str, ...]

    def apply(self, draft: Draft) -> None:
        """Drop them."""
        for uid in dict.fromkeys(self.uids):
            if uid not in draft.pods.records:
                raise UnknownObject("WithoutPods.uids", uid)
            draft.drop_pod(uid)


class AnotherQueue(msgspec.Struct, frozen=True):
    """A queue has this quota, limit or weight, or is there beside the others."""

    queue: QueueRecord

    def apply(self, draft: Draft) -> None:
        """Put the queue."""
        draft.put_queue(self.queue)


class InQueue(msgspec.Struct, frozen=True):
    """These pods (UIDs), which wait alone, count in this queue, or a PodGroup (namespace, name) with all its pods."""

    queue: str
    uids: tuple[str, ...] = ()
    pod_group: tuple[str, str] | None = None

    def apply(self, draft: Draft) -> None:
        """Put the pods, and the PodGroup."""
        for uid in self.uids:
            pod = draft.pods.records.get(uid)
            if pod is None or pod.node:
                raise UnknownObject("InQueue.uids", uid)
            draft.put_waiting(msgspec.structs.replace(pod, queue=self.queue))
        if self.pod_group is not None:
            group = draft.pod_groups.get(self.pod_group)
            if group is None:
                raise UnknownObject("InQueue.pod_group", "/".join(self.pod_group))
            draft.put_group(msgspec.structs.replace(group, queue=self.queue))


class LastInTurn(msgspec.Struct, frozen=True):
    """Pods (UIDs) that wait have their turn after all others of all queues, with the same right to stay."""

    uids: tuple[str, ...]

    def apply(self, draft: Draft) -> None:
        """Put the pods, and their PodGroups, with the lowest priority, so that they are last among equals, too."""
        for uid in self.uids:
            pod = draft.pods.records.get(uid)
            if pod is None or pod.node:
                raise UnknownObject("LastInTurn.uids", uid)
            group = draft.pod_groups.get((pod.namespace, pod.pod_group)) if pod.pod_group else None
            may_go = not is_fixed(pod, group)
            if group is not None and group.is_preemptible is None:
                draft.put_group(msgspec.structs.replace(group, is_preemptible=may_go))
            draft.put_waiting(msgspec.structs.replace(pod, priority=_LOWEST, is_preemptible=may_go))
            draft.last |= {uid if group is None else group.uid}


class AnotherAsk(msgspec.Struct, frozen=True):
    """Pods (UIDs) that wait ask this, as all members of a gang do, or some."""

    uids: tuple[str, ...]
    cls: PodClass

    def apply(self, draft: Draft) -> None:
        """Put the pods with another class."""
        for uid in self.uids:
            pod = draft.pods.records.get(uid)
            if pod is None or pod.node:
                raise UnknownObject("AnotherAsk.uids", uid)
            draft.put_waiting(msgspec.structs.replace(pod, cls=self.cls))


class AnotherMinimum(msgspec.Struct, frozen=True):
    """A gang starts with this many pods in all. Minimums of its subgroups stay."""

    namespace: str
    pod_group: str
    minimum: int

    def apply(self, draft: Draft) -> None:
        """Put the PodGroup."""
        group = draft.pod_groups.get((self.namespace, self.pod_group))
        if group is None:
            raise UnknownObject("AnotherMinimum.pod_group", f"{self.namespace}/{self.pod_group}")
        draft.put_group(msgspec.structs.replace(group, minimum=self.minimum))


class OnlyThese(msgspec.Struct, frozen=True):
    """Of all pods that wait only these (UIDs), as the members of one gang, are decided on."""

    uids: frozenset[str]

    def apply(self, draft: Draft) -> None:
        """Leave the others out."""
        draft.only = self.uids if draft.only is None else draft.only & self.uids


class NoDoubts(msgspec.Struct, frozen=True):
    """No attempt has failed yet: no node is in doubt, none is out for a pod, and no pod backs off."""

    def apply(self, draft: Draft) -> None:
        """Forget what went wrong."""
        draft.has_no_doubts = True


class NoRoomMade(msgspec.Struct, frozen=True):
    """Nobody is evicted for anybody."""

    def apply(self, draft: Draft) -> None:
        """Switch it off."""
        draft.settings = msgspec.structs.replace(draft.settings, makes_room=False)


class NodesAsAsked(msgspec.Struct, frozen=True):
    """Shares and members of gangs that fit nowhere get a node of their own (supposed_nodes.py)."""

    def apply(self, draft: Draft) -> None:
        """Suppose such nodes."""
        draft.supposes_nodes = True


def _node(draft: Draft, name: str) -> NodeRecord:
    row = draft.ledger.row_of.get(name)
    node = None if row is None else draft.ledger.nodes[row]
    if node is None:
        raise UnknownObject("node", name)
    return node
