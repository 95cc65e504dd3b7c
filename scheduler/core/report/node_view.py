"""A node's GPUs as people see them: the tenants of each with their shares, what is free, and what takes nobody and why.

Drawn from the very count that decisions are made on (node_usage.py). Amounts are exact, in nano-GPU; MiB are there
where the card is known, rounded down for a share.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from gpu.bound_pod import ClaimedShare
from gpu.reservation import Reservation
from gpu.share import NANO_PER_DEVICE, memory_from_nano
from scheduler.core.model.records import NodeRecord, PodRecord
from scheduler.core.nodes.node_usage import Charge, Group, Occupancy
from wire import names


class Kind(enum.StrEnum):
    """How a device is used."""

    #: Held by a reservation pod, or about to be: for shares.
    SHARED = "shared"
    #: Handed to a pod by the vendor's device plugin.
    WHOLE = "whole"
    FREE = "free"


class Closed(enum.StrEnum):
    """Why a shared device takes no new tenant, even if a part is free."""

    #: Pods use a device that their reservation lost: this one, or the one that this group had.
    CONTENDED = "contended"
    #: Its device plugin says that it is unhealthy.
    ILL = "ill"
    #: Its reservation carries no book that can be read: made by KAI and not adopted yet, or by somebody else.
    NO_BOOK = "no-book"
    #: Its reservation is being deleted.
    LEAVING = "leaving"
    #: Its reservation is gone or has ended, and is not re-created yet.
    LOST = "lost"
    #: Several reservations say that they stand for it.
    DISPUTED = "disputed"
    #: Its reservation names no group.
    NO_GROUP = "no-group"


class TenantView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """One pod on a device. ``mem_mib`` 0: card unknown.

    ``is_kept``: no such pod exists, and the book keeps its share until the node confirms that its containers ended.
    Neither bound nor kept: the pod has its share and is on its way.
    """

    namespace: str
    name: str
    uid: str
    nano: int
    mem_mib: int
    is_bound: bool
    is_kept: bool = False

    @property
    def is_on_its_way(self) -> bool:
        """Whether the pod has its share and is not bound yet."""
        return not self.is_bound and not self.is_kept


class DeviceView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """One device. ``index`` -1, ``uuid`` "" and ``mem_mib`` 0: no reservation has reported it.

    ``number``: by which every view names it, from 0: the index where it is known, else the smallest number that no
    known device of the node has. -1 for MIG slices, which have none. ``reservation``: the pod's name. ``modes``: how
    its tenants run; more than one only where another scheduler has put them together. ``compute_percent``: asked
    of its compute, in sum. ``resource``: what its device plugin calls it; a MIG slice is shown here only while parts
    of it are given out. ``device``: of one that ResourceClaims give in parts, its driver, pool and name; such a device
    has no reservation, and is shown while pods that are bound have parts of it.
    """

    kind: Kind
    number: int = -1
    index: int = -1
    uuid: str = ""
    mem_mib: int = 0
    used_nano: int = 0
    free_nano: int = 0
    group: str = ""
    reservation: str = ""
    reservation_phase: str = ""
    closed: tuple[Closed, ...] = ()
    modes: tuple[str, ...] = ()
    compute_percent: int = 0
    tenants: tuple[TenantView, ...] = ()
    resource: str = names.GPU_RESOURCE
    device: str = ""

    @property
    def is_gpu(self) -> bool:
        """Whether its device plugin calls it a GPU."""
        return self.resource == names.GPU_RESOURCE


class SlicesView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """MIG slices of one profile: those in use are handed out whole, or held for shares."""

    profile: str
    total: int
    used: int


class NodeView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A node. ``gpus`` that its device plugin offers, ``free_gpus`` of them whole; MIG slices are counted apart.

    ``node_pool``: the value of its label, "" without one. ``is_multiplied``: each GPU is offered several times, so none
    is shared (gpu/node_resources.py). ``lost_gpus`` are used by pods whose reservation lost them: nobody gets those.
    ``free_nano``: what shares may still get, on free devices and on shared ones that are not closed.
    ``unhealthy_gpus`` and ``address`` are for readers of nodes; the scheduler keeps neither.
    """

    name: str
    address: str = ""
    node_pool: str = ""
    is_ready: bool
    is_cordoned: bool
    is_mig: bool
    is_multiplied: bool = False
    gpus: int
    unhealthy_gpus: int = 0
    free_gpus: int
    lost_gpus: int
    smallest_card_mib: int
    largest_card_mib: int
    used_nano: int
    free_nano: int
    devices: tuple[DeviceView, ...]
    slices: tuple[SlicesView, ...] = ()


