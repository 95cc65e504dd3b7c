"""A trace replayed: on records, one pod after another or on a cluster that stays full, or in full.

On records there is no API server, and a pod that fits nowhere is lost. In full there are admission, the API server in
memory, scheduler, binder and simulated nodes, in virtual time: each pod is made when the one before runs or is gone,
one that says that it fits nowhere is deleted, and prices stand still, so that placements are those on records.
"""

from __future__ import annotations

import enum
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import msgspec

from kube.client.clock import Clock
from kube.client.errors import NotFound
from kube.client.resources import PODS
from scheduler.app import Scheduler
from scheduler.core.cluster import Cluster
from scheduler.core.model.pod_kind import WHOLE_MILLI, Kind
from scheduler.core.model.settings import Settings
from scheduler.core.scores.prices import Arrivals, Prices, prices_of, typical_of
from scheduler.settings import PricingSettings, SchedulerSettings
from simulator.checks.violations import SOUND
from simulator.nodes.shape import NodeShape
from simulator.traces import records
from simulator.traces.records import Records, Run, Strategies, Tally
from simulator.traces.trace import MILLI_PER_CARD, Ask, Trace, TraceNode, TracePod
from simulator.traces.trace import Arrivals as Order
from simulator.world import World, WorldSettings
from wire import names

#: The most arrivals between two looks at the mix. A young cluster is looked at more often, as its mix moves fast.
LEARNED_EVERY: Final = 500


class PricesFrom(enum.StrEnum):
    """What prices are made from: all pods of the trace, as published, or those that have come so far."""

    TRACE = "trace"
    ARRIVALS = "arrivals"


def replay(
    trace: Trace,
    order: Order,
    strategies: Strategies,
    *,
    seed: int,
    prices_from: PricesFrom = PricesFrom.TRACE,
    told: Callable[[int, str], None] = lambda _number, _node: None,
) -> Run:
    """Replay the arrivals of a seed. ``told``: of each pod by its number the node, "" if it is lost.

    Each is placed if any node fits; none ends.
    """
    records = Records(trace.nodes, order.ranks, gpu_strategy=strategies.gpu, cpu_strategy=strategies.cpu)
    learns = prices_from is PricesFrom.ARRIVALS
    if records.cluster.settings.uses_prices:
        records.cluster.note_prices(records.prices() if learns else known_prices(trace))
    tally = Tally()
    look_at = 1
    for number, pod in enumerate(order.pods, 1):
        placed = records.place(f"p{number:07d}", pod.ask)
        tally.count(pod.ask, is_placed=placed is not None)
        told(number - 1, placed.node if placed else "")
        if records.cluster.settings.uses_prices and learns and number == look_at:
            records.cluster.note_prices(records.prices())
            look_at += min(number, LEARNED_EVERY)
    return tally.run(strategies, seed, capacity_milli=trace.capacity_milli, differences=records.validate())


def known_prices(trace: Trace) -> Prices | None:
    """Return prices by all pods of a trace, as if a cluster had got them before."""
    known = Arrivals()
    for pod in trace.pods:
        ask = pod.ask
        if ask.gpus:
            known.add(Kind(ask.gpus, min(ask.gpu_milli, WHOLE_MILLI), ask.cpu_milli, ask.mem_mib))
    return prices_of(typical_of(known.counts()))


#: Of the arrivals, the part before use is counted: one in two.
_BEFORE: Final = 2


class NoLifetimes(ValueError):
    """Raised for a trace that does not say how long its pods with GPUs lived."""


