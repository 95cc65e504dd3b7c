"""A gang of one-GPU pods: from the creation of its first pod, and of its last, to the binding of all."""

from __future__ import annotations

import statistics
from typing import Any

import anyio

from bench import bench_cluster, objects
from bench.bench_cluster import Stage
from bench.contenders import ALONE, Moorage
from bench.result import Figures, Sizes
from tools.cluster.deployment import Deployment, Options
from tools.cluster.plane import ControlPlane

_BOUND_WITHIN_S = 120.0

NOTES = (
    "The PodGroup is there before its pods, which are created as fast as the API server takes them. No webhooks.",
    "from_first_s: first pod created to all bound; from_last_s: last pod created to all bound.",
)


def measure(sizes: Sizes) -> Figures:
    """All sizes, one control plane each."""
    figures = {}
    for members, nodes in sizes.gang:
        with ControlPlane(node_lifecycle=False) as plane:
            figures[f"{members}_pods_{nodes}_nodes"] = anyio.run(_rounds, plane, members, nodes, sizes.gang_rounds)
    return Figures(sizes={"pods_nodes": sizes.gang, "rounds": sizes.gang_rounds}, notes=NOTES, figures=figures)


async def _rounds(plane: ControlPlane, members: int, nodes: int, rounds: int) -> dict[str, Any]:
    async with bench_cluster.stage(plane, nodes=nodes) as scene:
        with Deployment(plane, Options(components=(), arguments=ALONE)) as deployment:
            contender = Moorage(deployment)
            await contender.prepare()
            contender.start()
            done = [await _round(scene, members, number) for number in range(rounds)]
            contender.stop()
    medians = {key: round(statistics.median(one[key] for one in done), 3) for key in done[0]}
    return {**medians, "from_first_s_of_rounds": [round(one["from_first_s"], 3) for one in done]}


async def _round(scene: Stage, members: int, number: int) -> dict[str, float]:
    gang = f"gang-{number}"
    await scene.create(bench_cluster.POD_GROUPS, [objects.pod_group(gang, members)])
    pods = [objects.whole(f"{gang}-{i:04}", group=gang) for i in range(members)]
    names = [pod["metadata"]["name"] for pod in pods]
    async with bench_cluster.observed(scene) as observer:
        await scene.create(bench_cluster.PODS, pods)
        await observer.bound(names, within_s=_BOUND_WITHIN_S)
    await scene.clear()
    created = [observer.created_at[name] for name in names]
    last = max(observer.bound_at.values())
    return {
        "from_first_s": last - min(created),
        "from_last_s": last - max(created),
        "first_bound_s": min(observer.bound_at.values()) - min(created),
    }
