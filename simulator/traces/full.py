"""A trace replayed in full: admission, API server in memory, scheduler, binder and simulated nodes, in virtual time.

Each pod is made when the one before runs or is gone. A pod that says that it fits nowhere is deleted. Prices stand
still, so that placements are those of the same replay on records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import anyio

from kube.client.clock import Clock
from kube.client.errors import NotFound
from kube.client.resources import PODS
from scheduler.app import Scheduler
from scheduler.core.cluster import Cluster
from scheduler.core.model.settings import Settings
from scheduler.settings import PricingSettings, SchedulerSettings
from simulator.checks.violations import SOUND
from simulator.nodes.shape import NodeShape
from simulator.traces import records
from simulator.traces.arrivals import Arrivals
from simulator.traces.replay import known_prices
from simulator.traces.tally import Run, Strategies, Tally
from simulator.traces.trace import MILLI_PER_CARD, Ask, Trace, TraceNode
from simulator.world import World, WorldSettings
from wire import names

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
    order: Arrivals,
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
