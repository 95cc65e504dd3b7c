"""Which shares wait for want of devices, and how much of one each would take (docs/design/autoscaling.md).

A share wants a device if it still fits nowhere when nobody is in doubt and no node is out for it: then no time that
passes helps it, only a node does. Nor may whole GPUs be free that it can't use: what asks for them brings no node.

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
from scheduler.core.decide.allowance import Allowance
from scheduler.core.decide.placer import Placer
from scheduler.core.filters.registry import OK, Filters
from scheduler.core.groups.quorum import Missing
from scheduler.core.model.plan import Explain
from scheduler.core.model.priority_order import Candidate, order, order_members
from scheduler.core.model.records import Constraints, Demand, NodeRecord, PodClass, PodGroupRecord, PodRecord
from scheduler.core.model.verdict import Code

#: Verdicts that a further node can change.
_FOR_WANT_OF_NODES = frozenset({Code.NO_NODE_FITS, Code.GANG_INCOMPLETE})
#: Operations of about a microsecond that one search may do, as decisions count them (decide.py): to place one pod more
#: of a class, and the first one, with so many nodes for one operation.
_MOST: Final = 60_000
_PLACING: Final = 50
_RANKING: Final = 150
_NODES_PER_OPERATION: Final = 10


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
    search = _Search(cluster, now_ns, memory_nano)
    candidates = order(search.candidates(explained))
    search.allowance = Allowance(namespaces=len({c.pods[0].namespace for c in candidates}), most=most)
    for candidate in candidates:
        search.look_at(candidate)
    return search.found


@dataclass(slots=True)
class _Search:
    """One search under way, on one statement: what a pod or a gang would take is not there for those after it."""

    cluster: Cluster
    now_ns: int
    memory_nano: int
    found: list[Want] = field(default_factory=list)
    allowance: Allowance = field(init=False)
    _placer: Placer | None = None
    #: Groups of devices that are open, or were opened on the statement.
    _open: set[str] = field(default_factory=set)
    _hopeless: set[PodClass] = field(default_factory=set)
    #: Classes that were tried.
    _ranked: set[PodClass] = field(default_factory=set)
    _cards: dict[Constraints, list[int]] = field(default_factory=dict)
    #: Class -> what its shares take of devices; None: it can't use whole GPUs that are free.
    _nanos: dict[PodClass, tuple[int, ...] | None] = field(default_factory=dict)

    @property
    def placer(self) -> Placer:
        """The working copy, made when there is something to place."""
        if self._placer is None:
            self._placer = Placer(self.cluster.snapshot(), doubts={})
            self._open = {device.group for devices in self._placer.statement.table.devices for device in devices}
        return self._placer

    def candidates(self, explained: Iterable[Explain]) -> Iterator[Candidate]:
        """Whoever waits for want of nodes, as far as it still waits and is still known."""
        still = {pod.uid: pod for pod in self.cluster.waiting()}
        for entry in explained:
            pods = [pod for uid in entry.pods if (pod := still.get(uid)) is not None and not self._is_held_up(pod)]
            if entry.verdict.code not in _FOR_WANT_OF_NODES or not pods:
                continue
            if entry.pod_group is None:
                yield from (Candidate([pod]) for pod in pods)
            elif (group := self.cluster.pod_group(*entry.pod_group)) is not None:
                yield Candidate(order_members(pods), group)

    def _is_held_up(self, pod: PodRecord) -> bool:
        setback = self.cluster.setback(pod.uid)
        return pod.blocker is not None or pod.gated or (setback is not None and self.now_ns < setback.until_ns)

    def look_at(self, candidate: Candidate) -> None:
        """Place what fits of a candidate, and note what wants a device."""
        first = candidate.pods[0]
        is_known = all(pod.cls in self._hopeless for pod in candidate.pods)
        if not is_known and not self.allowance.has_left(first.namespace):
            return
        if candidate.pod_group is not None:
            self._look_at_gang(candidate.pods, candidate.pod_group)
            return
        for pod in candidate.pods:
            if self._place(pod) is None and pod.cls.request.is_shared:
                self._note(pod, self._lacking(pod.cls))

    def _look_at_gang(self, pods: list[PodRecord], group: PodGroupRecord) -> None:
        """Place as many members as the minimum needs: those that fit first, whatever devices they open."""
        missing = self.cluster.quorum(group).missing(pods)
        placed: list[tuple[PodRecord, int]] = []
        failed: list[PodRecord] = []
        for pod in pods:
            if not missing.is_reached and missing.wants(pod):
                opened = self._place(pod)
                if opened is None:
                    failed.append(pod)
                else:
                    placed.append((pod, opened))
                    missing.take(pod)
        if missing.is_reached:
            return
        for pod, opened in placed:
            self._note(pod, (NANO_PER_DEVICE,) * opened)
        for pod in _needed(failed, missing):
            if pod.cls.request.is_shared:
                self._note(pod, self._nanos_of(pod.cls))

    def _place(self, pod: PodRecord) -> int | None:
        """Place a pod where there is room: how many devices that opens; None if there is none.

        A statement is only ever charged, so a class that failed is through.
        """
        if pod.cls in self._hopeless:
            return None
        self.allowance.spend(pod.namespace, _PLACING if pod.cls in self._ranked else self._first_cost())
        self._ranked.add(pod.cls)
        placement = self.placer.place(pod)
        if placement is None:
            self._hopeless.add(pod.cls)
            return None
        opened = {device.group for device in placement.devices} - self._open
        self._open |= opened
        return len(opened)

    def _first_cost(self) -> int:
        return _RANKING + len(self.cluster.ledger.row_of) // _NODES_PER_OPERATION

    def _note(self, pod: PodRecord, nanos: tuple[int, ...] | None) -> None:
        if not nanos or any(ask.profile for ask in pod.cls.request.shared):
            return  # no autoscaler is asked for slices (docs/design/slices.md)
        self.found.append(
            Want(
                uid=pod.uid,
                namespace=pod.namespace,
                name=pod.name,
                constraints=pod.cls.constraints,
                demand=_in_whole_devices(pod.cls, len(nanos)),
                nanos=nanos,
            )
        )

    def _lacking(self, cls: PodClass) -> tuple[int, ...] | None:
        """What the shares of a class take of devices, unless GPUs are free that they can't use."""
        if cls not in self._nanos:
            whole = PodClass(demand=_in_whole_devices(cls, len(cls.request.shared)), constraints=cls.constraints)
            self._nanos[cls] = self._nanos_of(cls) if self.placer.ranking(whole).best() is None else None
        return self._nanos[cls]

    def _nanos_of(self, cls: PodClass) -> tuple[int, ...]:
        return tuple(sorted((self._nano(ask, cls.constraints) for ask in cls.request.shared), reverse=True))

    def _nano(self, ask: SharedAsk, constraints: Constraints) -> int:
        match ask:
            case FractionAsk(nano=nano):
                return nano
            case MemoryAsk(mem_mib=mem_mib):
                if constraints not in self._cards:
                    self._cards[constraints] = _cards(
                        self.placer.statement.filters, self.placer.statement.nodes, constraints
                    )
                cards = self._cards[constraints]
                return _nano_of_memory(mem_mib, cards) if cards else self.memory_nano


def _needed(pods: Iterable[PodRecord], missing: Missing) -> Iterator[PodRecord]:
    """Those of the pods that bring a gang's minimum nearer, until it is reached."""
    for pod in pods:
        if not missing.is_reached and missing.wants(pod):
            missing.take(pod)
            yield pod


def _in_whole_devices(cls: PodClass, devices: int) -> Demand:
    return msgspec.structs.replace(cls.demand, gpus=cls.demand.gpus + devices)


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
