"""A cluster of records, which is the scheduler's own ``Cluster`` and ``decide``, and the tally of a replay on it.

What API server, binder and kubelet would do is done at once: the pod is bound with its grant. A pod that fits nowhere
is gone at once. A tally has the GPUs in use over the load that has arrived, as published results have it, and the pods
lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
from typing_extensions import override

from gpu.bind_request import PlannedDevice
from gpu.book import Book
from gpu.request import NO_GPU, ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest
from gpu.reservation import Reservation
from gpu.share import NANO_PER_DEVICE
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Alone, Placement
from scheduler.core.model.pod_class import Constraints, Demand, PodClass, Requirement, Term
from scheduler.core.model.records import Held, NodeRecord, PodRecord, SeenPod
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.table import CPU, LEFT_MILLI, MILLI_PER_GPU, Int64s
from scheduler.core.scores.prices import Prices, prices_of, typical_of
from scheduler.core.scores.registry import SCORES
from scheduler.core.scores.score import Look, Score
from simulator.traces.trace import Ask, TraceNode
from wire import names

_LARGEST_CPU_MILLI: Final = 128_000
_LARGEST_GPU_MILLI: Final = 8_000
_PERCENT: Final = 100
_NANO_PER_MILLI: Final = NANO_PER_DEVICE // MILLI_PER_GPU


class BestFit:
    """Best fit as published with the openb trace, only to compare with; no cluster can choose it.

    CPU and GPUs left on the node, each as a part of the largest node's, in whole percent as published: the least of
    both, and the tightest device.
    """

    name = "best-fit"
    opens_last = False

    def keys(self, look: Look) -> Int64s:
        """How much is left after the pod, in percent."""
        shared = sum(ask.nano for pool in look.pools for ask in pool.asks if hasattr(ask, "nano")) // _NANO_PER_MILLI
        cpu = look.free[CPU] - look.demand.cpu_milli
        gpus = look.fact(LEFT_MILLI) - look.demand.gpus * MILLI_PER_GPU - shared
        used = 2 * _LARGEST_CPU_MILLI - cpu - gpus * (_LARGEST_CPU_MILLI // _LARGEST_GPU_MILLI)
        keys: Int64s = _PERCENT - np.clip(used * _PERCENT // (2 * _LARGEST_CPU_MILLI), 0, _PERCENT)
        return keys

    def device_key(self, free_nano: int, nano: int) -> int:
        """The tightest device first."""
        del nano
        return free_nano

    def opens_rather(self, free_nano: int, nano: int) -> bool:
        """Never."""
        del free_nano, nano
        return False


BEST_FIT: Final[Score] = BestFit()


_WHOLE: Final = PodClass(demand=Demand(gpus=1))


class SharedDevices:
    """Which devices are shared, and by how many pods. ``next_rv``: a resourceVersion that nobody had before.

    A device that is opened gets a reservation that says which device it is, and loses it with its last tenant.
    """

    def __init__(self, cluster: Cluster, next_rv: Callable[[], str]) -> None:
        self._cluster = cluster
        self._next_rv = next_rv
        #: By GPU group: how many tenants it has.
        self._tenants: dict[str, int] = {}

    def join(self, devices: Iterable[PlannedDevice], node: str) -> tuple[Held, ...]:
        """Let a pod onto devices; return what it holds."""
        return tuple(self._held(device, node) for device in devices)

    def leave(self, devices: Iterable[PlannedDevice]) -> None:
        """Take a pod off devices that it joined."""
        for device in devices:
            self._tenants[device.group] -= 1
            if not self._tenants[device.group]:
                del self._tenants[device.group]
                self._cluster.remove_pod(_reservation_uid(device.group))

    def _held(self, device: PlannedDevice, node: str) -> Held:
        uid = _reservation_uid(device.group)
        if device.group not in self._tenants:
            self._open(device.group, uid, node)
        self._tenants[device.group] = self._tenants.get(device.group, 0) + 1
        return Held(device.group, device.nano, reservation=uid, uuid=_uuid(device.group))

    def _open(self, group: str, uid: str, node: str) -> None:
        rv = self._next_rv()
        reservation = Reservation(
            group=group,
            namespace=names.RESERVATION_NAMESPACE,
            name=group,
            uid=uid,
            rv=rv,
            node=node,
            phase=names.RUNNING,
            uuid=_uuid(group),
            index=-1,
            mem_mib=0,
            book=Book(),
            deleting=False,
            finalized=True,
        )
        record = PodRecord(
            uid=uid,
            namespace=names.RESERVATION_NAMESPACE,
            name=group,
            rv=rv,
            node=node,
            cls=_WHOLE,
            is_reservation=True,
        )
        self._cluster.take_pod(SeenPod(uid=uid, rv=rv, has_ended=False, record=record, reservation=reservation))


def _reservation_uid(group: str) -> str:
    return f"r-{group}"


def _uuid(group: str) -> str:
    return f"GPU-{group}"


MODEL_LABEL: Final = "model"
#: Pods of a node, as in the published experiments: never the limit.
PODS: Final = 1_001
_CARD_MIB: Final = 16_384
_NAMESPACE: Final = "default"
#: Scores that a trace may be replayed with.
REPLAYED: Final = {**SCORES, BEST_FIT.name: BEST_FIT}


class Records:
    """Nodes and pods as records, under one strategy. ``ranks``: order of nodes that are equal."""

    def __init__(
        self, nodes: Sequence[TraceNode], ranks: Sequence[int], *, gpu_strategy: str, cpu_strategy: str
    ) -> None:
        self.cluster = Cluster(Settings(gpu_strategy=gpu_strategy, cpu_strategy=cpu_strategy), scores=REPLAYED)
        self._rv = 0
        self._now_ns = 0
        self._classes: dict[Ask, PodClass] = {}
        self._bound: dict[str, tuple[PlannedDevice, ...]] = {}
        self._shared = SharedDevices(self.cluster, self._next_rv)
        named = zip(nodes, ranks, strict=True)
        self.cluster.replace_nodes([node_record(node, rank) for node, rank in named])
        self.cluster.refresh()

    def prices(self) -> Prices | None:
        """Return prices by the pods that came so far, as a scheduler makes them now and then; None: too few came."""
        return prices_of(typical_of(self.cluster.arrivals.counts()))

    def place(self, uid: str, ask: Ask) -> Placement | None:
        """Have a pod decided on, and bind it; None if it fits nowhere, and is gone."""
        cls = self._class_of(ask)
        self._take(PodRecord(uid=uid, namespace=_NAMESPACE, name=uid, rv=self._next_rv(), node="", cls=cls))
        self._now_ns += 1
        entries = self.cluster.decide(self._now_ns).entries
        placed = next((entry.placement for entry in entries if isinstance(entry, Alone)), None)
        if placed is None:
            self.cluster.remove_pod(uid)
            return None
        held = self._shared.join(placed.devices, placed.node)
        rv = self._next_rv()
        self._take(PodRecord(uid=uid, namespace=_NAMESPACE, name=uid, rv=rv, node=placed.node, cls=cls, held=held))
        self._bound[uid] = placed.devices
        return placed

    def end(self, uid: str) -> None:
        """End a bound pod, and give back devices that nobody shares any more. Raises KeyError for one not bound."""
        devices = self._bound.pop(uid)
        self.cluster.remove_pod(uid, has_ended=True)
        self._shared.leave(devices)

    def validate(self) -> list[str]:
        """Recount everything; say where the ledger differs."""
        return self.cluster.validate()

    def _next_rv(self) -> str:
        self._rv += 1
        return str(self._rv)

    def _take(self, record: PodRecord) -> None:
        seen = SeenPod(uid=record.uid, rv=record.rv, has_ended=False, record=record, reservation=None)
        self.cluster.take_pod(seen)

    def _class_of(self, ask: Ask) -> PodClass:
        known = self._classes.get(ask)
        if known is None:
            known = self._classes[ask] = pod_class(ask)
        return known


def node_name(node: TraceNode, rank: int) -> str:
    """Return a name that sorts by rank: equals are taken by name."""
    return f"{rank:06d}-{node.name}"


def node_record(node: TraceNode, rank: int) -> NodeRecord:
    """Return the record of a node."""
    return NodeRecord(
        name=node_name(node, rank),
        uid=node.name,
        labels={MODEL_LABEL: node.model} if node.model else {},
        taints=(),
        is_ready=True,
        is_cordoned=False,
        capacity=Demand(cpu_milli=node.cpu_milli, mem_mib=node.mem_mib, gpus=node.gpus),
        pods=PODS,
        smallest_card_mib=_CARD_MIB,
        largest_card_mib=_CARD_MIB,
    )


def pod_class(ask: Ask) -> PodClass:
    """Return the class of a pod."""
    request, demand = NO_GPU, Demand(cpu_milli=ask.cpu_milli, mem_mib=ask.mem_mib, gpus=ask.gpus)
    if ask.is_shared:
        share = FractionAsk(ask.gpu_milli * _NANO_PER_MILLI)
        request = GpuRequest((ContainerRequest(ContainerRef(ContainerKind.REGULAR, 0), asks=(share,)),))
        demand = Demand(cpu_milli=ask.cpu_milli, mem_mib=ask.mem_mib)
    terms = (Term((Requirement(MODEL_LABEL, "In", ask.models),), ()),) if ask.models else None
    return PodClass(demand=demand, request=request, constraints=Constraints(terms=terms))


class Point(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """At a load in percent of all GPUs, the GPUs in use in hundredths of a percent: the mean over its arrivals."""

    load_percent: int
    used_e4: int

    @property
    def used_percent(self) -> float:
        """For people."""
        return self.used_e4 / _PERCENT


def load_curve(arrived_milli: Sequence[int], used_milli: Sequence[int], capacity_milli: int) -> tuple[Point, ...]:
    """Return a point for each load that some arrival brought, rising.

    ``arrived_milli``, ``used_milli``: after each arrival, the GPUs asked so far and those in use.
    """
    sums: dict[int, tuple[int, int]] = {}
    for arrived, used in zip(arrived_milli, used_milli, strict=True):
        load = (2 * _PERCENT * arrived + capacity_milli) // (2 * capacity_milli)
        total, count = sums.get(load, (0, 0))
        sums[load] = total + used, count + 1
    return tuple(
        Point(load, (2 * total * _PERCENT**2 + count * capacity_milli) // (2 * count * capacity_milli))
        for load, (total, count) in sorted(sums.items())
    )


def at_load(curve: Sequence[Point], load_percent: int) -> Point | None:
    """Return the point at a load, or the nearest within one percent; None if the arrivals do not get there."""
    near = [point for point in curve if abs(point.load_percent - load_percent) <= 1]
    return min(near, key=lambda point: abs(point.load_percent - load_percent), default=None)


class Strategies(msgspec.Struct, frozen=True, gc=False):
    """Names of scores: for GPUs, whole and in parts, and for pods without."""

    gpu: str
    cpu: str

    @override
    def __str__(self) -> str:
        """Return the form in which people write it."""
        return self.gpu if self.gpu == self.cpu else f"{self.gpu}/{self.cpu}"


class Run(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One seed under one strategy.

    ``lost``: pods that fitted nowhere when they came, ``lost_without_gpus`` of them ask for none. ``curve``: GPUs in
    use by load. ``differences``: where the ledger differs from a recount at the end, and invariants that did not hold.
    """

    strategy: str
    seed: int
    pods: int
    lost: int
    lost_without_gpus: int
    curve: tuple[Point, ...]
    differences: tuple[str, ...]


@dataclass(slots=True)
class Tally:
    """Counts pods as they come."""

    arrived_milli: list[int] = field(default_factory=list)
    used_milli: list[int] = field(default_factory=list)
    lost: int = 0
    lost_without_gpus: int = 0

    def count(self, ask: Ask, *, is_placed: bool) -> None:
        """Count one more pod."""
        arrived = self.arrived_milli[-1] if self.arrived_milli else 0
        used = self.used_milli[-1] if self.used_milli else 0
        self.arrived_milli.append(arrived + ask.total_milli)
        self.used_milli.append(used + (ask.total_milli if is_placed else 0))
        self.lost += not is_placed
        self.lost_without_gpus += not is_placed and not ask.gpus

    def run(self, strategies: Strategies, seed: int, *, capacity_milli: int, differences: Iterable[str]) -> Run:
        """Return the result."""
        return Run(
            strategy=str(strategies),
            seed=seed,
            pods=len(self.arrived_milli),
            lost=self.lost,
            lost_without_gpus=self.lost_without_gpus,
            curve=load_curve(self.arrived_milli, self.used_milli, capacity_milli) if capacity_milli else (),
            differences=tuple(differences),
        )