class Churned(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One seed under one strategy, over the time that is counted.

    ``used_percent``: GPUs in use, mean over time. ``lost``: of the pods that ``arrived``. ``differences``: where the
    ledger differs from a recount at the end.
    """

    strategy: str
    seed: int
    used_percent: float
    arrived: int
    lost: int
    differences: tuple[str, ...]


@dataclass(slots=True)
class _Cluster:
    """What runs, and until when. Times in seconds."""

    records: Records
    ends: list[tuple[float, str, int]] = field(default_factory=list)
    used_milli: int = 0
    gpu_seconds: float = 0.0
    now_s: float = 0.0
    made: int = 0

    def come(self, ask: Ask, lives_s: float) -> bool:
        """Place a pod that lives for this time; return whether it fits."""
        uid = f"p{self.made:07d}"
        self.made += 1
        if self.records.place(uid, ask) is None:
            return False
        self.used_milli += ask.total_milli
        heapq.heappush(self.ends, (self.now_s + lives_s, uid, ask.total_milli))
        return True

    def pass_until(self, time_s: float) -> None:
        """Let time pass, and pods end on the way."""
        while self.ends and self.ends[0][0] <= time_s:
            at_s, uid, milli = heapq.heappop(self.ends)
            self._pass(at_s)
            self.records.end(uid)
            self.used_milli -= milli
        self._pass(time_s)

    def _pass(self, time_s: float) -> None:
        self.gpu_seconds += self.used_milli * (time_s - self.now_s)
        self.now_s = time_s


def churn(trace: Trace, strategies: Strategies, *, seed: int, load_percent: int, arrivals: int) -> Churned:
    """Let this number of pods arrive on a full cluster. Raises NoLifetimes.

    Pods arrive at random at a steady rate, each drawn from the trace with what it asks and how long it lived. The rate
    is such that they ask, on average over time, a load in percent of all GPUs. At the start the cluster has pods as it
    would have after a long time without limits: drawn by how long they live, and some way through their lives.
    """
    lived = [pod for pod in trace.pods if pod.lived_s]
    milli_seconds = sum(pod.ask.total_milli * (pod.lived_s or 0) for pod in lived)
    if not milli_seconds:
        raise NoLifetimes("the trace does not say how long its pods with GPUs lived (creation_time, deletion_time)")
    rng = random.Random(seed)
    ranks = list(range(len(trace.nodes)))
    rng.shuffle(ranks)
    cluster = _Cluster(Records(trace.nodes, ranks, gpu_strategy=strategies.gpu, cpu_strategy=strategies.cpu))
    if cluster.records.cluster.settings.uses_prices:
        cluster.records.cluster.note_prices(known_prices(trace))
    _fill(cluster, lived, rng, load_percent * trace.capacity_milli // 100)
    per_s = load_percent / 100 * trace.capacity_milli * len(lived) / milli_seconds
    counted_from = arrivals // _BEFORE
    lost, began_s = 0, 0.0
    for number in range(arrivals):
        if number == counted_from:
            lost, began_s, cluster.gpu_seconds = 0, cluster.now_s, 0.0
        cluster.pass_until(cluster.now_s + rng.expovariate(per_s))
        pod = rng.choice(lived)
        lost += not cluster.come(pod.ask, float(pod.lived_s or 0))
    return Churned(
        strategy=str(strategies),
        seed=seed,
        used_percent=100 * cluster.gpu_seconds / (trace.capacity_milli * (cluster.now_s - began_s)),
        arrived=arrivals - counted_from,
        lost=lost,
        differences=tuple(cluster.records.validate()),
    )


def _fill(cluster: _Cluster, lived: list[TracePod], rng: random.Random, asked_milli: int) -> None:
    """Bring pods until they ask this much, each with the rest of its life before it."""
    weights = [pod.lived_s or 0 for pod in lived]
    asked = 0
    while asked < asked_milli:
        (pod,) = rng.choices(lived, weights)
        asked += pod.ask.total_milli
        cluster.come(pod.ask, rng.random() * (pod.lived_s or 0))


_NAMESPACE: Final = "default"
_CARD_MIB: Final = 16_384
_SCHEDULER: Final = "scheduler"
#: Between two looks at a pod, and the longest that one may take.
_LOOK_S: Final = 0.25
_LONGEST_S: Final = 600.0
_FRACTION_DIGITS: Final = 3
_NEVER_S: Final = 1e9


class Undecided(Exception):
    """Raised when a pod neither runs nor says why it waits."""


async def replay_in_full(
    trace: Trace,
    order: Order,
    strategies: Strategies,
    *,
    seed: int,
    clock: Clock,
    told: Callable[[int, str], None] = lambda _number, _node: None,
) -> Run:
    """Replay the arrivals of a seed; ``told`` as in replay.py. Raises Undecided."""
    shapes = [_shape(node, rank) for node, rank in zip(trace.nodes, order.ranks, strict=True)]
    tally = Tally()
    async with World(shapes, clock=clock, settings=_settings(strategies, seed)) as world:
        cluster = _cluster(world)
        cluster.note_prices(known_prices(trace))
        for number, pod in enumerate(order.pods):
            node = await _come(world, f"p{number:07d}", pod.ask)
            tally.count(pod.ask, is_placed=bool(node))
            told(number, node)
        differences = cluster.validate()
        await world.clear()
        differences += [f"{name}: {found}" for name, found in world.finish().items() if found not in SOUND]
        return tally.run(strategies, seed, capacity_milli=trace.capacity_milli, differences=differences)
    raise AssertionError("a world swallows no exception")


def _settings(strategies: Strategies, seed: int) -> WorldSettings:
    scheduler = SchedulerSettings(
        decisions=Settings(gpu_strategy=strategies.gpu, cpu_strategy=strategies.cpu, reserved_nodes_percent=0),
        scores=records.REPLAYED,
        pricing=PricingSettings(look_s=_NEVER_S),
    )
    return WorldSettings(seed=seed, scheduler=scheduler)


def _cluster(world: World) -> Cluster:
    scheduler = world.running[_SCHEDULER]
    if not isinstance(scheduler, Scheduler):
        raise TypeError(f"{scheduler} is no scheduler")
    return scheduler.cache.cluster


async def _come(world: World, name: str, ask: Ask) -> str:
    """Make a pod; return its node once it runs, or "" once it is gone again."""
    made = await world.api.create(PODS, manifest(name, ask), namespace=_NAMESPACE)
    with anyio.move_on_after(_LONGEST_S):
        while True:
            await anyio.sleep(_LOOK_S)
            pod = world.observers[PODS.plural].latest.get(made.metadata.uid, {})
            status = pod.get("status") or {}
            if status.get("phase") == names.RUNNING:
                return str(pod["spec"]["nodeName"])
            if any(each.get("reason") == "Unschedulable" for each in status.get("conditions") or ()):
                await _delete(world, name)
                return ""
    raise Undecided(f"pod {name} neither runs nor says why it waits, {_LONGEST_S:g} s after it was made")


async def _delete(world: World, name: str) -> None:
    await world.api.delete(PODS, name, namespace=_NAMESPACE, grace_s=0)
    while True:
        try:
            await world.api.get(PODS, name, namespace=_NAMESPACE)
        except NotFound:
            return
        await anyio.sleep(_LOOK_S)


def manifest(name: str, ask: Ask) -> dict[str, Any]:
    """Return a pod that asks this, as a user would write it."""
    resources = {"cpu": f"{ask.cpu_milli}m", "memory": f"{ask.mem_mib}Mi"}
    annotations = {}
    if ask.is_shared:
        annotations = {names.GPU_FRACTION: f"{ask.gpu_milli / MILLI_PER_CARD:.{_FRACTION_DIGITS}f}"}
    limits = {names.GPU_RESOURCE: str(ask.gpus)} if ask.gpus and not ask.is_shared else {}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": records.MODEL_LABEL, "operator": "In", "values": list(ask.models)},
                        ]
                    }
                ]
            }
        }
    }
    container = {"name": "main", "image": "work", "resources": {"requests": resources, "limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": _NAMESPACE, "annotations": annotations},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "containers": [container],
            **({"affinity": affinity} if ask.models else {}),
        },
    }


def _shape(node: TraceNode, rank: int) -> NodeShape:
    return NodeShape(
        name=records.node_name(node, rank),
        cards_mib=(_CARD_MIB,) * node.gpus,
        cpu_milli=node.cpu_milli,
        mem_mib=node.mem_mib,
        pods=records.PODS,
        labels={records.MODEL_LABEL: node.model} if node.model else {},
    )
