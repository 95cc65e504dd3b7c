"""What the components cost while nothing happens: CPU seconds in a minute, and memory, in a full cluster."""

from __future__ import annotations

from typing import Any

import anyio

from bench import bench_cluster, objects, processes
from bench.contenders import Stock
from bench.result import Figures, Sizes
from tools.cluster.deployment import COMPONENTS, Deployment, Options
from tools.cluster.plane import ControlPlane

#: For lists, first looks and the allocator to come to rest.
_SETTLE_S = 20.0

NOTES = (
    "All pods were bound before the components started; no kubelets, so not even heartbeats come.",
    "Leader election is on for Moorage's scheduler; kube-scheduler runs without.",
    "kube-scheduler (default plug-ins, for comparison) runs on the same cluster at another time.",
)


def measure(sizes: Sizes) -> Figures:
    """One cluster; ours, then theirs."""
    pods, nodes = sizes.idle
    with ControlPlane(node_lifecycle=False) as plane:
        figures = anyio.run(_measure, plane, sizes)
    return Figures(sizes={"pods": pods, "nodes": nodes, "for_s": sizes.idle_s}, notes=NOTES, figures=figures)


async def _measure(plane: ControlPlane, sizes: Sizes) -> dict[str, Any]:
    pods, nodes = sizes.idle
    async with bench_cluster.stage(plane, nodes=nodes) as scene:
        bound = [objects.whole(f"pod-{i:05}", node=f"node-{i // objects.CARDS:04}") for i in range(pods)]
        await scene.create(bench_cluster.PODS, bound)
        with Deployment(plane, Options()) as deployment:
            ours = await _watched({name: deployment.pid(name) for name in COMPONENTS}, sizes.idle_s)
            deployment.check()
        stock = Stock(plane)
        try:
            stock.start()
            theirs = await _watched({stock.name: stock.pid}, sizes.idle_s)
        finally:
            stock.close()
    total = {key: round(sum(one[key] for one in ours.values()), 2) for key in ("cpu_s_per_60_s", "resident_mib")}
    return {**ours, "moorage_together": total, **theirs}


async def _watched(pids: dict[str, int], for_s: float) -> dict[str, dict[str, float]]:
    await anyio.sleep(_SETTLE_S)
    before = {name: processes.cpu_s(pid) for name, pid in pids.items()}
    await anyio.sleep(for_s)
    return {
        name: {
            "cpu_s_per_60_s": round((processes.cpu_s(pid) - before[name]) * 60 / for_s, 2),
            **processes.memory_mib(pid),
        }
        for name, pid in pids.items()
    }
