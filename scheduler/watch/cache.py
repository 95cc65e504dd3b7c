"""The scheduler's cache: feeds the core's Cluster from watches, and keeps the little that only the shell needs.

One writer of the ledger: everything goes through here, synchronously, and every change wakes the cycle. What the API
server shows in the status of objects is kept as it was seen last: statuses are written where it differs. Nodes whose
kubelets refused a pod because they could not align it are kept from its successors for a while, twice as long after
each further refusal there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import anyio
import msgspec

from gpu.attempts import fences
from gpu.reservation import Reservation
from kube.client.clock import monotonic_ns
from kube.telemetry.logevents import ignore
from kube.watch.signal import Signal
from scheduler.core.assumed.attempts import Flight
from scheduler.core.cluster import Cluster
from scheduler.core.convert import bounds
from scheduler.core.convert.owners import controller_of
from scheduler.core.convert.pod_groups import pod_group_record
from scheduler.core.filters.enforcement import unenforced
from scheduler.core.model.facts import Membership
from scheduler.core.model.pod_class import NO_WISHES, PodClass
from scheduler.core.model.records import NodeRecord, PodGroupRecord, PodRecord, SeenPod
from scheduler.telemetry.events import PodTraces
from scheduler.watch.preemption_facts import KnownForPreemption
from wire import names
from wire.core import Condition, Pod
from wire.crds.podgroup import PodGroup, PodGroupStatus
from wire.crds.queue import QueueStatus
from wire.tombstones import is_older

#: Controllers that are remembered, in all and of one namespace; of more, those that were refused last.
_MOST: Final = 4096
_MOST_OF_NAMESPACE: Final = 512
#: Nodes of a controller that are remembered.
_MOST_NODES: Final = 64


class RefusingNodes:
    """How often each node has refused pods of a controller, which is known by its identity (convert/owners.py)."""

    def __init__(self) -> None:
        self._by_controller: dict[str, dict[str, int]] = {}
        self._of_namespace: dict[str, dict[str, None]] = {}
        #: Pods (UIDs) whose refusal was counted: a watch shows them more than once.
        self._counted: dict[str, None] = {}

    def note(self, uid: str, namespace: str, controller: str, node: str) -> None:
        """A node has refused this pod of a controller of a namespace."""
        if uid in self._counted:
            return
        self._counted[uid] = None
        refusals = self._by_controller.pop(controller, {})
        refusals[node] = refusals.pop(node, 0) + 1
        self._by_controller[controller] = refusals
        own = self._of_namespace.setdefault(namespace, {})
        own.pop(controller, None)
        own[controller] = None
        if len(own) > _MOST_OF_NAMESPACE:
            self._by_controller.pop(next(iter(own)), None)
            _cut(own, _MOST_OF_NAMESPACE)
        _cut(self._of_namespace, _MOST)
        _cut(self._by_controller, _MOST)
        _cut(self._counted, _MOST)
        _cut(refusals, _MOST_NODES)

    def of(self, controller: str) -> Mapping[str, int]:
        """Refusals by node of pods of a controller."""
        return self._by_controller.get(controller, {})


def _cut(kept: dict[str, Any], most: int) -> None:
    """Forget what was put first."""
    while len(kept) > most:
        del kept[next(iter(kept))]


K = TypeVar("K", bound=Hashable)
S = TypeVar("S")


class Shown(msgspec.Struct, Generic[S], frozen=True, gc=False):
    """One object at one version. ``what``: the part of it that is kept."""

    uid: str
    rv: str
    what: S


class ShownObjects(Generic[K, S]):
    """The newest version of each object. ``on_change`` is called with the key of one that is new, different or gone."""

    def __init__(self, on_change: Callable[[K], None] = ignore) -> None:
        self._by_key: dict[K, Shown[S]] = {}
        self._on_change = on_change

    def get(self, key: K) -> Shown[S] | None:
        """The object of this key."""
        return self._by_key.get(key)

    def known(self) -> list[K]:
        """Keys of all objects, in no order."""
        return [*self._by_key]

    def note(self, key: K, shown: Shown[S]) -> None:
        """Take an object from a watch, or as the answer to a write; what is older than known changes nothing."""
        known = self._by_key.get(key)
        if known is not None and known.uid == shown.uid and is_older(shown.rv, known.rv):
            return
        self._by_key[key] = shown
        self._on_change(key)

    def drop(self, key: K) -> None:
        """It is gone."""
        if self._by_key.pop(key, None) is not None:
            self._on_change(key)

    def replace(self, listed: Mapping[K, Shown[S]]) -> None:
        """Take a list: what is not in it is gone."""
        for key in [key for key in self._by_key if key not in listed]:
            self.drop(key)
        for key, shown in listed.items():
            self.note(key, shown)


#: A condition has a message of 1,000 characters at most, and there is one for each node pool.
_MOST_STATUS_BYTES: Final = 65_536
_encode: Final = msgspec.msgpack.Encoder().encode


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """What the shell keeps of a pod of ours that names no node."""

    rv: str
    conditions: tuple[Condition, ...]
    fences: tuple[str, ...]
    fenced_because: str


class Seen(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """All that is kept of a pod at one version. ``finished`` names the PodGroup of which it has succeeded.

    ``is_told``: it carries the condition on what its node can't enforce (scheduler/conditions/enforcement.py).
    ``labels``: of one that is bound, where its namespace has a PodDisruptionBudget.
    """

    pod: SeenPod
    is_ours: bool
    waiting: Waiting | None
    finished: tuple[str, str] | None
    is_told: bool = False
    labels: dict[str, str] | None = None
    #: Of one of ours that its kubelet could not align: its namespace, its controller, and the node.
    misaligned: tuple[str, str, str] | None = None


class SeenGroup(msgspec.Struct, frozen=True, gc=False):
    """All that is kept of a PodGroup at one version. ``plan``: its annotation's text, "" without one."""

    record: PodGroupRecord
    shown: Shown[PodGroupStatus]
    plan: str

    @property
    def key(self) -> tuple[str, str]:
        """Its namespace and name."""
        return self.record.namespace, self.record.name


