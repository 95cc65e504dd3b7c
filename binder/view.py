"""What the binder sees of the API server: a cache that also takes our own writes, and wakes those who wait.

Objects are kept by their newest resourceVersion, whether it came by watch or as the answer to a write of ours: own
writes are never read back through the cache (docs/design/protocol.md). Versions of one object compare as integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import anyio

from binder.core import attempt as attempts
from binder.core.attempt import Attempt, Foreign
from binder.core.pods import PodView, view
from gpu import reservation as reservations
from gpu.reservation import Reservation
from wire import names
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest

V = TypeVar("V")


class Signal:
    """Wakes one waiter for any number of changes since it last waited."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def set(self) -> None:
        """Wake the waiter, or let its next wait return at once."""
        self._event.set()

    async def wait(self) -> None:
        """Wait for a change."""
        await self._event.wait()
        self._event = anyio.Event()


class Subscriptions:
    """Who wants to be woken for which key."""

    def __init__(self) -> None:
        self._signals: dict[str, set[Signal]] = {}

    def add(self, signal: Signal, keys: Iterable[str]) -> None:
        """Wake ``signal`` when one of ``keys`` changes."""
        for key in keys:
            self._signals.setdefault(key, set()).add(signal)

    def remove(self, signal: Signal, keys: Iterable[str]) -> None:
        """Take a subscription back."""
        for key in keys:
            waiting = self._signals.get(key, set())
            waiting.discard(signal)
            if not waiting:
                self._signals.pop(key, None)

    def wake(self, key: str) -> None:
        """Wake all who wait for ``key``."""
        for signal in self._signals.get(key, ()):
            signal.set()


class Newest(Generic[V]):
    """Objects by key, each at the newest resourceVersion that was seen."""

    def __init__(self, rv: Callable[[V], str]) -> None:
        self._rv = rv
        self.items: dict[str, V] = {}

    def put(self, key: str, value: V) -> bool:
        """Keep ``value`` unless a newer one is known; whether it was kept."""
        known = self.items.get(key)
        if known is not None and is_older(self._rv(value), self._rv(known)):
            return False
        self.items[key] = value
        return True


def is_older(rv: str, than: str) -> bool:
    """Whether a resourceVersion of the same object is older (KEP-5504: they are decimal integers)."""
    if rv.isdigit() and than.isdigit():
        return int(rv) < int(than)
    return False


class View:
    """The cache. ``on_request`` is called for attempts that are new; ``dirty`` are groups to look over."""

    def __init__(self, *, namespace: str, on_request: Callable[[Attempt], None]) -> None:
        self.namespace = namespace
        self.pods: Newest[PodView] = Newest(lambda pod: pod.rv)
        self.last_seen: dict[str, PodView] = {}
        self.reservations: Newest[Reservation] = Newest(lambda held: held.rv)
        self.lost: dict[str, set[str]] = {}
        self.requests: dict[str, Attempt] = {}
        self.gone_requests: set[str] = set()
        self.foreign: dict[str, str] = {}
        self.nodes: dict[str, bool] = {}
        self.subscriptions = Subscriptions()
        self.dirty: set[str] = set()
        self.collector = Signal()
        #: pod UID -> groups whose newest known book names it.
        self._tenancies: dict[str, set[str]] = {}
        self._on_request = on_request

    def reservation_of(self, group: str) -> Reservation | None:
        """Newest view of the reservation that holds this group's device."""
        return self.reservations.items.get(group)

    def pod(self, uid: str) -> PodView | None:
        """Newest view of a pod."""
        return self.pods.items.get(uid)

    def bound_in(self, group: str) -> list[PodView]:
        """Live pods that are bound to this group, as far as is seen."""
        return [
            pod
            for pod in self.pods.items.values()
            if pod.is_bound and not pod.ended and (group in pod.groups or group in granted_groups(pod))
        ]

    def is_cordoned(self, node: str) -> bool:
        """Whether a node is cordoned; a node that was never seen is not."""
        return self.nodes.get(node, False)

    def note_reservation(self, held: Reservation) -> None:
        """Take a reservation from a watch or as the answer to a write of ours."""
        if held.uid in self.lost.get(held.group, ()):
            return
        known = self.reservations.items.get(held.group)
        if known is not None and known.uid != held.uid and is_older(held.rv, known.rv):
            return
        if self.reservations.put(held.group, held):
            self._index(held.group, known, held)
            self.subscriptions.wake(f"group:{held.group}")
            self.mark(held.group)

    def forget_reservation(self, held: Reservation) -> None:
        """Its deletion was seen."""
        self.lost.setdefault(held.group, set()).add(held.uid)
        known = self.reservations.items.get(held.group)
        if known is not None and known.uid == held.uid:
            del self.reservations.items[held.group]
            self._index(held.group, known, None)
        self.subscriptions.wake(f"group:{held.group}")
        self.mark(held.group)

    def note_pod(self, pod: PodView) -> None:
        """Take a pod from a watch or a quorum read."""
        if self.pods.put(pod.uid, pod):
            self.subscriptions.wake(f"pod:{pod.uid}")
            if pod.ended or (pod.is_bound and pod.groups):
                self._mark_groups_of(pod)

    def forget_pod(self, pod: PodView) -> None:
        """Its deletion was seen; its last state is kept while a book may name it."""
        self.pods.items.pop(pod.uid, None)
        if pod.groups or pod.uid in self._tenancies:
            self.last_seen[pod.uid] = pod
        self.subscriptions.wake(f"pod:{pod.uid}")
        self._mark_groups_of(pod)

    def note_request(self, request: BindRequest) -> None:
        """Take a BindRequest; a new attempt is handed on, a foreign one is remembered with the reason."""
        uid = request.metadata.uid
        if uid in self.requests or uid in self.gone_requests:
            return
        attempt = attempts.read(request)
        if isinstance(attempt, Foreign):
            self.foreign[f"{request.metadata.namespace}/{request.metadata.name}"] = attempt.why
            return
        self.requests[uid] = attempt
        self._on_request(attempt)

    def forget_request(self, uid: str) -> None:
        """Its deletion was seen, or was ours."""
        self.gone_requests.add(uid)
        self.subscriptions.wake(f"request:{uid}")

    def has_request(self, uid: str) -> bool:
        """Whether a BindRequest is there, as far as is seen."""
        return uid in self.requests and uid not in self.gone_requests

    def mark(self, group: str) -> None:
        """Have the collector look at a group."""
        self.dirty.add(group)
        self.collector.set()

    def _mark_groups_of(self, pod: PodView) -> None:
        for group in {*pod.groups, *granted_groups(pod), *self._tenancies.get(pod.uid, ())}:
            self.mark(group)

    def _index(self, group: str, before: Reservation | None, after: Reservation | None) -> None:
        had = set(before.book.entries) if before is not None and before.book is not None else set()
        has = set(after.book.entries) if after is not None and after.book is not None else set()
        for uid in had - has:
            groups = self._tenancies.get(uid, set())
            groups.discard(group)
            if not groups:
                self._tenancies.pop(uid, None)
                self.last_seen.pop(uid, None)
        for uid in has - had:
            self._tenancies.setdefault(uid, set()).add(group)


