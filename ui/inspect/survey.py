"""From lists of API objects to what there is to see. Pure, and counted by the scheduler's own functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Final

import msgspec

from gpu import bind_request, bound_pod, grant, messages, record, reservation
from gpu.bind_request import Order
from gpu.grant import has_ended
from gpu.request import FractionAsk, charge_nano
from gpu.reservation import Reservation
from gpu.share import memory_from_nano
from gpu.translate import asked, registry
from gpu.translation import Refusal, Translation, told
from scheduler.core.assumed.commits import Commits
from scheduler.core.convert.demand import readable_demand
from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.pods import bind_request_record, seen_pod
from scheduler.core.model.pod_kind import Kind, kind_of
from scheduler.core.model.records import NodeRecord, PodRecord
from scheduler.core.model.seen_pods import Pods
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.node_usage import Occupancy, occupancy
from scheduler.core.report.fragmentation import (
    Cause,
    NodeLeft,
    Use,
    counted_kinds,
    node_left,
    unusable_in_sum,
    use_of_node,
    waiting_kinds,
)
from scheduler.core.report.node_view import Known, NodeView, TenantView, node_view
from ui.inspect.values import GivenView, Inspection, PodView, UnusableView, WaitView
from wire import names
from wire.core import Condition, ContainerStatus, Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.quantity import MalformedQuantity, whole

_PAST_THE_DOOR: Final = "it asks in another system's words, which are read at admission, and admission has not seen it"


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What else has to be known. ``reservations`` by group, ``cards_mib`` by node where all its cards are equal.

    ``orders``: pod UID -> node of the hand-over that is under way.
    """

    reservations: Mapping[str, Reservation]
    cards_mib: Mapping[str, int]
    orders: Mapping[str, str]
    scheduler_name: str = names.SCHEDULER_NAME


def pod_view(pod: Pod, around: Surroundings) -> PodView:
    """Show any pod, with GPUs or without: what it asks and in whose words, what it was given, and why it waits."""
    found = asked.asked(pod)
    view = PodView(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        phase=pod.status.phase,
        node=pod.spec.node_name,
        scheduler=pod.spec.scheduler_name,
        pod_group=(pod.metadata.annotations or {}).get(names.POD_GROUP_NAME, ""),
        given=tuple(_given(pod, around, found)),
        waits=_waits(pod, around.orders.get(pod.metadata.uid, "")),
        not_enforced=said.message if (said := _denied(pod, names.CONDITION_LIMITS_ENFORCED)) else "",
    )
    if isinstance(found, Refusal):
        return msgspec.structs.replace(view, refused=told(found))
    if came_past_the_door(pod):
        return msgspec.structs.replace(view, refused=_PAST_THE_DOOR)
    return _with_request(view, found)


def came_past_the_door(pod: Pod) -> bool:
    """Whether an unbound pod asks in words that admission reads, and admission has not seen it."""
    has_record = names.GPU_RECORD in (pod.metadata.annotations or {})
    return not pod.spec.node_name and not has_record and registry.is_spoken(pod)


def may_be_of_interest(pod: Pod) -> bool:
    """Whether a pod may belong into a survey: it has not ended, and stands for itself."""
    return not has_ended(pod.status) and not reservation.is_reservation(pod)


def is_of_interest(view: PodView, around: Surroundings) -> bool:
    """Whether such a pod does: it has to do with GPUs, and runs, or waits for this scheduler."""
    if not view.node and view.scheduler != around.scheduler_name:
        return False
    return bool(view.dialect or view.refused or view.given)


def _with_request(view: PodView, found: Translation) -> PodView:
    """Add what it asks, if it asks anything."""
    if not found.request.containers:
        return view
    first, *others = messages.way_lines(found)
    words = (*first, *(f"or {'; '.join(lines)}" for lines in others))
    return msgspec.structs.replace(
        view,
        dialect=found.dialect,
        asks=words,
        record=msgspec.Raw(record.render(found).encode()),
        whole_gpus=found.request.whole,
    )


def _given(pod: Pod, around: Surroundings, found: Translation | Refusal) -> Iterator[GivenView]:
    """What its Binding says, and what the reservations say of those devices.

    KAI's Bindings name groups alone: the book of an adopted reservation has its share, or it is what the pod asks.
    """
    claimed = bound_pod.read_claimed(pod)
    if claimed is not None and pod.spec.node_name:
        yield GivenView(
            group="",
            reservation="",
            uuid=claimed.uuid,
            index=-1,
            nano=claimed.nano,
            mem_mib=memory_from_nano(claimed.nano, claimed.mem_mib),
            device=claimed.path,
        )
        return
    granted = grant.read(pod.metadata.annotations)
    if granted is not None:
        devices = [(device.group, device.uuid, device.nano) for device in granted.devices]
    else:
        devices = [(group, "", 0) for group in grant.labelled_groups(pod.metadata.labels)]
    if reservation.is_reservation(pod):
        return
    for group, uuid, granted_nano in devices:
        held = around.reservations.get(group)
        card_mib = (held.mem_mib if held else 0) or around.cards_mib.get(pod.spec.node_name, 0)
        nano = granted_nano or _charged(pod, held) or _asked(found, card_mib)
        yield GivenView(
            group=group,
            reservation=held.name if held else "",
            uuid=uuid or (held.uuid if held else ""),
            index=held.index if held and uuid in {"", held.uuid} else -1,
            nano=nano,
            mem_mib=memory_from_nano(nano, card_mib),
        )


