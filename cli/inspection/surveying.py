"""From lists of API objects to what there is to see. Pure, and counted by the scheduler's own code."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import Final, Protocol, TypeVar

import msgspec

from cli.inspection.counting import Beside, Count
from cli.inspection.podviews import Surroundings, came_past_the_door, is_of_interest, may_be_of_interest, pod_view
from cli.inspection.values import Inspection, PodView, UnusableView
from gpu import order, reservation
from gpu.ended import has_ended
from gpu.order import Order
from gpu.reservation import Reservation
from scheduler.core.convert.demand import readable_demand
from scheduler.core.model.settings import Settings
from scheduler.core.report.fragmentation import Cause
from scheduler.core.report.node_view import NodeView, TenantView
from wire import names
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.quantity import MalformedQuantity, whole

_INTERNAL_IP: Final = "InternalIP"


class Counted(Protocol):
    """What was counted, by the scheduler or here."""

    def node_names(self) -> list[str]:
        """Names of all nodes, sorted."""
        ...

    def view(self, name: str) -> NodeView | None:
        """Show a node; None if there is none of that name."""
        ...


class Fed(Protocol):
    """What counts objects."""

    def upsert_node(self, node: Node) -> object:
        """Take a node."""
        ...

    def upsert_bind_request(self, request: BindRequest) -> object:
        """Take a hand-over."""
        ...

    def upsert_pod(self, pod: Pod) -> object:
        """Take a pod."""
        ...


F = TypeVar("F", bound=Fed)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What was read. ``pods``: at least those that ``matters`` says; ``asked_for``: names of pods to show in any case.

    ``beside``: by node, what pods take that have nothing to do with GPUs; None: not read.
    ``are_all_pods``: whether all that is on these nodes was read, so that it can be said what is free. ``unread``: what
    could not be read.
    """

    nodes: Sequence[Node] = ()
    pods: Sequence[Pod] = ()
    requests: Sequence[BindRequest] = ()
    asked_for: frozenset[str] = frozenset()
    are_all_pods: bool = True
    beside: Mapping[str, Beside] | None = None
    unread: tuple[str, ...] = ()


def survey(
    found: Found, *, namespaces: Collection[str] = (), settings: Settings | None = None, cluster: Counted | None = None
) -> Inspection:
    """Show all nodes, and the pods that have to do with GPUs and have not ended; ``namespaces`` () for all.

    The pods of other namespaces count as used, but are not named where some are asked for. ``cluster``: what
    was found, counted by who needs that, too.
    """
    settings = settings or Settings()
    unusable: Mapping[Cause, int] = {}
    if cluster is None:
        cluster = counted = fed(Count(settings), found)
        unusable = counted.unusable(found.beside) if found.beside is not None else {}
    views = {name: view for name in cluster.node_names() if (view := cluster.view(name)) is not None}
    around = Surroundings(
        reservations={held.group: held for held in _reservations(found.pods, settings)},
        cards_mib={name: view.largest_card_mib for name, view in views.items() if _is_even(view)},
        orders=orders(found.requests),
        scheduler_name=settings.scheduler_name,
    )
    shown = [seen for pod in found.pods if (seen := _shown(pod, around, found)) is not None]
    nodes = found.nodes if found.are_all_pods else ()
    there = frozenset(pod.metadata.uid for pod in found.pods)
    return Inspection(
        nodes=tuple(_nodes(views, nodes, there, keep=lambda where: not namespaces or where in namespaces)),
        pods=tuple(sorted((v for v in shown if not namespaces or v.namespace in namespaces), key=_name)),
        unusable=tuple(_unusable(unusable)),
        unread=found.unread,
    )


def _name(view: PodView) -> tuple[str, str]:
    return view.namespace, view.name


def matters(pod: Pod) -> bool:
    """Whether anything here is about this pod: it asks for GPUs in any way, holds some, or holds one for others."""
    annotations, labels = pod.metadata.annotations or {}, pod.metadata.labels or {}
    words = (names.GPU_RECORD, names.GPU_FRACTION, names.GPU_MEMORY, names.GPU_FRACTION_NUM_DEVICES, names.GRANT)
    if any(word in annotations for word in words) or reservation.is_reservation(pod) or came_past_the_door(pod):
        return True
    if any(key.startswith(names.GPU_GROUP_LABEL) for key in labels):
        return True
    containers = (*pod.spec.containers, *(pod.spec.init_containers or ()))
    listed = (amounts for c in containers for amounts in (c.resources.limits, c.resources.requests) if amounts)
    return any(key == names.GPU_RESOURCE or key.startswith(names.MIG_RESOURCE_PREFIX) for one in listed for key in one)