class QueueShown(msgspec.Struct, frozen=True, gc=False):
    """What the shell keeps of a Queue."""

    display_name: str
    status: QueueStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheListeners:
    """The functions that the cache calls at once, each with what it has just taken."""

    #: A pod (UID) of ours was taken, or a pod is gone.
    pod: Callable[[str], None] = ignore
    #: A pod (UID) is gone, or has ended.
    pod_gone: Callable[[str], None] = ignore
    #: A pod of ours that waited is seen bound: as it was known before, and which of its requests was served.
    bound: Callable[[PodRecord, int], None] = ignore
    #: A pod of ours that waited is seen bound: for how many seconds it has waited since it was seen first.
    waited: Callable[[float], None] = ignore
    #: A device of this node, or a part of one, may be free; "": of any node.
    device_freed: Callable[[str], None] = ignore
    #: A reservation (UID) was seen that has not named its device yet.
    device_asked: Callable[[str], None] = ignore
    #: A member of a gang, or its PodGroup, has changed: (namespace, name).
    gang: Callable[[tuple[str, str]], None] = ignore
    #: The status that a PodGroup (namespace, name) shows has changed, or the PodGroup is gone.
    group_shown: Callable[[tuple[str, str]], None] = ignore
    #: The sums of a PodGroup (namespace, name) have changed.
    group_sums: Callable[[tuple[str, str]], None] = ignore
    #: The status that a Queue shows has changed, or the Queue is gone.
    queue_shown: Callable[[str], None] = ignore
    #: A BindRequest (UID) is gone.
    request_gone: Callable[[str], None] = ignore
    #: BindRequests (UIDs) were listed: these exist.
    requests_listed: Callable[[set[str]], None] = ignore
    #: A claim (namespace, name) or a volume (name) has changed; None: any may have.
    stored: Callable[[Hashable], None] = ignore
    #: A namespace has its first PodDisruptionBudget.
    budgeted: Callable[[str], None] = ignore