class Known(msgspec.Struct, frozen=True, gc=False):
    """Pods by UID, bound and waiting."""

    pods: Mapping[str, PodRecord]

    def tenant(self, uid: str, nano: int, *, card_mib: int, written: str) -> TenantView:
        """Name a tenant, by its record or else as its book has it (``written``: namespace/name)."""
        pod = self.pods.get(uid)
        namespace, _, name = written.partition("/")
        return TenantView(
            namespace=pod.namespace if pod else namespace,
            name=pod.name if pod else name,
            uid=uid,
            nano=nano,
            mem_mib=memory_from_nano(nano, card_mib),
            is_bound=pod is not None and bool(pod.node),
            is_kept=pod is None and bool(written),
        )


def node_view(
    node: NodeRecord, used: Occupancy, *, pods: Iterable[PodRecord], charges: Iterable[Charge], known: Known
) -> NodeView:
    """Show a node that was counted from these bound pods and these charges; ``known`` tells pods by UID."""
    card_mib = node.largest_card_mib if node.smallest_card_mib == node.largest_card_mib else 0
    groups = [group for group in used.groups.values() if group.devices]
    shared = [device for group in groups for device in _shared(group, known, card_mib=card_mib)]
    bound = list(pods)
    shared += _claimed(bound, known)
    whole = list(_whole(bound, charges, known, card_mib=card_mib))
    held = sum(group.devices for group in groups if group.resource == names.GPU_RESOURCE) + len(whole)
    free = max(0, node.capacity.gpus - used.gpus)
    devices = _numbered([*sorted(shared, key=_place), *whole, *[_free(card_mib)] * free])
    return NodeView(
        name=node.name,
        node_pool=node.labels.get(names.NODE_POOL_LABEL, ""),
        is_ready=node.is_ready,
        is_cordoned=node.is_cordoned,
        is_mig=node.is_mig,
        is_multiplied=node.is_multiplied,
        gpus=node.capacity.gpus,
        free_gpus=free,
        lost_gpus=used.gpus - used.kept_gpus - used.barred_gpus - held,
        smallest_card_mib=node.smallest_card_mib,
        largest_card_mib=node.largest_card_mib,
        used_nano=sum(device.used_nano for device in devices if device.is_gpu),
        free_nano=sum(device.free_nano for device in devices if device.is_gpu and not device.closed),
        devices=tuple(devices),
        slices=tuple(_slices(node, used)),
    )


