"""Pods of one GPU that arrive at a steady rate while the scheduler runs: created to bound, ours and theirs in turn.

Both moments are those at which one watch showed them. ``arrived_per_s`` is the rate that really came about.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import msgspec

from bench import bench_cluster, objects
from bench.bench_cluster import Stage
from bench.contenders import ALONE, STOCK_QPS, Contender, Moorage, Stock
from bench.result import Figures, Sizes, spread_ms
from tools.cluster.deployment import Deployment, Options
from tools.cluster.plane import ControlPlane

_BOUND_WITHIN_S = 120.0
#: Pods bound before the clock starts, so that connections are open and caches warm.
_WARM_UP = 16

NOTES = (
    f"kube-scheduler: default plug-ins, client limit lifted to {STOCK_QPS}/s. No webhooks for either.",
    "Created and bound are the moments at which one watch of the bench's process showed them.",
    "Times of all rounds of a scheduler are taken together.",
)


def measure(sizes: Sizes) -> Figures:
    """All rates, one control plane for each."""
    figures = {}
    for nodes, per_s, for_s in sizes.arrival:
        with ControlPlane(node_lifecycle=False) as plane:
            count = min(round(per_s * for_s), nodes * objects.CARDS - _WARM_UP)
            name = f"{nodes}_nodes_{per_s:g}_per_s"
            figures[name] = anyio.run(_rounds, plane, Arrival(nodes, per_s, count, sizes.arrival_rounds))
    return Figures(
        sizes={"nodes_rate_seconds": sizes.arrival, "rounds": sizes.arrival_rounds}, notes=NOTES, figures=figures
    )


class Arrival(msgspec.Struct, frozen=True):
    """So many pods at such a rate, in each of so many rounds of each scheduler."""

    nodes: int
    per_s: float
    pods: int
    rounds: int


async def _rounds(plane: ControlPlane, wanted: Arrival) -> dict[str, Any]:
    stock = Stock(plane)
    waits: dict[str, list[float]] = {}
    rates: dict[str, list[float]] = {}
    try:
        async with bench_cluster.stage(plane, nodes=wanted.nodes) as scene:
            with Deployment(plane, Options(components=(), arguments=ALONE)) as deployment:
                both: Sequence[Contender] = (Moorage(deployment), stock)
                for _ in range(wanted.rounds):
                    for contender in both:
                        found, rate = await _round(scene, contender, wanted)
                        waits.setdefault(contender.name, []).extend(found)
                        rates.setdefault(contender.name, []).append(rate)
    finally:
        stock.close()
    return {
        name: {**spread_ms(found), "pods": len(found), "arrived_per_s": [round(rate, 1) for rate in rates[name]]}
        for name, found in waits.items()
    }


async def _round(scene: Stage, contender: Contender, wanted: Arrival) -> tuple[list[float], float]:
    async with bench_cluster.observed(scene) as observer:
        await contender.prepare()
        contender.start()
        warm_up = _pods("warm", contender, _WARM_UP)
        await scene.create(bench_cluster.PODS, warm_up)
        await observer.bound(_names(warm_up), within_s=_BOUND_WITHIN_S)
        pods = _pods("pod", contender, wanted.pods)
        await scene.arrive(pods, per_s=wanted.per_s)
        await observer.bound(_names(pods), within_s=_BOUND_WITHIN_S)
    contender.stop()
    await scene.clear()
    created = sorted(observer.created_at[name] for name in _names(pods))
    return observer.waits_s(_names(pods)), (wanted.pods - 1) / (created[-1] - created[0])


def _pods(prefix: str, contender: Contender, count: int) -> list[objects.Manifest]:
    return [objects.whole(f"{prefix}-{i:05}", scheduler=contender.scheduler_name) for i in range(count)]


def _names(pods: Sequence[objects.Manifest]) -> list[str]:
    return [pod["metadata"]["name"] for pod in pods]
