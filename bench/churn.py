"""Resident memory while many pods come and go: what every pod leaves behind, in each component's own process.

Waves that fill every GPU, whole GPUs and shares mixed; each is bound, then deleted, and its reservations go. Memory is
read after each wave, when nothing is there any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import anyio

from bench import objects, procfs, sharing, stage
from bench.contenders import ALONE
from bench.objects import Manifest
from bench.result import Figures
from bench.sizes import Sizes
from bench.stage import Stage
from tools.cluster import ControlPlane
from tools.deployment import BINDER, COMPONENTS, Deployment
from wire import names

_BOUND_WITHIN_S = 600.0
_CLEAR_WITHIN_S = 300.0
_ARGUMENTS = {**ALONE, BINDER: (*ALONE[BINDER], "--idle-s", "1")}
#: For lists and first looks, and for what is put off until there is nothing else to do.
_SETTLE_S = 3.0
#: One device in so many is shared by two halves.
_SHARED = 10
_RESERVATIONS = f"/api/v1/namespaces/{names.RESERVATION_NAMESPACE}/pods"

NOTES = (
    "Waves of one pod for each GPU, a tenth of the GPUs shared by two halves; webhooks and policies on. "
    "Idle reservations go after a second. A stand-in answers for kubelets and reservation processes.",
    "start_mib: before the first pod; before_mib: after the first wave came and went (a process that has worked); "
    "after_mib: after the last one; growth_percent: from before to after. Bar: 10 % (no bar for start to before).",
    "What remembers the gone is full after 16,384 (scheduler) and 20,000 pods (binder); until then memory grows.",
    "per_s: pods created, bound and deleted, all waves together, pauses to read memory included.",
)


def measure(sizes: Sizes) -> Figures:
    """All waves on one control plane."""
    pods, nodes = sizes.churn
    with ControlPlane(node_lifecycle=False) as plane:
        figures = anyio.run(_measure, plane, pods, nodes)
    return Figures(sizes={"pods": pods, "nodes": nodes, "gpus_per_node": objects.CARDS}, notes=NOTES, figures=figures)


async def _measure(plane: ControlPlane, pods: int, nodes: int) -> dict[str, Any]:
    resident: dict[str, list[float]] = {name: [] for name in COMPONENTS}
    done = 0
    async with sharing.sharing(plane, nodes=nodes, arguments=_ARGUMENTS) as (scene, _, deployment):
        await _read(deployment, resident)
        began = anyio.current_time()
        for wave in _waves(pods, nodes):
            await _come_and_go(scene, wave)
            await _read(deployment, resident)
            done += len(wave)
        per_s = done / (anyio.current_time() - began)
        peaks = {name: procfs.memory_mib(deployment.pid(name))["peak_mib"] for name in COMPONENTS}
    components = {name: {**_row(mib), "peak_mib": peaks[name]} for name, mib in resident.items()}
    return {**components, "all": {"pods": done, "per_s": round(per_s, 1)}}


async def _come_and_go(scene: Stage, wave: Sequence[Manifest]) -> None:
    pods = [pod["metadata"]["name"] for pod in wave]
    async with stage.observed(scene) as observer:
        await scene.create(stage.PODS, wave)
        await observer.bound(pods, within_s=_BOUND_WITHIN_S)
    await scene.delete(stage.PODS, pods)
    await stage.until(partial(_is_empty, scene), "the reservations to go", within_s=_CLEAR_WITHIN_S)


async def _is_empty(scene: Stage) -> bool:
    return await scene.count(_RESERVATIONS) == 0


async def _read(deployment: Deployment, resident: dict[str, list[float]]) -> None:
    await anyio.sleep(_SETTLE_S)
    deployment.check()
    for name, mib in resident.items():
        mib.append(procfs.memory_mib(deployment.pid(name))["resident_mib"])


def _row(mib: Sequence[float]) -> dict[str, Any]:
    start, before, *_, after = mib
    growth = (after / before - 1) * 100
    return {"start_mib": start, "before_mib": before, "after_mib": after, "growth_percent": round(growth, 1)}


def _waves(pods: int, nodes: int) -> Iterator[list[Manifest]]:
    """Each fills all GPUs; the last one may not."""
    left, number = pods, 0
    while left:
        wave = list(_wave(number, nodes * objects.CARDS))[:left]
        left -= len(wave)
        number += 1
        yield wave


def _wave(number: int, gpus: int) -> Iterator[Manifest]:
    for i in range(gpus):
        if i % _SHARED:
            yield objects.whole(f"w{number}-{i:05}")
        else:
            yield objects.share(f"w{number}-{i:05}-a", "0.5")
            yield objects.share(f"w{number}-{i:05}-b", "0.5")
