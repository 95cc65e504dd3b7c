"""Feeds the view from watches: pods, BindRequests, nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from binder.core.reservation_pod import ReservationTemplate
from binder.telemetry.tracing import AttemptTraces
from binder.watch.view import View
from gpu import limits
from gpu import reservation as reservations
from gpu.node_resources import cards_mib, is_device_resource, is_readable
from gpu.reservation import Reservation
from kube.watch.reflector import in_turns
from sharing import node_liveness
from sharing.node_liveness import Registration
from sharing.pods import PodView
from sharing.pods import view as read_pod
from wire import names
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest


class PodSink:
    """Feeds pods: reservation pods by namespace and label, and everybody who may be a tenant."""

    def __init__(self, view: View, template: ReservationTemplate, *, traces: AttemptTraces | None = None) -> None:
        self._view = view
        self._template = template
        self._traces = traces
        #: Whether a list has been taken: until then the binder does nothing, so nobody looks at the view.
        self._is_read = False

    def keep(self, obj: Pod) -> PodView | Reservation | str:
        """What the view keeps of a pod; of one that is nobody's business its UID, for it is there."""
        if self._is_reservation(obj):
            return reservations.read(obj)
        if self._traces is not None:
            self._traces.seen(obj)
        return read_pod(obj) if _may_be_tenant(obj) else obj.metadata.uid

    async def replace(self, kept: Sequence[PodView | Reservation | str]) -> None:
        """Take a list: what is not in it is gone."""
        present = {one if isinstance(one, str) else one.uid for one in kept}
        for pod in [pod for uid, pod in self._view.pods.items() if uid not in present]:
            self._view.forget_pod(pod, is_last=False)
            if self._traces is not None:
                self._traces.gone(pod.uid)
        for held in [held for held in self._view.reservations.values() if held.uid not in present]:
            self._view.forget_reservation(held)
        if self._is_read:
            for one in kept:
                self._take(one)
        else:
            await in_turns(kept, self._take)
            self._is_read = True

    def upsert(self, obj: Pod) -> None:
        """Take a pod."""
        self._take(self.keep(obj))

    def delete(self, obj: Pod) -> None:
        """Take a pod's last state."""
        match self.keep(obj):
            case Reservation() as held:
                self._view.forget_reservation(held)
            case PodView() as pod:
                self._view.forget_pod(pod, is_last=True)
                if self._traces is not None:
                    self._traces.gone(pod.uid)
            case str():
                pass  # it was nobody's business

    def _take(self, kept: PodView | Reservation | str) -> None:
        match kept:
            case Reservation():
                self._view.reservation_seen(kept)
            case PodView():
                self._view.pod_seen(kept)
            case str():
                pass

    def _is_reservation(self, pod: Pod) -> bool:
        return reservations.is_reservation(pod, self._template.namespace, app=self._template.app)


def _may_be_tenant(pod: Pod) -> bool:
    annotations = pod.metadata.annotations or {}
    return (
        pod.spec.scheduler_name == names.SCHEDULER_NAME
        or names.GRANT in annotations
        or any(key.startswith(names.GPU_GROUP_LABEL) for key in pod.metadata.labels or ())
    )


class RequestSink:
    """Feeds BindRequests."""

    def __init__(self, view: View, *, traces: AttemptTraces | None = None) -> None:
        self._view = view
        self._traces = traces

    def keep(self, obj: BindRequest) -> BindRequest:
        """All of it: there are few, and not for long."""
        return obj

    async def replace(self, kept: Sequence[BindRequest]) -> None:
        """Take a list: what is not in it is gone."""
        present = {request.metadata.uid for request in kept if request.metadata.deletion_timestamp is None}
        self._view.keep_requests(present)
        if self._traces is not None:
            self._traces.listed(present)
        for request in kept:
            self.upsert(request)

    def upsert(self, obj: BindRequest) -> None:
        """Take a BindRequest; one that is being deleted counts as gone: a finalizer may keep it."""
        if obj.metadata.deletion_timestamp is not None:
            self.delete(obj)
            return
        if self._traces is not None:
            self._traces.requested(obj)
        self._view.note_request(obj)

    def delete(self, obj: BindRequest) -> None:
        """Take a BindRequest's last state."""
        self._view.forget_request(obj.metadata.uid)
        if self._traces is not None:
            self._traces.dropped(obj.metadata.uid)