def _shared(group: Group, known: Known, *, card_mib: int) -> Iterator[DeviceView]:
    """A device of a group, or one for each of its reservations where it isn't clear which is the one."""
    closed = () if group.is_open else tuple(_closed(group))
    written = {uid: entry.pod for r in group.reservations if r.book for uid, entry in r.book.entries.items()}
    held: list[Reservation | None] = [*group.reservations] or [None]
    for number, reservation in enumerate(held):
        is_gpu = group.resource == names.GPU_RESOURCE
        mem_mib = (reservation.mem_mib if reservation else 0) or (card_mib if is_gpu else 0)
        charges = sorted(group.charges.items()) if number == 0 else []
        tenants = [known.tenant(uid, n, card_mib=mem_mib, written=written.get(uid, "")) for uid, n in charges]
        used_nano = sum(tenant.nano for tenant in tenants)
        yield DeviceView(
            kind=Kind.SHARED,
            index=reservation.index if reservation else -1,
            uuid=reservation.uuid if reservation else "",
            mem_mib=mem_mib,
            used_nano=used_nano,
            free_nano=max(0, NANO_PER_DEVICE - used_nano),
            group=group.id,
            reservation=reservation.name if reservation else "",
            reservation_phase=reservation.phase if reservation else "",
            closed=closed,
            modes=tuple(sorted(group.modes)),
            compute_percent=sum(group.computes.values()) if number == 0 else 0,
            tenants=tuple(sorted(tenants, key=lambda tenant: (tenant.namespace, tenant.name))),
            resource=group.resource,
        )


def _claimed(pods: Iterable[PodRecord], known: Known) -> Iterator[DeviceView]:
    """Devices of which claims give pods a part. Others may have parts by claims that they name themselves."""
    holders: dict[str, list[tuple[PodRecord, ClaimedShare]]] = {}
    for pod in pods:
        if pod.claimed is not None:
            holders.setdefault(pod.claimed.path, []).append((pod, pod.claimed))
    for path, held in sorted(holders.items()):
        share = held[0][1]
        tenants = [known.tenant(pod.uid, each.nano, card_mib=share.mem_mib, written="") for pod, each in held]
        used_nano = sum(tenant.nano for tenant in tenants)
        yield DeviceView(
            kind=Kind.SHARED,
            uuid=share.uuid,
            mem_mib=share.mem_mib,
            used_nano=used_nano,
            free_nano=max(0, NANO_PER_DEVICE - used_nano),
            tenants=tuple(sorted(tenants, key=lambda tenant: (tenant.namespace, tenant.name))),
            device=path,
        )


def _closed(group: Group) -> Iterator[Closed]:
    """All that keeps new tenants away from a group that is not open."""
    held = group.reservation
    if group.is_contended:
        yield Closed.CONTENDED
    if held is None:
        yield Closed.DISPUTED if group.reservations else Closed.LOST
        return
    if held.is_ill:
        yield Closed.ILL
    if held.deleting:
        yield Closed.LEAVING
    elif held.book is None:
        yield Closed.NO_BOOK
    if not group.id:
        yield Closed.NO_GROUP


def _whole(
    pods: Iterable[PodRecord], charges: Iterable[Charge], known: Known, *, card_mib: int
) -> Iterator[DeviceView]:
    """Devices in the hands of pods, and those that pods on their way will be given."""
    holders = {pod.uid: pod.cls.demand.gpus for pod in pods if not pod.is_reservation}
    for charge in charges:
        if charge.demand is not None:
            holders.setdefault(charge.pod_uid, charge.demand.gpus)
    tenants = [known.tenant(uid, NANO_PER_DEVICE, card_mib=card_mib, written="") for uid in holders]
    # Nobody reports which device is whose. The order is fixed, so that two reports are equal.
    for tenant in sorted(tenants, key=lambda tenant: (tenant.namespace, tenant.name, tenant.uid)):
        view = DeviceView(kind=Kind.WHOLE, mem_mib=card_mib, used_nano=NANO_PER_DEVICE, tenants=(tenant,))
        yield from (view for _ in range(holders[tenant.uid]))


def _free(card_mib: int) -> DeviceView:
    return DeviceView(kind=Kind.FREE, mem_mib=card_mib, free_nano=NANO_PER_DEVICE)


def _numbered(devices: Sequence[DeviceView]) -> list[DeviceView]:
    """The same in the order of their numbers, slices last."""
    known = {device.index for device in devices if device.is_gpu}
    unused = (number for number in itertools.count() if number not in known)
    numbered = [
        replace(device, number=device.index if device.index >= 0 else next(unused)) if device.is_gpu else device
        for device in devices
    ]
    return sorted(numbered, key=lambda device: (not device.is_gpu, device.number))


