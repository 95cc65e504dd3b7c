"""The scheduler's cache: feeds the core's Cluster from watches, and keeps the little that only the shell needs.

One writer of the ledger: everything goes through here, synchronously, and every change wakes the cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gpu import reservation as reservations
from gpu.reservation import Reservation
from kube.signal import Signal
from scheduler.core.cluster import Cluster
from scheduler.core.records import PodRecord
from wire import names
from wire.core import Condition, Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.versions import is_older


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """What the shell keeps of a pod of ours that names no node."""

    rv: str
    conditions: tuple[Condition, ...]
    fenced: str
    fenced_because: str


class Cache:
    """``on_pod`` and ``on_request_gone`` tell the hand-overs what became of them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.wake = Signal()
        #: Pods of ours that name no node, by UID.
        self.waiting: dict[str, Waiting] = {}
        #: Newest reservation by group.
        self.reservations: dict[str, Reservation] = {}
        #: PodGroups that carry a plan, by (namespace, name): the annotation's text.
        self.plans: dict[tuple[str, str], str] = {}
        #: PodGroups of which a pod has succeeded, by (namespace, name): such a gang is at its end.
        self.finished: set[tuple[str, str]] = set()
        self.on_pod: Callable[[str], None] = _ignore
        self.on_device_freed: Callable[[str], None] = _ignore
        self.on_request_gone: Callable[[str], None] = _ignore
        self.on_requests_listed: Callable[[set[str]], None] = _ignore_all

    def note_pod(self, pod: Pod) -> None:
        """Take a pod from a watch, or as the answer to a write of ours."""
        known = self.cluster.pod(pod.metadata.uid)
        self.cluster.upsert_pod(pod)
        self._note_for_shell(pod)
        if self.cluster.pod(pod.metadata.uid) is None:
            self._note_freed(known)

    def note_pods(self, pods: Sequence[Pod]) -> None:
        """Take the whole truth as of a list: the cluster takes it in one piece, and knows what is gone by it."""
        self.cluster.replace_pods(pods)
        for pod in pods:
            self._note_for_shell(pod)
        self.on_device_freed("")  # what ended in the gap was not seen to end

    def _note_for_shell(self, pod: Pod) -> None:
        """Keep what only the shell needs of a pod that the cluster has taken; a version older than known is ignored."""
        meta = pod.metadata
        group = (meta.annotations or {}).get(names.POD_GROUP_NAME)
        if group and pod.status.phase == names.SUCCEEDED:
            self.finished.add((meta.namespace, group))
        if reservations.is_reservation(pod, self.cluster.settings.reservation_namespace):
            self._note_reservation(reservations.read(pod))
        elif pod.spec.scheduler_name == self.cluster.settings.scheduler_name:
            self._note_waiting(pod)
            self.on_pod(meta.uid)
        self.wake.set()

    def _note_freed(self, ended: PodRecord | None) -> None:
        """A pod has ended or is gone: tell of the devices, or parts of them, that it held."""
        if ended is not None and ended.node and not ended.is_reservation and (ended.held or ended.cls.demand.gpus):
            self.on_device_freed(ended.node)

    def _note_waiting(self, pod: Pod) -> None:
        uid, rv = pod.metadata.uid, pod.metadata.resource_version
        known = self.cluster.pod(uid)
        if known is None or known.node:
            self.waiting.pop(uid, None)
        elif not is_older(rv, known.rv):
            annotations = pod.metadata.annotations or {}
            self.waiting[uid] = Waiting(
                rv,
                tuple(pod.status.conditions or ()),
                annotations.get(names.FENCED, ""),
                annotations.get(names.FENCED_BECAUSE, ""),
            )

    def forget_pod(self, uid: str) -> None:
        """Its deletion was seen."""
        self._note_freed(self.cluster.pod(uid))
        self.cluster.remove_pod(uid)
        self.waiting.pop(uid, None)
        for group in [group for group, held in self.reservations.items() if held.uid == uid]:
            del self.reservations[group]
        self.on_pod(uid)
        self.wake.set()

    def _note_reservation(self, held: Reservation) -> None:
        known = self.reservations.get(held.group)
        if known is None or not is_older(held.rv, known.rv):
            self.reservations[held.group] = held

    def note_pod_group(self, group: PodGroup) -> None:
        """Take a PodGroup from a watch, or as the answer to a write of ours."""
        key = (group.metadata.namespace, group.metadata.name)
        self.cluster.upsert_pod_group(group)
        known = self.cluster.pod_group(*key)
        if known is not None and is_older(group.metadata.resource_version, known.rv):
            return
        plan = (group.metadata.annotations or {}).get(names.PLAN)
        if plan:
            self.plans[key] = plan
        else:
            self.plans.pop(key, None)
        self.wake.set()

    def forget_pod_group(self, namespace: str, name: str) -> None:
        """Its deletion was seen."""
        self.cluster.remove_pod_group(namespace, name)
        self.plans.pop((namespace, name), None)
        self.finished.discard((namespace, name))
        self.wake.set()


