"""Pods that wait while others come and go, on a real API server: what they cost, and whom they hold up.

Full nodes, and pods of several shapes that wait for a GPU. The scheduler is started when all of them are there.
"""

from __future__ import annotations

import re
import statistics
from typing import Any, Final

import anyio

from bench import bench_cluster, objects, processes
from bench.bench_cluster import Observer, Stage
from bench.contenders import ALONE, Moorage
from bench.objects import Manifest
from bench.result import Figures, Sizes
from kube.client.api import check
from kube.client.listing import WHOLE_BYTES
from tools.cluster.deployment import Deployment, Options
from tools.cluster.plane import ControlPlane

_BOUND_WITHIN_S: Final = 60.0
_TOLD_WITHIN_S: Final = 1_800.0
_ENDS: Final = 30
_BETWEEN_ENDS_S: Final = 0.5
_AFTER_CORDON_S: Final = 60.0
_PATCHES: Final = re.compile(
    r'^apiserver_request_total\{[^}]*code="200"[^}]*resource="pods"[^}]*subresource="status"[^}]*verb="PATCH"'
    r"[^}]*\} (\S+)",
    re.MULTILINE,
)

NOTES = (
    "All nodes are full: pods of one GPU that are bound when they are created. The scheduler runs alone, without "
    "binder and webhooks.",
    "told_s, told_cpu_s: from the start of its process until every pod that waits says why, and its CPU for that; no "
    "condition is there before.",
    "bound_ms, slowest_ms: from a pod's deletion, its call included, until the watch shows a waiting pod bound, "
    f"{_ENDS} times, {_BETWEEN_ENDS_S:g} s apart: median and longest.",
    "cordon_patches, cordon_cpu_s: conditions written, and CPU of the scheduler, in the "
    f"{_AFTER_CORDON_S:g} s after one node was cordoned.",
    "idle_cpu_s: CPU of the scheduler in as long a time in which nothing happens.",
)


def measure(sizes: Sizes) -> Figures:
    """All sizes, one control plane each."""
    figures = {}
    for nodes, waiting, shapes in sizes.backlog:
        with ControlPlane(node_lifecycle=False) as plane:
            figures[f"{waiting}_pods_{shapes}_shapes"] = anyio.run(_one, plane, nodes, waiting, shapes)
    told = [{"nodes": nodes, "waiting": waiting, "shapes": shapes} for nodes, waiting, shapes in sizes.backlog]
    return Figures(sizes={"runs": told}, notes=NOTES, figures=figures)


async def _one(plane: ControlPlane, nodes: int, waiting: int, shapes: int) -> dict[str, Any]:
    async with bench_cluster.stage(plane, nodes=nodes) as scene:
        running = [
            objects.whole(f"r{node:04}-{gpu}", node=f"node-{node:04}")
            for node in range(nodes)
            for gpu in range(objects.CARDS)
        ]
        await scene.create(bench_cluster.PODS, running)
        await scene.create(bench_cluster.PODS, [_waiting(number, shapes) for number in range(waiting)])
        with Deployment(plane, Options(components=(), arguments=ALONE)) as deployment:
            scheduler = Moorage(deployment)
            began = anyio.current_time()
            scheduler.start()
            await _until_written(scene, waiting)
            found = {
                "told_s": round(anyio.current_time() - began, 1),
                "told_cpu_s": round(processes.cpu_s(scheduler.pid), 2),
            }
            async with bench_cluster.observed(scene) as observer:
                found |= await _ends(scene, observer)
            found |= await _cordon(scene, scheduler)
            deployment.check()
    return found


def _waiting(number: int, shapes: int) -> Manifest:
    made = objects.whole(f"w{number:06}")
    made["spec"]["containers"][0]["resources"]["requests"] = {"cpu": f"{1_000 + number % shapes}m"}
    return made


async def _until_written(scene: Stage, count: int) -> None:
    async def are_written() -> bool:
        return await _patches(scene) >= count

    await bench_cluster.until(are_written, f"{count} conditions", within_s=_TOLD_WITHIN_S)


async def _patches(scene: Stage) -> float:
    """Conditions of pods that were written so far."""
    answer = check(await scene.transport.request("GET", "/metrics", query={}, timeout_s=60.0, most_bytes=WHOLE_BYTES))
    return sum(float(found) for found in _PATCHES.findall(answer.body.decode()))


async def _ends(scene: Stage, observer: Observer) -> dict[str, float]:
    taken: list[float] = []
    for number in range(_ENDS):
        before = len(observer.bound_at)
        began = anyio.current_time()
        await scene.delete(bench_cluster.PODS, [f"r{number:04}-0"])
        with anyio.fail_after(_BOUND_WITHIN_S):
            while len(observer.bound_at) == before:  # noqa: ASYNC110 - the observer tells nobody
                await anyio.sleep(0.001)
        taken.append(max(observer.bound_at.values()) - began)
        await anyio.sleep(_BETWEEN_ENDS_S)
    return {"bound_ms": round(statistics.median(taken) * 1e3, 1), "slowest_ms": round(max(taken) * 1e3, 1)}


async def _cordon(scene: Stage, scheduler: Moorage) -> dict[str, float]:
    cpu_before_s = processes.cpu_s(scheduler.pid)
    await anyio.sleep(_AFTER_CORDON_S)
    cpu_s, patches = processes.cpu_s(scheduler.pid), await _patches(scene)
    await scene.patch_all(["/api/v1/nodes/node-0050"], {"spec": {"unschedulable": True}})
    await anyio.sleep(_AFTER_CORDON_S)
    return {
        "idle_cpu_s": round(cpu_s - cpu_before_s, 2),
        "cordon_patches": round(await _patches(scene) - patches),
        "cordon_cpu_s": round(processes.cpu_s(scheduler.pid) - cpu_s, 2),
    }
