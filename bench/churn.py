"""Resident memory while many pods come and go: what every pod leaves behind, in each component's own process.

Waves that fill every GPU, whole GPUs and shares mixed; each is bound, then deleted, and its reservations go. Memory is
read twice a wave: when all of its pods are bound, and when nothing is there any more.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from bench import bench_cluster, objects, processes, sharing
from bench.bench_cluster import Stage
from bench.contenders import ALONE
from bench.objects import Manifest
from bench.result import Figures, Sizes
from tools.cluster.deployment import BINDER, COMPONENTS, SCHEDULER, Deployment
from tools.cluster.plane import ControlPlane
from wire import names

_BOUND_WITHIN_S = 1_200.0
_CLEAR_WITHIN_S = 1_200.0
_ARGUMENTS = {**ALONE, BINDER: (*ALONE[BINDER], "--idle-s", "1")}
#: For lists and first looks, and for what is put off until there is nothing else to do.
_SETTLE_S = 3.0
#: Until the last event is written and the last UID forgotten (wire/tombstones.py).
_REST_S = 180.0
#: Readings that are told, by how much of all waves is over.
_TOLD_AT = (0.0, 0.5, 1.0)
#: One device of this many is shared by two halves.
_SHARED = 10
_RESERVATIONS = f"/api/v1/namespaces/{names.RESERVATION_NAMESPACE}/pods"

NOTES = (
    "Waves of one pod for each GPU, a tenth of the GPUs shared by two halves; webhooks and policies on. "
    "Idle reservations go after a second. A stand-in answers for kubelets and reservation processes.",
    f"full: all pods of a wave are bound; read {_SETTLE_S:g} s later. empty: they and their reservations are gone; "
    f"read {_REST_S:g} s later, when no event is unwritten and no UID remembered.",
    "before_mib: after the first wave has come and gone (full: in the second); halfway_mib, after_mib: in the middle "
    "and at the end (full: in the last whole wave); growth_percent: from before to after, bar: 10 %. start_mib: before "
    "the first pod; peak_mib: the most at any time.",
    "The bar is for empty. While a component is busy it has up to a hundred connections to the API server, of about a "
    "quarter of a MiB each; at rest they are closed.",
    "per_s: pods created, bound and deleted, all waves together, pauses to read memory included. A call that fails is "
    "repeated.",
)


@dataclass
class _Readings:
    """Resident MiB of each component, wave by wave."""

    deployment: Deployment
    full: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in COMPONENTS})
    empty: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in COMPONENTS})

    def now(self) -> dict[str, dict[str, float]]:
        """What the kernel says of each. Raises what Deployment.check does: one that was started anew grows anew."""
        self.deployment.check()
        return {name: processes.memory_mib(self.deployment.pid(name)) for name in COMPONENTS}

    async def read(self, into: dict[str, list[float]], *, after_s: float = _SETTLE_S) -> None:
        """Read each after a while."""
        await anyio.sleep(after_s)
        for name, memory in self.now().items():
            into[name].append(memory["resident_mib"])

    def tell(self) -> None:
        """Say how far it is, for those who wait: it takes most of an hour."""
        newest = "; ".join(f"{name} {self.full[name][-1]} full, {self.empty[name][-1]} empty" for name in COMPONENTS)
        sys.stderr.write(f"wave {len(self.empty[SCHEDULER])}, MiB: {newest}\n")


def measure(sizes: Sizes) -> Figures:
    """All waves on one control plane."""
    pods, nodes = sizes.churn
    with ControlPlane(node_lifecycle=False) as plane:
        figures = anyio.run(_measure, plane, pods, nodes)
    return Figures(sizes={"pods": pods, "nodes": nodes, "gpus_per_node": objects.CARDS}, notes=NOTES, figures=figures)


async def _measure(plane: ControlPlane, pods: int, nodes: int) -> dict[str, Any]:
    async with sharing.sharing(plane, nodes=nodes, arguments=_ARGUMENTS, is_patient=True) as (scene, _, deployment):
        readings = _Readings(deployment)
        await anyio.sleep(_SETTLE_S)
        start = readings.now()
        began = anyio.current_time()
        waves = list(_waves(pods, nodes))
        told_of = {round(at * (len(waves) - 1)) for at in _TOLD_AT}
        for number, wave in enumerate(waves):
            await _come(scene, wave)
            if len(wave) == len(waves[0]):
                await readings.read(readings.full)
            await _go(scene, wave)
            await readings.read(readings.empty, after_s=_REST_S if number in told_of else _SETTLE_S)
            readings.tell()
        per_s = pods / (anyio.current_time() - began)
        end = readings.now()
    process = {
        name: {"start_mib": start[name]["resident_mib"], "peak_mib": end[name]["peak_mib"]} for name in COMPONENTS
    }
    full = {name: _row(mib[1:] or mib) for name, mib in readings.full.items()}
    empty = {name: _row(mib) for name, mib in readings.empty.items()}
    return {"full": full, "empty": empty, "process": process, "all": {"pods": pods, "per_s": round(per_s, 1)}}


async def _come(scene: Stage, wave: Sequence[Manifest]) -> None:
    async with bench_cluster.observed(scene) as observer:
        await scene.create(bench_cluster.PODS, wave)
        await observer.bound(_names(wave), within_s=_BOUND_WITHIN_S)


async def _go(scene: Stage, wave: Sequence[Manifest]) -> None:
    await scene.delete(bench_cluster.PODS, _names(wave))
    await bench_cluster.until(partial(_is_empty, scene), "the reservations to go", within_s=_CLEAR_WITHIN_S)


def _names(wave: Sequence[Manifest]) -> list[str]:
    return [pod["metadata"]["name"] for pod in wave]


async def _is_empty(scene: Stage) -> bool:
    return await scene.count(_RESERVATIONS) == 0


def _row(mib: Sequence[float]) -> dict[str, float]:
    before, halfway, after = (mib[round(at * (len(mib) - 1))] for at in _TOLD_AT)
    growth = (after / before - 1) * 100
    return {"before_mib": before, "halfway_mib": halfway, "after_mib": after, "growth_percent": round(growth, 1)}


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
