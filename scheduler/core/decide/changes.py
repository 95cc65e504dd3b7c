"""What a snapshot can be changed by, as values: ``Snapshot.with_`` takes them, and gives another snapshot.

Each says how the cluster would be, not how it came to that. What a pod that is gone had mounted stays where it is, as
after an eviction on paper. Parts that a change touches are copied first, others are shared; nodes and pods that differ
are counted again in the end, each once.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from gpu.request import MemoryAsk
from scheduler.core.assumed.commits import Commits, demand_at
from scheduler.core.model.devices import SliceRecord
from scheduler.core.model.plan import Placement
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.quota import QueueRecord
from scheduler.core.model.records import Held, NodeRecord, PodGroupRecord, PodRecord
from scheduler.core.model.seen_pods import Pods
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.preemption.victim_table import ResidentTable
from scheduler.core.queues.queues import Queues
from scheduler.core.queues.tree import Row
from scheduler.core.queues.use import is_fixed
from scheduler.core.scheduling_queue.verdicts import Key
from scheduler.core.snapshot.node_count import Supposed, count_node


@dataclass(slots=True, kw_only=True)
class Draft:
    """Parts of a snapshot, named as there. What is read off it is as far as the changes so far have made it."""

    settings: Settings
    ledger: Ledger
    pods: Pods
    pod_groups: Mapping[Key, PodGroupRecord]
    commits: Commits
    queues: Queues
    residents: ResidentTable
    gone: frozenset[str]
    only: frozenset[str] | None
    last: frozenset[str]
    has_no_doubts: bool
    supposes_nodes: bool
    published: Mapping[str, tuple[SliceRecord, ...]]
    bound: tuple[Placement, ...]
    #: There are nodes that reach other devices than is known: further ones, and those that have other labels.
    has_other_nodes: bool = False
    #: Parts that are copies by now.
    _own: set[str] = field(default_factory=set)
    #: Names of nodes, and UIDs of pods, to be counted again.
    _nodes: dict[str, None] = field(default_factory=dict)
    _pods: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Units are read when room is looked for, so a decision writes that table: it has one of its own."""
        self.residents = self.residents.copy() if self.settings.preemption else ResidentTable()

    # --- what changes say ----------------------------------------------------------------------------------------
    def put_node(self, node: NodeRecord) -> None:
        """A node is there, or has another record."""
        self._own_ledger()
        known = self._node(node.name)
        self.has_other_nodes |= known is None or known.labels != node.labels
        if self.ledger.put(node):
            self._nodes.update(dict.fromkeys(self.ledger.row_of))
        self._nodes[node.name] = None
        self._pods.update((pod.uid, None) for pod in self.pods.bound_to(node.name))
        if known is None or known.smallest_card_mib != node.smallest_card_mib:
            for pod in self.pods.bound_to(node.name):
                self.residents.mark(pod)  # without a grant it counts by the cards of its node

    def publish(self, node: str, slices: tuple[SliceRecord, ...]) -> None:
        """Drivers publish these slices for a node, and no others that it alone reaches."""
        self.published = {**self.published, node: slices}

    def drop_pod(self, uid: str) -> None:
        """A pod is gone."""
        self._own_pods()
        charges = self.commits.charges_of(uid)
        record = self.pods.drop(uid)
        self.gone |= {uid}
        self._pods[uid] = None
        self._nodes.update((charge.node, None) for charge in charges)
        if record is not None:
            self.residents.mark(record)
            self._nodes[record.node] = None

    def put_waiting(self, pod: PodRecord) -> None:
        """A pod without a node asks something else."""
        self._own_pods()
        self.pods.put(pod)
        self._pods[pod.uid] = None

    def put_bound(self, pod: PodRecord, placement: Placement) -> None:
        """A pod that waited has a node."""
        self._own_pods()
        self.bound = (*self.bound, placement)
        self.pods.put(pod)
        self._pods[pod.uid] = self._nodes[pod.node] = None
        self.residents.mark(pod)

    def put_group(self, group: PodGroupRecord) -> None:
        """A PodGroup has another record."""
        key = group.namespace, group.name
        self.pod_groups = ChainMap({key: group}, dict(self.pod_groups))
        self.residents.mark_group((*key, ""))
        self._pods.update((pod.uid, None) for pod in self.pods.members(*key))

    def put_queue(self, queue: QueueRecord) -> None:
        """A queue has another record, or is new."""
        self._own_queues()
        self.queues.records.put(queue)

    # --- copies --------------------------------------------------------------------------------------------------
    def _is_first(self, part: str) -> bool:
        """Whether this part is to be copied now."""
        is_first = part not in self._own
        self._own.add(part)
        return is_first

    def _own_ledger(self) -> None:
        if self._is_first("ledger"):
            self.ledger = self.ledger.copy()

    def _own_pods(self) -> None:
        if self._is_first("pods"):
            self.pods = self.pods.copy()

    def _own_queues(self) -> None:
        if self._is_first("queues"):
            self.queues = self.queues.copy()

    # --- the end -------------------------------------------------------------------------------------------------
    def count(self) -> None:
        """Count nodes and pods again, so that ledger and queues are those of what is known now."""
        self._nodes.pop("", None)
        if self._nodes:
            self._own_ledger()
            self._own_queues()
        supposed, have_cards_changed = Supposed(evicted=self.gone), False
        for name in self._nodes:
            node = self._node(name)
            if node is None:
                continue
            used = count_node(
                node, name, pods=self.pods, commits=self.commits, settings=self.settings, supposed=supposed
            )
            self.ledger.write(name, used)
            have_cards_changed |= self.queues.count_node(node, self.pods.bound_to(name))
        if have_cards_changed:
            self._pods.update((uid, None) for uid in self.pods.unbound if self._asks_memory(uid))
        rows = {uid: self._row(uid) for uid in self._pods}
        if rows:
            self._own_queues()
            self.queues.count_changed(rows)
        self._nodes.clear()
        self._pods.clear()

    def _asks_memory(self, uid: str) -> bool:
        """Whether what a pod counts for depends on the sizes of cards."""
        requests = self.pods.records[uid].cls.requests()
        return any(isinstance(ask, MemoryAsk) for request in requests for ask in request.shared)

    def _row(self, uid: str) -> Row | None:
        pod = self.pods.records.get(uid)
        if pod is None:
            return None
        group = self.pod_groups.get((pod.namespace, pod.pod_group)) if pod.pod_group else None
        charges = () if pod.node else self.commits.charges_of(uid)
        is_victim = uid in self.commits.nominations.victims
        return self.queues.row(pod, group, charges, self._node(pod.node), is_victim=is_victim)

    def _node(self, name: str) -> NodeRecord | None:
        row = self.ledger.row_of.get(name)
        return None if row is None else self.ledger.nodes[row]


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


