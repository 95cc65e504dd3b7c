"""Pods of half a GPU, created as fast as the API server takes them while everything runs, until the last is bound.

KAI with the same kind of stand-in: 172-193 s for 1,400 on 100 nodes, that is 8/s, and one device over-packed in one of
two runs (docs/benchmarks.md).
"""

from __future__ import annotations

import statistics

import anyio

from bench import objects, sharing, stage
from bench.quantiles import spread_ms
from bench.result import Figures
from bench.sizes import Sizes
from tools.cluster import ControlPlane

_BOUND_WITHIN_S = 300.0

NOTES = (
    "A stand-in answers for kubelets and reservation processes: a reservation pod runs and names its device at once.",
    "All components run, webhooks included; per_s is from the first pod's creation to the last one's binding.",
    "over_full: devices on which the pods' own annotations sum to more than 1.",
)


def measure(sizes: Sizes) -> Figures:
    """All rounds, a fresh control plane each."""
    pods, nodes = sizes.fractions
    rounds = []
    for _ in range(sizes.fraction_rounds):
        with ControlPlane(node_lifecycle=False) as plane:
            rounds.append(anyio.run(_round, plane, nodes, pods))
    figures = {key: round(statistics.median(one[key] for one in rounds), 1) for key in rounds[0]}
    figures |= {"over_full": sum(one["over_full"] for one in rounds)}
    return Figures(
        sizes={"pods": pods, "nodes": nodes, "fraction": "0.5", "rounds": sizes.fraction_rounds},
        notes=NOTES,
        figures={**figures, "per_s_of_rounds": [round(one["per_s"]) for one in rounds]},
    )


async def _round(plane: ControlPlane, nodes: int, count: int) -> dict[str, float]:
    pods = [objects.share(f"half-{i:05}", "0.5") for i in range(count)]
    names = [pod["metadata"]["name"] for pod in pods]
    async with sharing.sharing(plane, nodes=nodes) as (scene, _, _), stage.observed(scene) as observer:
        warm_up = [objects.share(f"warm-{i}", "0.5") for i in range(2)]
        await scene.create(stage.PODS, warm_up)
        await observer.bound(["warm-0", "warm-1"], within_s=_BOUND_WITHIN_S)
        await scene.create(stage.PODS, pods)
        await observer.bound(names, within_s=_BOUND_WITHIN_S)
        over = await sharing.over_full(scene)
    first, created = min(observer.created_at[n] for n in names), max(observer.created_at[n] for n in names)
    taken_s = max(observer.bound_at.values()) - first
    return {
        "per_s": count / taken_s,
        "created_per_s": count / (created - first),
        "over_full": len(over),
        **spread_ms(observer.waits_s(names)),
    }