class Cache:
    """What the scheduler knows of the cluster. ``listeners`` are called with each change.

    ``traces`` follows pods by watches alone: these don't show a pod again that is gone, as late answers do.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        listeners: CacheListeners = CacheListeners(),
        traces: PodTraces | None = None,
    ) -> None:
        self.cluster = cluster
        cluster.queues.sums.on_group = listeners.group_sums
        self.listeners = listeners
        self.traces = traces
        self.wake = Signal()
        #: What rules of preemption read beside nodes, queues and pods.
        self.preemption = KnownForPreemption(
            cluster.settings.preemption_settings, on_namespace=listeners.budgeted, on_gone=listeners.pod_gone
        )
        self._preemption_version = 0
        #: Nodes that could not align pods.
        self._refusing = RefusingNodes()
        #: Pods of ours that name no node, by UID.
        self.waiting: dict[str, Waiting] = {}
        #: Since when each has been seen to wait (event loop's time).
        self._since: dict[str, float] = {}
        #: Bound pods of ours, by UID, whose node can't enforce what they wish, and that don't say so yet.
        self.unenforced: dict[str, None] = {}
        self.on_unenforced = Signal()
        #: A node may have come from another pool.
        self.on_joining = Signal()
        #: Newest reservation by group.
        self.reservations: dict[str, Reservation] = {}
        #: UID of a reservation -> groups for which it is or was the newest.
        self._groups_of: dict[str, dict[str, None]] = {}
        #: Groups by the node of their newest reservation.
        self._groups_at: Membership[str] = Membership()
        #: PodGroups that carry a plan, by (namespace, name): the annotation's text.
        self.plans: dict[tuple[str, str], str] = {}
        #: PodGroups of which a pod has succeeded, by (namespace, name): such a gang is at its end.
        self.finished: set[tuple[str, str]] = set()
        #: Queues by name.
        self.queues = ShownObjects[str, QueueShown](listeners.queue_shown)
        #: PodGroups by (namespace, name).
        self.groups = ShownObjects[tuple[str, str], PodGroupStatus](listeners.group_shown)

    def trace_of(self, uid: str) -> Mapping[str, str]:
        """What a line of the log says of a pod's trace."""
        return {} if self.traces is None else self.traces.of(uid)

    def note_pod(self, pod: Pod) -> None:
        """Take a pod from a watch, or as the answer to a write of ours."""
        known = self.cluster.pod(pod.metadata.uid)
        self.take_pod(self.read_pod(pod))
        if self.cluster.pod(pod.metadata.uid) is None:
            self._note_freed(known)

    def read_pod(self, pod: Pod, read: Callable[[Pod], SeenPod] | None = None) -> Seen:
        """Read a pod without taking it. ``read``: what reads the pods of one list (Cluster.list_reader)."""
        group = (pod.metadata.annotations or {}).get(names.POD_GROUP_NAME)
        has_succeeded = pod.status.phase == names.SUCCEEDED
        is_ours = pod.spec.scheduler_name == self.cluster.settings.scheduler_name
        seen = (read or self.cluster.read_pod)(pod)
        return Seen(
            pod=seen,
            is_ours=is_ours,
            waiting=_waiting(pod) if is_ours and not pod.spec.node_name else None,
            finished=(pod.metadata.namespace, group) if group and has_succeeded else None,
            is_told=is_ours and bool(pod.spec.node_name) and says_unenforced(pod),
            labels=self._labels_of(seen.record),
            misaligned=_misaligned(pod) if is_ours else None,
        )

    def _labels_of(self, pod: PodRecord | None) -> dict[str, str] | None:
        """What budgets may select a pod by, as its record keeps it; None where nobody asks."""
        is_kept = pod is not None and pod.node and self.preemption.has_budget(pod.namespace)
        return pod.labels if pod is not None and is_kept else None

    def note_preemption_facts(self) -> None:
        """Have decisions go by what is known for preemption now."""
        if self.preemption.version != self._preemption_version:
            self._preemption_version = self.preemption.version
            self.cluster.note_preemption_facts(self.preemption.facts())

    def note_refused(self, uid: str, is_refused: bool) -> None:
        """Take whether the API server refuses the eviction of a pod."""
        self.preemption.note_refused(uid, is_refused)
        self.wake.set()

    def note_labels(self, uid: str, namespace: str, rv: str, labels: dict[str, str]) -> None:
        """Take the labels of a pod that was read because of its namespace's first budget."""
        known = self.cluster.pod(uid)
        if known is not None and known.node:
            self.preemption.put_labels(uid, namespace, rv, bounds.kept_labels(labels))

    def take_pod(self, seen: Seen) -> None:
        """Take a pod that was read; of one that is older than what is known only a success still counts."""
        before, flight = self.cluster.pod(seen.pod.uid), self.cluster.commits.flight(seen.pod.uid)
        self.cluster.take_pod(seen.pod)
        taken = self.cluster.pod(seen.pod.uid)
        if taken is not None:
            self._note_bound(before, taken, flight)
        if taken is not None and taken.pod_group:
            self.listeners.gang((taken.namespace, taken.pod_group))
        if taken is None:
            self.preemption.drop_pod(seen.pod.uid)
        elif seen.labels is not None:
            self.preemption.put_labels(taken.uid, taken.namespace, seen.pod.rv, seen.labels)
        if seen.finished is not None:
            self.finished.add(seen.finished)
        if seen.misaligned is not None:
            self._refusing.note(seen.pod.uid, *seen.misaligned)
        elif before is None and taken is not None and not taken.node:
            self._keep_off(taken)
        if seen.pod.reservation is not None:
            self._note_reservation(seen.pod.reservation)
        elif seen.is_ours:
            self._note_waiting(seen.pod.uid, seen.waiting)
            self._note_unenforced(seen)
            self.listeners.pod(seen.pod.uid)
        self.wake.set()

    def _note_bound(self, before: PodRecord | None, taken: PodRecord, flight: Flight | None) -> None:
        """Tell of a pod that waited here and has a node now."""
        if before is not None and not (before.node or before.is_elsewhere) and taken.node:
            self.listeners.bound(before, flight.placement.alternative if flight is not None else 0)
            if (since := self._since.get(taken.uid)) is not None:
                self.listeners.waited(anyio.current_time() - since)

    def _keep_off(self, pod: PodRecord) -> None:
        """Keep a pod that is new off nodes that refused those that had its place."""
        for node, times in self._refusing.of(pod.controller).items() if pod.controller else ():
            self.cluster.commits.keep_off(pod.uid, node, times, now_ns=monotonic_ns())

    def _note_freed(self, ended: PodRecord | None) -> None:
        """A pod has ended or is gone: tell of the devices, or parts of them, that it held."""
        if ended is not None and ended.node and not ended.is_reservation and (ended.held or ended.cls.demand.gpus):
            self.listeners.device_freed(ended.node)

    def _note_waiting(self, uid: str, waiting: Waiting | None) -> None:
        known = self.cluster.pod(uid)
        if known is None or known.node:
            self._forget_waiting(uid)
        elif waiting is not None and not is_older(waiting.rv, known.rv):
            self.waiting[uid] = waiting
            self._since.setdefault(uid, anyio.current_time())

    def waits_here(self, uid: str) -> bool:
        """Whether a pod waits, and is decided on by this scheduler."""
        pod = self.cluster.pod(uid)
        return uid in self.waiting and pod is not None and not pod.is_elsewhere

    def _forget_waiting(self, uid: str) -> None:
        self.waiting.pop(uid, None)
        self._since.pop(uid, None)

    def _note_unenforced(self, seen: Seen) -> None:
        """Judge a bound pod that wishes something by its node, as both are known."""
        uid = seen.pod.uid
        known = self.cluster.pod(uid)
        if known is not None and is_older(seen.pod.rv, known.rv):
            return
        is_told_here = known is not None and known.cls.wishes != NO_WISHES and not known.is_elsewhere
        node = self.cluster.node(known.node) if known is not None and is_told_here else None
        if known is None or node is None or seen.is_told or not _lacks(known.cls, node):
            self.unenforced.pop(uid, None)
        elif uid not in self.unenforced:
            self.unenforced[uid] = None
            self.on_unenforced.set()

    def forget_pod(self, uid: str) -> None:
        """Its deletion was seen."""
        self._note_freed(self.cluster.pod(uid))
        self.cluster.remove_pod(uid)
        self.preemption.drop_pod(uid)
        self._forget_waiting(uid)
        self.unenforced.pop(uid, None)
        for group in self._groups_of.pop(uid, ()):
            if (held := self.reservations.get(group)) is not None and held.uid == uid:
                del self.reservations[group]
                self._groups_at.move(group, "")
        self.listeners.pod(uid)
        self.wake.set()

    def forget_gone(self) -> None:
        """A period is over (wire/tombstones.py): forget what nobody can name any more."""
        self.cluster.forget_gone()
        self.cluster.expire_vanished(monotonic_ns())
        self.finished = {key for key in self.finished if self.cluster.pod_group(*key) is not None}

    def _note_reservation(self, held: Reservation) -> None:
        known = self.reservations.get(held.group)
        if known is None or not is_older(held.rv, known.rv):
            self.reservations[held.group] = held
            self._groups_of.setdefault(held.uid, {})[held.group] = None
            self._groups_at.move(held.group, held.node)
        if not held.is_told:
            self.listeners.device_asked(held.uid)

    def ask_again(self, node: str) -> None:
        """A node has come back: the time in which its reservations have to answer begins again."""
        for held in [self.reservations[group] for group in sorted(self._groups_at.at(node))]:
            if not held.is_told:
                self.listeners.device_asked(held.uid)

    def reservation(self, uid: str) -> Reservation | None:
        """The reservation of this UID, if it is the newest of a group."""
        found = (self.reservations.get(group) for group in self._groups_of.get(uid, ()))
        return next((held for held in found if held is not None and held.uid == uid), None)

    def note_pod_group(self, group: PodGroup) -> None:
        """Take a PodGroup from a watch, or as the answer to a write of ours."""
        self.take_pod_group(self.read_pod_group(group))

    def read_pod_group(self, group: PodGroup) -> SeenGroup:
        """Read a PodGroup without taking it."""
        return SeenGroup(
            pod_group_record(group, self.cluster.settings.pool),
            Shown(group.metadata.uid, group.metadata.resource_version, _shown_status(group.status)),
            (group.metadata.annotations or {}).get(names.PLAN, ""),
        )

    def take_pod_group(self, seen: SeenGroup) -> None:
        """Take a PodGroup that was read."""
        record, key = seen.record, seen.key
        self.cluster.put_pod_group(record)
        self.groups.note(key, seen.shown)
        known = self.cluster.pod_group(*key)
        if known is not None and is_older(record.rv, known.rv):
            return
        if seen.plan:
            self.plans[key] = seen.plan
        else:
            self.plans.pop(key, None)
        self.listeners.gang(key)
        self.wake.set()

    def forget_pod_group(self, namespace: str, name: str) -> None:
        """Its deletion was seen."""
        self.cluster.remove_pod_group(namespace, name)
        self.groups.drop((namespace, name))
        self.plans.pop((namespace, name), None)
        self.finished.discard((namespace, name))
        self.wake.set()