def _ignore(_: str) -> None:
    return


def _ignore_all(_: set[str]) -> None:
    return


class PodSink:
    """Feeds pods."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._present: set[str] = set()

    def replace(self, objects: Sequence[Pod]) -> None:
        """Take a list: what is not in it is gone."""
        present = {pod.metadata.uid for pod in objects}
        self._cache.note_pods(objects)
        for uid in self._present - present:
            self._cache.forget_pod(uid)
        self._present = present

    def upsert(self, obj: Pod) -> None:
        """Take a pod."""
        self._present.add(obj.metadata.uid)
        self._cache.note_pod(obj)

    def delete(self, obj: Pod) -> None:
        """Take a pod's last state."""
        self._present.discard(obj.metadata.uid)
        self._cache.forget_pod(obj.metadata.uid)


class NodeSink:
    """Feeds nodes."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def replace(self, objects: Sequence[Node]) -> None:
        """Take a list: what is not in it is gone."""
        self._cache.cluster.replace_nodes(objects)
        self._cache.wake.set()

    def upsert(self, obj: Node) -> None:
        """Take a node."""
        self._cache.cluster.upsert_node(obj)
        self._cache.wake.set()

    def delete(self, obj: Node) -> None:
        """Take a node's last state."""
        self._cache.cluster.remove_node(obj.metadata.name)
        self._cache.wake.set()


class PodGroupSink:
    """Feeds PodGroups."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def replace(self, objects: Sequence[PodGroup]) -> None:
        """Take a list: what is not in it is gone."""
        present = {(group.metadata.namespace, group.metadata.name) for group in objects}
        self._cache.cluster.replace_pod_groups(objects)
        for key in [key for key in self._cache.plans if key not in present]:
            del self._cache.plans[key]
        self._cache.finished &= present
        for group in objects:
            self._cache.note_pod_group(group)

    def upsert(self, obj: PodGroup) -> None:
        """Take a PodGroup."""
        self._cache.note_pod_group(obj)

    def delete(self, obj: PodGroup) -> None:
        """Take a PodGroup's last state."""
        self._cache.forget_pod_group(obj.metadata.namespace, obj.metadata.name)


class RequestSink:
    """Feeds BindRequests, ours and those of an earlier leader."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._present: set[str] = set()

    def replace(self, objects: Sequence[BindRequest]) -> None:
        """Take a list: what is not in it is gone."""
        present = {request.metadata.uid for request in objects}
        self._cache.cluster.replace_bind_requests(objects)
        for uid in sorted(self._present - present):
            self._cache.on_request_gone(uid)
        self._cache.on_requests_listed(present)
        self._present = present
        self._cache.wake.set()

    def upsert(self, obj: BindRequest) -> None:
        """Take a BindRequest."""
        self._present.add(obj.metadata.uid)
        self._cache.cluster.upsert_bind_request(obj)
        self._cache.wake.set()

    def delete(self, obj: BindRequest) -> None:
        """Take a BindRequest's last state."""
        self._present.discard(obj.metadata.uid)
        self._cache.cluster.remove_bind_request(obj.metadata.namespace, obj.metadata.name)
        self._cache.on_request_gone(obj.metadata.uid)
        self._cache.wake.set()