def taken_beside(pod: Pod, nodes: Set[str]) -> tuple[str, Beside] | None:
    """Return which of these nodes a pod is on that has nothing to do with GPUs, and what it takes; None for no such."""
    node = pod.spec.node_name
    if node not in nodes or has_ended(pod.status):
        return None
    demand = readable_demand(pod)
    return node, Beside(demand.cpu_milli, demand.mem_mib, 1)


def summed(taken: Iterable[tuple[str, Beside]]) -> dict[str, Beside]:
    """Add up what pods take, by node."""
    beside: dict[str, Beside] = {}
    for node, takes in taken:
        beside[node] = beside.get(node, Beside()) + takes
    return beside


def unusable_views(nodes: Sequence[Node], pods: Iterable[Pod], requests: Sequence[BindRequest]) -> list[UnusableView]:
    """Return the free GPUs that fit no pod, by cause. ``pods``: all there are."""
    there, mattering, taken = {node.metadata.name for node in nodes}, list[Pod](), list[tuple[str, Beside]]()
    for pod in pods:
        if matters(pod):
            mattering.append(pod)
        elif (takes := taken_beside(pod, there)) is not None:
            taken.append(takes)
    counted = fed(Count(Settings()), Found(nodes=nodes, pods=mattering, requests=requests))
    return _unusable(counted.unusable(summed(taken)))


def _unusable(causes: Mapping[Cause, int]) -> list[UnusableView]:
    return [UnusableView(cause=cause, nano=nano) for cause, nano in causes.items()]


def fed(cluster: F, found: Found) -> F:
    """Have a cluster take what was found, and return it."""
    for node in found.nodes:
        cluster.upsert_node(node)
    for request in found.requests:
        cluster.upsert_bind_request(request)
    for pod in found.pods:
        cluster.upsert_pod(pod)
    return cluster


def _shown(pod: Pod, around: Surroundings, found: Found) -> PodView | None:
    """A pod that belongs into the survey. Making a view costs more than seeing that most others don't."""
    if pod.metadata.name in found.asked_for:
        return pod_view(pod, around)
    if not may_be_of_interest(pod):
        return None
    view = pod_view(pod, around)
    return view if is_of_interest(view, around) else None


def _is_even(node: NodeView) -> bool:
    """Whether all its cards have one size."""
    return node.smallest_card_mib == node.largest_card_mib


def _nodes(
    views: Mapping[str, NodeView], nodes: Iterable[Node], there: Set[str], *, keep: Callable[[str], bool]
) -> Iterable[NodeView]:
    """Nodes that have, or had, GPUs, with what the scheduler does not keep of them. ``there``: UIDs of pods."""
    for node in sorted(nodes, key=lambda node: node.metadata.name):
        view = views.get(node.metadata.name)
        capacity = _gpus(node.status.capacity)
        if view is None or not (capacity or view.gpus or view.devices or view.slices):
            continue
        yield msgspec.structs.replace(
            view,
            address=next((a.address for a in node.status.addresses or () if a.type == _INTERNAL_IP), ""),
            unhealthy_gpus=max(0, capacity - view.gpus),
            devices=tuple(
                msgspec.structs.replace(
                    device, tenants=tuple(_tenant(one, there) for one in device.tenants if keep(one.namespace))
                )
                for device in view.devices
            ),
        )


def _tenant(tenant: TenantView, there: Set[str]) -> TenantView:
    """A tenant. The scheduler keeps no record of a pod that has ended, which is still there."""
    return msgspec.structs.replace(tenant, is_kept=tenant.is_kept and tenant.uid not in there)


def _gpus(amounts: Mapping[str, str | int | float] | None) -> int:
    try:
        return whole((amounts or {}).get(names.GPU_RESOURCE, 0))
    except MalformedQuantity:
        return 0


def _reservations(pods: Iterable[Pod], settings: Settings) -> Iterable[Reservation]:
    """Those that hold a device come last, so that they are the ones that are known by their group."""
    found = (
        reservation.read(pod)
        for pod in pods
        if reservation.is_reservation(pod, settings.reservation_namespace, app=settings.reservation_app)
    )
    return sorted(found, key=lambda held: held.is_told)


def orders(requests: Iterable[BindRequest]) -> dict[str, str]:
    """Return pod UID -> node, of the hand-overs that the binder carries out."""
    read = ((order.read(request), request.spec.selected_node) for request in requests)
    return {ordered.pod_uid: node for ordered, node in read if isinstance(ordered, Order)}
