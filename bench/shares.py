"""The first and the second share on a GPU, one pod after the other: created to bound, by how long a reservation starts.

The first waits for its reservation pod to run and to name the device; the second joins its book.
"""

from __future__ import annotations

import anyio

from bench import bench_cluster, objects, sharing
from bench.result import Figures, Sizes, spread_ms
from tools.cluster.plane import ControlPlane

_NODES = 20
_BOUND_WITHIN_S = 60.0

NOTES = (
    "Pods of 0.5, each created after the one before was bound, so every pair fills one GPU.",
    "delay_s: between the creation of a reservation pod and its Running (a stand-in answers for kubelets).",
)


def measure(sizes: Sizes) -> Figures:
    """All delays on one control plane."""
    with ControlPlane(node_lifecycle=False) as plane:
        figures = anyio.run(_measure, plane, sizes)
    return Figures(sizes={"delay_s_pairs": sizes.shares, "nodes": _NODES}, notes=NOTES, figures=figures)


async def _measure(plane: ControlPlane, sizes: Sizes) -> dict[str, object]:
    figures: dict[str, object] = {}
    async with (
        sharing.sharing(plane, nodes=_NODES) as (scene, stand_in, _),
        bench_cluster.observed(scene) as observer,
    ):
        for delay_s, pairs in ((0.0, 2), *sizes.shares):
            stand_in.delay_s = delay_s
            waits: dict[str, list[float]] = {"first": [], "second": []}
            for pair in range(pairs):
                for which in ("first", "second"):
                    name = f"{which}-{len(observer.created_at):03}-{pair}"
                    await scene.create(bench_cluster.PODS, [objects.share(name, "0.5")])
                    await observer.bound([name], within_s=_BOUND_WITHIN_S)
                    waits[which] += observer.waits_s([name])
            # The two pairs before the first of ``shares`` warm everything up; theirs is written over.
            figures[f"delay_{delay_s:g}_s"] = {which: spread_ms(found) for which, found in waits.items()}
        if over := await sharing.over_full(scene):
            raise AssertionError(f"groups with more than one GPU: {over}")
    return figures