def _shown_conditions(found: Sequence[Condition]) -> tuple[Condition, ...]:
    """Conditions as they are kept, to be written again beside ours; more than anybody writes are none."""
    return tuple(found) if len(_encode(found)) <= _MOST_STATUS_BYTES else ()


def _shown_status(status: PodGroupStatus) -> PodGroupStatus:
    """A status as it is kept: one that is larger than we write it is none, so it is written again."""
    return status if len(_encode(status)) <= _MOST_STATUS_BYTES else PodGroupStatus()


def _lacks(cls: PodClass, node: NodeRecord) -> bool:
    """Whether the node can't enforce all that pods of this class wish."""
    return bool(unenforced(cls, node))


def says_unenforced(pod: Pod) -> bool:
    """Whether a pod carries the condition on what its node can't enforce."""
    return any(c.type == names.CONDITION_LIMITS_ENFORCED for c in pod.status.conditions or ())


def _misaligned(pod: Pod) -> tuple[str, str, str] | None:
    """Namespace and controller of a pod that its kubelet could not align, and the node."""
    if pod.status.reason != names.TOPOLOGY_AFFINITY_ERROR or pod.status.phase != names.FAILED:
        return None
    controller = controller_of(pod.metadata)
    return (pod.metadata.namespace, controller, pod.spec.node_name) if controller and pod.spec.node_name else None


def _waiting(pod: Pod) -> Waiting:
    annotations = pod.metadata.annotations or {}
    return Waiting(
        pod.metadata.resource_version,
        _shown_conditions(pod.status.conditions or ()),
        fences(annotations),
        annotations.get(names.FENCED_BECAUSE, ""),
    )