def _place(device: DeviceView) -> tuple[bool, int, str]:
    return device.index < 0, device.index, device.group or device.device


def _slices(node: NodeRecord, used: Occupancy) -> Sequence[SlicesView]:
    offered = [(name, total) for name, total in node.capacity.extended if name.startswith(names.MIG_RESOURCE_PREFIX)]
    return [
        SlicesView(profile=name.removeprefix(names.MIG_RESOURCE_PREFIX), total=total, used=used.extended.get(name, 0))
        for name, total in offered
    ]


#: Of a device of which nobody has told which one of its node it is.
UNKNOWN: Final = -1


class PodUse(msgspec.Struct, frozen=True, gc=False):
    """A pod on a device, and how many units of it are its."""

    name: str
    namespace: str
    used: int = msgspec.field(name="usedGPU")


class DeviceUse(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A device by its index, or UNKNOWN."""

    id: int
    total: int = msgspec.field(name="totalGPU")
    used: int = msgspec.field(name="usedGPU")
    pods: tuple[PodUse, ...] = ()


class NodeUse(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A node and its devices, those of known index first."""

    name: str
    total: int = msgspec.field(name="totalGPU")
    used: int = msgspec.field(name="usedGPU")
    devices: tuple[DeviceUse, ...] = msgspec.field(name="devs", default=())


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What the inspect API answers, in the terms of Aliyun's gpushare extender (docs/inspect.md).

    Memory of devices is in whole units (a GiB or a MiB, as its plugin's administrator chose), by the index of the
    device. ``error``: why there is nothing to be said, else left out.
    """

    nodes: tuple[NodeUse, ...]
    error: str | msgspec.UnsetType = msgspec.UNSET


def node_use(node: NodeView, *, unit_mib: int) -> NodeUse:
    """Tell of one node. A card of which nobody knows the memory has none here; MIG slices are not in these terms."""
    devices = tuple(_devices([device for device in node.devices if device.is_gpu], node.smallest_card_mib, unit_mib))
    return NodeUse(
        name=node.name,
        total=sum(device.total for device in devices),
        used=sum(device.used for device in devices),
        devices=devices,
    )


def _devices(shown: Sequence[DeviceView], smallest_card_mib: int, unit_mib: int) -> Iterator[DeviceUse]:
    """All devices. Free ones have an index where it is certain: when the indexes of all others are known."""
    indexes = {device.index for device in shown if device.index >= 0}
    others = [device for device in shown if device.index < 0]
    left = [index for index in range(len(shown)) if index not in indexes]
    are_certain = len(left) == len(others) and all(device.kind is Kind.FREE for device in others)
    numbered = [(device.index, device) for device in shown if device.index >= 0]
    numbered += zip(left if are_certain else [UNKNOWN] * len(others), others, strict=True)
    for index, device in sorted(numbered, key=lambda one: (one[0] < 0, one[0])):
        yield _device(index, device, smallest_card_mib, unit_mib)


def _device(index: int, device: DeviceView, smallest_card_mib: int, unit_mib: int) -> DeviceUse:
    """A device whose card is not known counts as the smallest of its node, as for the scheduler."""
    card_mib = device.mem_mib or smallest_card_mib
    total = card_mib // unit_mib
    used_mib = sum(memory_from_nano(tenant.nano, card_mib) for tenant in device.tenants)
    pods = tuple(_pods(device.tenants, card_mib, unit_mib))
    return DeviceUse(id=index, total=total, used=min(total, -(-used_mib // unit_mib)), pods=pods)


def _pods(tenants: Iterable[TenantView], card_mib: int, unit_mib: int) -> Iterator[PodUse]:
    for tenant in tenants:
        used = -(-memory_from_nano(tenant.nano, card_mib) // unit_mib)
        yield PodUse(tenant.name, tenant.namespace, min(used, card_mib // unit_mib))
