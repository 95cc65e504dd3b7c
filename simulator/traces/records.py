"""A cluster of records: the scheduler's own ``Cluster`` and ``decide``, without an API server.

What API server, binder and kubelet would do is done at once: a device that is opened gets a reservation that says
which device it is, and the pod is bound with its grant. When the last tenant of a device is gone, so is its
reservation. A pod that fits nowhere is gone at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpu.bind_request import PlannedDevice
from gpu.request import NO_GPU, ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest
from gpu.share import NANO_PER_DEVICE
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Alone, Placement
from scheduler.core.model.pod_class import Constraints, Demand, PodClass, Requirement, Term
from scheduler.core.model.records import NodeRecord, PodRecord, SeenPod
from scheduler.core.model.settings import Settings
from scheduler.core.scores.prices import Prices, prices_of, typical_of
from scheduler.core.scores.registry import SCORES
from simulator.traces.best_fit import BEST_FIT
from simulator.traces.shared_devices import SharedDevices
from simulator.traces.trace import MILLI_PER_GPU, Ask, TraceNode

MODEL_LABEL: Final = "model"
#: Pods of a node, as in the published experiments: never the limit.
PODS: Final = 1_001
_CARD_MIB: Final = 16_384
_NAMESPACE: Final = "default"
_NANO_PER_MILLI: Final = NANO_PER_DEVICE // MILLI_PER_GPU
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
