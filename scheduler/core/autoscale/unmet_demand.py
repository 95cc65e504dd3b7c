"""Which shares wait for want of devices, and how much of one each would take (docs/design/autoscaling.md).

A share wants a device if it still fits nowhere when nobody is in doubt and no node is out for it: then no time that
passes helps it, only a node does. So this is a decision on a changed snapshot: nothing went wrong yet, and who fits
nowhere gets a node of its own, if its queue takes it (decide/single_pods.py). Who was put there wants devices.

A gang wants all devices that it would open, also those that are there and free: autoscalers see them free, and would
count on them for what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from gpu.request import FractionAsk, MemoryAsk, SharedAsk
from gpu.share import NANO_PER_DEVICE, nano_from_memory
from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import Limits
from scheduler.core.decide.changes import NodesAsAsked, NoDoubts, NoRoomMade, OnlyThese
from scheduler.core.decide.decide import decide_as_if
from scheduler.core.decide.single_pods import SUPPOSED, in_whole_devices
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.filters.registry import OK, Filters
from scheduler.core.model.plan import Entry, Explain, Placement, placements
from scheduler.core.model.pod_class import Constraints, Demand, PodClass
from scheduler.core.model.records import NodeRecord, PodRecord
from scheduler.core.model.verdict import Code

#: Verdicts that a further node can change.
_FOR_WANT_OF_NODES = frozenset(
    {
        Code.NO_NODE_FITS,
        Code.GANG_INCOMPLETE,
        Code.TOPOLOGY_NOT_SATISFIED,
        Code.TOPOLOGY_SEARCH_CUT,
        Code.WAITS_FOR_BERTH,
    }
)
#: Operations of about a microsecond that one search may do, as decisions count them (decide.py).
_MOST: Final = 60_000


class Want(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Devices for a share. ``nanos``: what is taken of each of them, largest first: all of a device that is there.

    ``demand``: what its scaling pod asks: whole devices in the place of the shares, and all else that the pod takes.
    """

    uid: str
    namespace: str
    name: str
    constraints: Constraints
    demand: Demand
    nanos: tuple[int, ...]


def wants(
    cluster: Cluster, explained: Iterable[Explain], *, now_ns: int, memory_nano: int, most: int = _MOST
) -> list[Want]:
    """Shares that want a device, in the order of decision, out of what the last decision said of those that wait.

    ``memory_nano``: what a ``gpu-memory`` ask takes of a device as long as no card is known. Leaves the cluster
    unchanged.

    A search does up to ``most`` operations, and beyond that each namespace goes on within its equal share of them
    (allowance.py). Pods that are not reached want nothing until those before them have their devices.
    """
    uids = frozenset(_waiting(cluster, explained, now_ns))
    if not uids:
        return []
    snapshot, changes = cluster.snapshot(), (OnlyThese(uids), NoDoubts(), NoRoomMade(), NodesAsAsked())
    decision = decide_as_if(snapshot, *changes, now_ns=now_ns, limits=Limits(most=most))
    reading = _Reading(snapshot, now_ns, memory_nano)
    return [want for entry in decision.entries for want in reading.wants(entry)]


def _waiting(cluster: Cluster, explained: Iterable[Explain], now_ns: int) -> Iterator[str]:
    """Pods (UIDs) that wait for want of nodes, as far as they still wait and may be placed now."""
    for entry in explained:
        if entry.verdict.code in _FOR_WANT_OF_NODES:
            for uid in entry.pods:
                pod, setback = cluster.pod(uid), cluster.setback(uid)
                if pod is not None and not (pod.node or pod.gated) and (setback is None or now_ns >= setback.until_ns):
                    yield uid


@dataclass(slots=True)
class _Reading:
    """Reads off the entries of a decision, in order, who wants what."""

    snapshot: Snapshot
    now_ns: int
    memory_nano: int
    #: Groups of devices that are open, or were opened by entries so far.
    _open: set[str] = field(init=False)
    _cards: dict[Constraints, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        there = self.snapshot.ledger.table.devices
        self._open = {device.group for devices in there for device in devices}

    def wants(self, entry: Entry) -> Iterator[Want]:
        """Who wants a device by one entry: nobody if all its pods fit on nodes that are there."""
        placed = [(placement, self._opened(placement)) for placement in placements([entry])]
        if all(placement.node != SUPPOSED for placement, _ in placed):
            return
        for placement, opened in placed:
            known = self.snapshot.pod(placement.pod_uid)
            if known is None:
                raise LookupError(f"pod {placement.pod_uid} is placed, and is not known")
            pod = self.snapshot.judged(known, self.now_ns)
            nanos = self._nanos_of(pod.cls) if placement.node == SUPPOSED else (NANO_PER_DEVICE,) * opened
            if nanos and not any(ask.profile for ask in pod.cls.request.shared):
                yield _want(pod, nanos)  # no autoscaler is asked for slices (docs/design/slices.md)

    def _opened(self, placement: Placement) -> int:
        """How many devices a placement opens."""
        opened = {device.group for device in placement.devices} - self._open
        self._open |= opened
        return len(opened)

    def _nanos_of(self, cls: PodClass) -> tuple[int, ...]:
        return tuple(sorted((self._nano(ask, cls.constraints) for ask in cls.request.shared), reverse=True))

    def _nano(self, ask: SharedAsk, constraints: Constraints) -> int:
        match ask:
            case FractionAsk(nano=nano):
                return nano
            case MemoryAsk(mem_mib=mem_mib):
                if constraints not in self._cards:
                    ledger = self.snapshot.ledger
                    self._cards[constraints] = _cards(ledger.filters, ledger.in_order().nodes, constraints)
                cards = self._cards[constraints]
                return _nano_of_memory(mem_mib, cards) if cards else self.memory_nano


def _want(pod: PodRecord, nanos: tuple[int, ...]) -> Want:
    return Want(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        constraints=pod.cls.constraints,
        demand=in_whole_devices(pod.cls, len(nanos)),
        nanos=nanos,
    )


def _cards(filters: Filters, nodes: Iterable[NodeRecord], constraints: Constraints) -> list[int]:
    """Sizes in MiB of the cards where these constraints let a pod be, smallest first; a node's readiness is nothing."""
    sizes: set[int] = set()
    judge = filters.judging(constraints)
    for node in nodes:
        own = {node.smallest_card_mib, node.largest_card_mib} - {0}
        if own - sizes and judge(msgspec.structs.replace(node, is_ready=True, is_cordoned=False)) == OK:
            sizes |= own
    return sorted(sizes)


def _nano_of_memory(mem_mib: int, cards: list[int]) -> int:
    """What memory takes of the smallest card that holds it; all of a device if none of those known does."""
    fitting = (nano for card in cards if (nano := nano_from_memory(mem_mib, card)) is not None)
    return next(fitting, NANO_PER_DEVICE)