def _charged(pod: Pod, held: Reservation | None) -> int:
    """What the book of a device says of a pod, 0 where it says nothing."""
    entry = held.book.entries.get(pod.metadata.uid) if held is not None and held.book is not None else None
    return entry.nano if entry is not None else 0


def _asked(found: Translation | Refusal, card_mib: int) -> int:
    """What a pod asks of each of its devices, as the binder charges it, 0 where that can't be told."""
    asks = () if isinstance(found, Refusal) else found.request.shared
    known = {charge_nano(ask, card_mib) for ask in asks if isinstance(ask, FractionAsk) or card_mib}
    return (known.pop() or 0) if len(known) == 1 else 0


def _waits(pod: Pod, on_its_way_to: str) -> WaitView | None:
    """Why it does not run yet, as far as anybody has said; None once all its containers had their chance."""
    if pod.status.phase not in {names.PENDING, ""}:
        return None
    if pod.spec.node_name:
        return _starting(pod)
    said = _denied(pod, names.CONDITION_POD_SCHEDULED)
    return WaitView(
        reason=said.reason if said else "",
        message=said.message if said else "",
        on_its_way_to=on_its_way_to,
        last_failure=(pod.metadata.annotations or {}).get(names.FENCED_BECAUSE, ""),
    )


def _denied(pod: Pod, kind: str) -> Condition | None:
    return next((c for c in pod.status.conditions or () if c.type == kind and c.status == "False"), None)


def _starting(pod: Pod) -> WaitView:
    """What kubelet says of the first container that it can't start yet."""
    statuses: list[ContainerStatus] = [
        *(pod.status.init_container_statuses or ()),
        *(pod.status.container_statuses or ()),
    ]
    waiting = next((s.state.waiting for s in statuses if s.state is not None and s.state.waiting), None)
    if waiting is None:
        return WaitView()
    return WaitView(reason=str(waiting.get("reason", "")), message=str(waiting.get("message", "")))


class Beside(msgspec.Struct, frozen=True, gc=False):
    """What pods take of a node that have nothing to do with GPUs: CPU in milli-cores, memory in MiB, pod slots."""

    cpu_milli: int = 0
    mem_mib: int = 0
    pods: int = 0

    def __add__(self, other: Beside) -> Beside:
        """Both together."""
        return Beside(self.cpu_milli + other.cpu_milli, self.mem_mib + other.mem_mib, self.pods + other.pods)