def granted_groups(pod: PodView) -> set[str]:
    """Groups that a pod's grant names."""
    return {device.group for device in pod.grant.devices} if pod.grant else set()


class PodSink:
    """Feeds pods: reservation pods by namespace and label, and everybody who may be a tenant."""

    def __init__(self, view_: View) -> None:
        self._view = view_

    def replace(self, objects: Sequence[Pod]) -> None:
        """Take a list: what is not in it is gone."""
        present = {pod.metadata.uid for pod in objects}
        for pod_view in [pod for uid, pod in self._view.pods.items.items() if uid not in present]:
            self._view.forget_pod(pod_view)
        for held in [held for held in self._view.reservations.items.values() if held.uid not in present]:
            self._view.forget_reservation(held)
        for pod in objects:
            self.upsert(pod)

    def upsert(self, obj: Pod) -> None:
        """Take a pod."""
        if reservations.is_reservation(obj, self._view.namespace):
            self._view.note_reservation(reservations.read(obj))
        elif _may_be_tenant(obj):
            self._view.note_pod(view(obj))

    def delete(self, obj: Pod) -> None:
        """Take a pod's last state."""
        if reservations.is_reservation(obj, self._view.namespace):
            self._view.forget_reservation(reservations.read(obj))
        elif _may_be_tenant(obj):
            self._view.forget_pod(view(obj))


def _may_be_tenant(pod: Pod) -> bool:
    annotations = pod.metadata.annotations or {}
    return (
        pod.spec.scheduler_name == names.SCHEDULER_NAME
        or names.GRANT in annotations
        or any(key.startswith(names.GPU_GROUP_LABEL) for key in pod.metadata.labels or ())
    )


class RequestSink:
    """Feeds BindRequests."""

    def __init__(self, view_: View) -> None:
        self._view = view_

    def replace(self, objects: Sequence[BindRequest]) -> None:
        """Take a list: what is not in it is gone."""
        present = {request.metadata.uid for request in objects}
        for uid in [uid for uid in self._view.requests if uid not in present]:
            self.forget(uid)
        for request in objects:
            self.upsert(request)

    def upsert(self, obj: BindRequest) -> None:
        """Take a BindRequest."""
        self._view.note_request(obj)

    def delete(self, obj: BindRequest) -> None:
        """Take a BindRequest's last state."""
        self.forget(obj.metadata.uid)

    def forget(self, uid: str) -> None:
        """Wake its attempt, then forget it: no late event can bring it back (a deleted UID never returns)."""
        self._view.forget_request(uid)
        self._view.requests.pop(uid, None)
        self._view.gone_requests.discard(uid)


class NodeSink:
    """Feeds nodes: which are there, and which are cordoned."""

    def __init__(self, view_: View) -> None:
        self._view = view_

    def replace(self, objects: Sequence[Node]) -> None:
        """Take a list: what is not in it is gone."""
        self._view.nodes = {node.metadata.name: node.spec.unschedulable for node in objects}

    def upsert(self, obj: Node) -> None:
        """Take a node; a cordon lets its idle reservations go at once."""
        was = self._view.nodes.get(obj.metadata.name)
        self._view.nodes[obj.metadata.name] = obj.spec.unschedulable
        if was is not obj.spec.unschedulable:
            for group, held in self._view.reservations.items.items():
                if held.node == obj.metadata.name:
                    self._view.mark(group)

    def delete(self, obj: Node) -> None:
        """Take a node's last state."""
        self._view.nodes.pop(obj.metadata.name, None)