class NodeView(msgspec.Struct, frozen=True, gc=False):
    """A node: whether it is cordoned, whether its cards differ in memory, and what devices its device plugins have.

    ``devices``: GPUs and MIG slices by resource; None: it tells nothing of what it has. ``card_mib``: memory of its
    smallest card, 0 if unknown. ``registration``: None while its kubelet is silent. ``enforces``: what it can hold pods
    to, in words. ``shows_tenants``: its agent shows tenants their own shares. ``memory_reserve``: memory of each card
    that nobody gets, as written.
    """

    name: str
    is_cordoned: bool
    is_uneven: bool
    devices: Mapping[str, int] | None = None
    card_mib: int = 0
    registration: Registration | None = None
    enforces: tuple[str, ...] = ()
    shows_tenants: bool = False
    memory_reserve: str = ""


class NodeSink:
    """Feeds nodes: which are there, and which are cordoned."""

    def __init__(self, view: View) -> None:
        self._view = view

    def keep(self, obj: Node) -> NodeView:
        """What the view keeps of a node."""
        labels, annotations = obj.metadata.labels or {}, obj.metadata.annotations or {}
        is_uneven = len(set(annotations.get(names.NODE_CARDS, "").split(","))) > 1
        smallest_mib, _ = cards_mib(labels, annotations)
        return NodeView(
            obj.metadata.name,
            obj.spec.unschedulable,
            is_uneven,
            _devices(obj),
            smallest_mib,
            node_liveness.registration(obj),
            limits.listed(annotations.get(names.NODE_ENFORCES)).known,
            annotations.get(names.NODE_TENANT_VIEW) == "true",
            reserve if is_readable(reserve := annotations.get(names.GPU_MEMORY_RESERVE, "")) else "",
        )

    async def replace(self, kept: Sequence[NodeView]) -> None:
        """Take a list: what is not in it is gone."""
        present = {node.name for node in kept}
        for name in [name for name in self._view.nodes if name not in present]:
            self._remove(name)
        for node in kept:
            self._take(node)

    def upsert(self, obj: Node) -> None:
        """Take a node; a cordon lets its idle reservations go at once."""
        self._take(self.keep(obj))

    def delete(self, obj: Node) -> None:
        """Take a node's last state."""
        self._remove(obj.metadata.name)

    def _take(self, node: NodeView) -> None:
        was = self._view.nodes.get(node.name)
        self._view.nodes[node.name] = node.is_cordoned
        if node.devices is None:
            self._view.devices.pop(node.name, None)
        else:
            self._view.devices[node.name] = node.devices
        for nodes, is_one in ((self._view.uneven, node.is_uneven), (self._view.showing, node.shows_tenants)):
            if is_one:
                nodes.add(node.name)
            else:
                nodes.discard(node.name)
        self._view.cards_mib[node.name] = node.card_mib
        self._view.memory_reserves[node.name] = node.memory_reserve
        self._view.enforces[node.name] = node.enforces
        if self._view.note_machine(node.name, node.registration) or was is not node.is_cordoned:
            self._view.mark_node(node.name)

    def _remove(self, name: str) -> None:
        self._view.nodes.pop(name, None)
        self._view.devices.pop(name, None)
        self._view.uneven.discard(name)
        self._view.showing.discard(name)
        self._view.cards_mib.pop(name, None)
        self._view.memory_reserves.pop(name, None)
        self._view.enforces.pop(name, None)
        self._view.note_machine(name, None)
        self._view.mark_node(name)


def _devices(node: Node) -> dict[str, int] | None:
    if not node.status.capacity:
        return None
    told = {name: str(amount) for name, amount in node.status.capacity.items() if is_device_resource(name)}
    return {name: int(amount) for name, amount in told.items() if amount.isascii() and amount.isdigit()}