class Bound(msgspec.Struct, frozen=True):
    """Pods that waited run where they were placed, with the devices and volumes that were chosen for their claims.

    ``since_s``: by the wall clock.
    """

    placed: tuple[Placement, ...]
    since_s: int

    def apply(self, draft: Draft) -> None:
        """Put the pods."""
        for each in self.placed:
            pod = draft.pods.records.get(each.pod_uid)
            if pod is None or pod.node:
                raise UnknownObject("Bound.placed", each.pod_uid)
            held = tuple(
                Held(part.group, part.nano, resource=part.resource, compute_percent=part.compute_percent)
                for part in each.devices
            )
            cls = msgspec.structs.replace(pod.cls, demand=demand_at(each, pod.cls.demand))
            running = msgspec.structs.replace(pod, cls=cls, node=each.node, held=held, started_s=self.since_s)
            draft.put_bound(running, each)


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


class NoNomination(msgspec.Struct, frozen=True):
    """Nobody is evicted for anybody."""

    def apply(self, draft: Draft) -> None:
        """Switch it off."""
        draft.settings = msgspec.structs.replace(draft.settings, preemption=False)


class NodesAsAsked(msgspec.Struct, frozen=True):
    """Shares and members of gangs that fit nowhere get a node of their own (single_pods.py)."""

    def apply(self, draft: Draft) -> None:
        """Suppose such nodes."""
        draft.supposes_nodes = True


def _node(draft: Draft, name: str) -> NodeRecord:
    row = draft.ledger.row_of.get(name)
    node = None if row is None else draft.ledger.nodes[row]
    if node is None:
        raise UnknownObject("node", name)
    return node