class Count:
    """Nodes, hand-overs and pods of one moment.

    The scheduler's own cluster (scheduler/core/cluster.py) follows events, decides, and needs NumPy for that: importing
    it took a third of what ``inspect`` takes. Here each object is taken once, and nothing is decided; a test holds both
    to the same views.
    """

    def __init__(self, found: Found | None = None, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        self._nodes: dict[str, NodeRecord] = {}
        self._pods = Pods()
        self._commits = Commits(self._pods, settings=self._settings, changed=_nothing, touched=_nothing)
        if found is not None:
            self._nodes = {node.metadata.name: node_record(node) for node in found.nodes}
            # One without a readable charge is nobody's.
            for request in map(bind_request_record, found.requests):
                if request is not None:
                    self._commits.hand_overs.put(request)
            for pod in found.pods:
                self._take(pod)

    def _take(self, pod: Pod) -> None:
        """Take a pod. One that has ended holds nothing any more, except as a reservation with a book."""
        seen = seen_pod(pod, self._settings)
        if seen.reservation is not None:
            self._pods.put_reservation(seen.reservation)
            self._commits.reservation_seen(seen.reservation, None)
        if not seen.has_ended:
            if seen.record is not None:
                self._pods.put(seen.record)
                self._commits.pod_seen(seen.uid, is_bound=bool(seen.record.node))
        elif seen.reservation is None:
            if self._commits.hand_overs.is_named(seen.uid):
                self._pods.gone.put(seen.uid, None)
            self._commits.pod_gone(seen.uid)

    def views(self) -> dict[str, NodeView]:
        """Show each node as it is counted, by name."""
        known = Known(self._pods.records)
        return {name: self._view(node, known) for name, node in sorted(self._nodes.items())}

    def _view(self, node: NodeRecord, known: Known) -> NodeView:
        pods, charges = tuple(self._pods.bound_to(node.name)), tuple(self._commits.charges_at(node.name))
        return node_view(node, self._used(node), pods=pods, charges=charges, known=known)

    def use(self, name: str) -> Use:
        """Return what is used, free, in pieces and stranded of a node that is there."""
        node = self._nodes[name]
        return use_of_node(node, self._used(node))

    def unusable(self, beside: Mapping[str, Beside]) -> Mapping[Cause, int]:
        """Free GPUs of all nodes, in nano-GPU, that no pod of their node pool that waits or is usual can take.

        ``beside``: what pods take of each node that have nothing to do with GPUs.
        """
        pools: dict[str, list[NodeRecord]] = {}
        for _, node in sorted(self._nodes.items()):
            pools.setdefault(_pool(node.labels), []).append(node)
        came: dict[str, Counter[Kind]] = {pool: Counter() for pool in pools}
        waiting: dict[str, list[PodRecord]] = {pool: [] for pool in pools}
        for pod in self._pods.records.values():
            there = self._nodes.get(pod.node)
            if not pod.node and _pool(pod.labels) in waiting:
                waiting[_pool(pod.labels)].append(pod)
            elif there is not None and not pod.is_reservation:
                kind = kind_of(pod)
                came[_pool(there.labels)].update([] if kind is None else [kind])
        sums: Counter[Cause] = Counter()
        for pool, nodes in pools.items():
            kinds = counted_kinds(came[pool], waiting_kinds(waiting[pool]))
            lefts = (self._left(node, beside.get(node.name, _NOBODY)) for node in nodes)
            sums.update(unusable_in_sum(lefts, kinds, self._settings))
        return {cause: sums[cause] for cause in Cause if sums[cause]}

    def _left(self, node: NodeRecord, beside: Beside) -> NodeLeft:
        left = node_left(node, self._used(node))
        return msgspec.structs.replace(
            left,
            cpu_milli=left.cpu_milli - beside.cpu_milli,
            mem_mib=left.mem_mib - beside.mem_mib,
            pods=left.pods - beside.pods,
        )

    def _used(self, node: NodeRecord) -> Occupancy:
        return occupancy(
            node,
            pods=tuple(self._pods.bound_to(node.name)),
            reservations=self._pods.reserved_on(node.name),
            charges=tuple(self._commits.charges_at(node.name)),
            settings=self._settings,
        )


def _pool(labels: Mapping[str, str]) -> str:
    return labels.get(names.NODE_POOL_LABEL, "")


_NOBODY: Final = Beside()


def _nothing(*_what: str) -> None:
    """Nothing is decided on this count, so nobody waits for a change."""


_INTERNAL_IP: Final = "InternalIP"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What was read. ``pods``: at least those that ``matters`` says, or name one of ``groups``.

    ``asked_for``: names of pods to show in any case, or of PodGroups to show with their pods.

    ``beside``: by node, what pods take that have nothing to do with GPUs; None: not read.
    ``are_all_pods``: whether all that is on these nodes was read, so that it can be said what is free. ``unread``: what
    could not be read.
    """

    nodes: Sequence[Node] = ()
    pods: Sequence[Pod] = ()
    groups: Sequence[PodGroup] = ()
    requests: Sequence[BindRequest] = ()
    asked_for: frozenset[str] = frozenset()
    are_all_pods: bool = True
    beside: Mapping[str, Beside] | None = None
    unread: tuple[str, ...] = ()


def survey(found: Found, *, namespaces: Collection[str] = (), count: Count | None = None) -> Inspection:
    """Show all nodes, and the pods that have to do with GPUs and have not ended; ``namespaces`` () for all.

    The pods of other namespaces count as used, but are not named where some are asked for. ``count``: of what was
    found, by who needs that, too.
    """
    settings = Settings()
    count = count or Count(found, settings)
    views = count.views()
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
        unusable=tuple(_unusable(count.unusable(found.beside) if found.beside is not None else {})),
        unread=found.unread,
    )


def _name(view: PodView) -> tuple[str, str]:
    return view.namespace, view.name


def group_of(pod: Pod) -> tuple[str, str] | None:
    """Return namespace and name of the PodGroup that a pod names."""
    name = (pod.metadata.annotations or {}).get(names.POD_GROUP_NAME, "")
    return (pod.metadata.namespace, name) if name else None


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
    count = Count(Found(nodes=nodes, pods=mattering, requests=requests))
    return _unusable(count.unusable(summed(taken)))


def _unusable(causes: Mapping[Cause, int]) -> list[UnusableView]:
    return [UnusableView(cause=cause, nano=nano) for cause, nano in causes.items()]


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
    read = ((bind_request.read(request), request.spec.selected_node) for request in requests)
    return {ordered.pod_uid: node for ordered, node in read if isinstance(ordered, Order)}
