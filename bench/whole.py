"""Pods of one GPU, all there, then the scheduler is started: Moorage and kube-scheduler in turn on the same nodes.

A round is over when the watches have shown the last binding and the last "Scheduled" event. ``per_s`` counts from the
start of the process until then, ``per_s_at_work`` from the first binding until then, ``bound_per_s`` from the start to
the last binding. ``events_s`` is how much later than the last binding the last event was written.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import anyio

from bench import bench_cluster, objects, processes
from bench.bench_cluster import Stage
from bench.contenders import ALONE, STOCK_QPS, Contender, Moorage, Stock
from bench.objects import Manifest
from bench.result import Figures, Sizes
from tools.cluster.deployment import ADMISSION, Deployment, Options
from tools.cluster.plane import ControlPlane

_BOUND_WITHIN_S = 300.0
_EVENTS_WITHIN_S = 300.0

NOTES = (
    f"kube-scheduler: default plug-ins, client limit lifted to {STOCK_QPS}/s.",
    "In Moorage's rounds its binder runs as well; no webhooks unless the row says so.",
    "Either scheduler is started again for each round, Python's with its bytecode compiled.",
    "Everything shares the processors of the machine: etcd, API server, controller manager, scheduler, the observer.",
    "Events count: a round is over when all pods are bound and all their events are written.",
    "per_s: from the start of the process until then; per_s_at_work: from the first binding until then; bound_per_s: "
    "from the start to the last binding; events_s: from the last binding to the last event.",
    "cpu_s, apiserver_cpu_s: of the scheduler and of the API server, until then.",
)


class Workload(Protocol):
    """Makes a pod of one GPU for a scheduler."""

    def __call__(self, name: str, *, scheduler: str) -> Manifest: ...


def measure(sizes: Sizes) -> Figures:
    """All sizes, one control plane each."""
    return measure_with(objects.whole, sizes.whole)


def measure_with(pod: Workload, sizes: Sequence[tuple[int, int]], *, zones: int = 0) -> Figures:
    """The same for any kind of pod of one GPU, on nodes in ``zones``. ``sizes``: (nodes, rounds)."""
    figures = {}
    for nodes, rounds in sizes:
        with ControlPlane(node_lifecycle=False) as plane:
            figures[f"{nodes}_nodes"] = anyio.run(partial(_rounds, plane, nodes, rounds, pod=pod, zones=zones))
    return Figures(
        sizes={"nodes": [nodes for nodes, _ in sizes], "gpus_per_node": objects.CARDS, "pods": "all GPUs"},
        notes=NOTES,
        figures=figures,
    )


async def _rounds(plane: ControlPlane, nodes: int, rounds: int, *, pod: Workload, zones: int) -> dict[str, Any]:
    stock = Stock(plane)
    done: dict[str, list[dict[str, float]]] = {}
    try:
        async with bench_cluster.stage(plane, nodes=nodes, zones=zones) as scene:
            with Deployment(plane, Options(components=(), arguments=ALONE)) as deployment:
                both: Sequence[Contender] = (Moorage(deployment), stock)
                for number in range(rounds):
                    for contender in both:
                        one = await _round(scene, contender, nodes * objects.CARDS, number, pod=pod)
                        done.setdefault(contender.name, []).append(one)
            with Deployment(plane, Options(components=(ADMISSION,), arguments=ALONE)) as deployment:
                guarded = Moorage(deployment, name="moorage, webhooks on")
                for number in range(rounds):
                    one = await _round(scene, guarded, nodes * objects.CARDS, number, pod=pod)
                    done.setdefault(guarded.name, []).append(one)
    finally:
        stock.close()
    return {**{name: _summary(all_of_it) for name, all_of_it in done.items()}, **_ratios(done)}


async def _round(scene: Stage, contender: Contender, count: int, number: int, *, pod: Workload) -> dict[str, float]:
    pods = [pod(f"r{number}-{i:05}", scheduler=contender.scheduler_name) for i in range(count)]
    names = [each["metadata"]["name"] for each in pods]
    await scene.create(bench_cluster.PODS, pods)
    await contender.prepare()
    apiserver = processes.child_named("kube-apiserver")
    async with bench_cluster.observed(scene) as observer, bench_cluster.events_watched(scene) as events:
        started_at, cpu_before_s = anyio.current_time(), processes.cpu_s(apiserver)
        contender.start()
        await observer.bound(names, within_s=_BOUND_WITHIN_S)
        await events.written(count, within_s=_EVENTS_WITHIN_S)
        cpu_s, apiserver_cpu_s = processes.cpu_s(contender.pid), processes.cpu_s(apiserver) - cpu_before_s
        resident_mib = processes.memory_mib(contender.pid)["resident_mib"]
        first, last = min(observer.bound_at.values()), max(observer.bound_at.values())
        over = max(last, events.last_at)
        _check_no_node_is_over(observer.nodes)
    contender.stop()
    await scene.clear()
    return {
        "per_s": count / (over - started_at),
        "per_s_at_work": count / (over - first),
        "bound_per_s": count / (last - started_at),
        "first_s": first - started_at,
        "events_s": over - last,
        "cpu_s": cpu_s,
        "apiserver_cpu_s": apiserver_cpu_s,
        "resident_mib": resident_mib,
    }


def _check_no_node_is_over(nodes: dict[str, str]) -> None:
    counts = statistics.multimode(nodes.values())
    most = list(nodes.values()).count(counts[0])
    if most > objects.CARDS:
        raise AssertionError(f"{counts[0]} was given {most} pods and has {objects.CARDS} GPUs")


def _summary(rounds: Sequence[dict[str, float]]) -> dict[str, Any]:
    medians = {key: round(statistics.median(one[key] for one in rounds), 2) for key in rounds[0]}
    return {**medians, "per_s_of_rounds": [round(one["per_s"]) for one in rounds], "rounds": len(rounds)}


def _ratios(done: dict[str, list[dict[str, float]]]) -> dict[str, float]:
    """Medians of the ratios of neighbouring rounds: what disturbs one round mostly disturbs its neighbour, too."""
    pairs = list(zip(done["moorage"], done["kube-scheduler"], strict=True))
    return {
        f"ratio_{key}": round(statistics.median(ours[key] / theirs[key] for ours, theirs in pairs), 2)
        for key in ("per_s", "per_s_at_work", "first_s", "apiserver_cpu_s")
    }
