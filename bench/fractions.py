"""Pods of half a GPU, created as fast as the API server takes them while everything runs, until the last is bound.

KAI with the same kind of stand-in: 172-193 s for 1,400 on 100 nodes, that is 8/s, and one device over-packed in one of
two runs (docs/reference/benchmarks.md).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import anyio

from bench import bench_cluster, objects, processes, sharing
from bench.objects import Manifest
from bench.result import Figures, Sizes, spread_ms
from tools.cluster.deployment import BINDER, COMPONENTS, SCHEDULER
from tools.cluster.plane import ControlPlane

_BOUND_WITHIN_S = 300.0

NOTES = (
    "A stand-in answers for kubelets and reservation processes: a reservation pod runs and names its device at once.",
    "per_s is from the first pod's creation to the last one's binding; pods are created while everything runs.",
    "plain: no webhooks and no policies, pods are created as admission would have made them (as in KAI's figures).",
    "guarded: webhooks and policies on, pods as users write them.",
    "over_full: devices on which the pods' own annotations sum to more than 1, in all rounds together.",
)


def measure(sizes: Sizes) -> Figures:
    """All rounds, plain and guarded in turn, a fresh control plane each."""
    pods, nodes = sizes.fractions
    rounds: dict[str, list[dict[str, float]]] = {"plain": [], "guarded": []}
    for _ in range(sizes.fraction_rounds):
        for name, found in rounds.items():
            with ControlPlane(node_lifecycle=False) as plane:
                found.append(anyio.run(_round, plane, nodes, pods, name == "guarded"))
    return Figures(
        sizes={"pods": pods, "nodes": nodes, "fraction": "0.5", "rounds": sizes.fraction_rounds},
        notes=NOTES,
        figures={name: _summary(found) for name, found in rounds.items()},
    )


def _summary(rounds: Sequence[dict[str, float]]) -> dict[str, Any]:
    medians = {key: round(statistics.median(one[key] for one in rounds), 2) for key in rounds[0]}
    over_full = round(sum(one["over_full"] for one in rounds))
    return {**medians, "over_full": over_full, "per_s_of_rounds": [round(one["per_s"]) for one in rounds]}


async def _round(plane: ControlPlane, nodes: int, count: int, guarded: bool) -> dict[str, float]:
    components = COMPONENTS if guarded else (BINDER, SCHEDULER)
    shaped = _as_written if guarded else sharing.admitted
    pods = [shaped(objects.share(f"half-{i:05}", "0.5")) for i in range(count)]
    warm_up = [shaped(objects.share(f"warm-{i}", "0.5")) for i in range(2)]
    names = [pod["metadata"]["name"] for pod in pods]
    async with (
        sharing.sharing(plane, nodes=nodes, components=components) as (scene, _, deployment),
        bench_cluster.observed(scene) as observer,
    ):
        await scene.create(bench_cluster.PODS, warm_up)
        await observer.bound(["warm-0", "warm-1"], within_s=_BOUND_WITHIN_S)
        pids = {name: deployment.pid(name) for name in (BINDER, SCHEDULER)}
        pids["apiserver"] = processes.child_named("kube-apiserver")
        before = {name: processes.cpu_s(pid) for name, pid in pids.items()}
        await scene.create(bench_cluster.PODS, pods)
        await observer.bound(names, within_s=_BOUND_WITHIN_S)
        cpu_s = {f"{name}_cpu_s": processes.cpu_s(pid) - before[name] for name, pid in pids.items()}
        over = await sharing.over_full(scene)
    created = [observer.created_at[name] for name in names]
    return {
        "per_s": count / (max(observer.bound_at.values()) - min(created)),
        "created_per_s": count / (max(created) - min(created)),
        "over_full": len(over),
        **spread_ms(observer.waits_s(names)),
        **cpu_s,
    }


def _as_written(pod: Manifest) -> Manifest:
    return pod
