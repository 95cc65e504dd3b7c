"""Batch scheduling on a real API server: queues that fill a cluster, a gang that can't run, a team that takes its own.

The cases are those that KAI publishes figures for (500 simulated nodes, larger machines); the table says so.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

import anyio

from bench import bench_cluster, objects, processes
from bench.bench_cluster import Observer, Stage
from bench.contenders import Moorage
from bench.objects import CARDS, Manifest
from bench.result import Figures, Sizes
from tools.cluster.deployment import BINDER, SCHEDULER, Deployment, Options
from tools.cluster.plane import ControlPlane

#: Of which the CPU is read.
_SERVERS: Final = ("kube-apiserver", "etcd")
#: As many as a scheduler's evictions.
_SIDE_BY_SIDE: Final = 16
_NOBODY: Final = "nobody"


def servers_cpu_s() -> dict[str, float]:
    """CPU seconds of the API server and of etcd so far, in the control plane that this process runs."""
    return {name: processes.cpu_s(processes.child_named(name)) for name in _SERVERS}


def spent_ms(before: Mapping[str, float], gpus: int) -> dict[str, float]:
    """CPU milliseconds a GPU of each of them since then."""
    return {name: round((cpu_s - before[name]) * 1e3 / gpus, 2) for name, cpu_s in servers_cpu_s().items()}


async def writes_alone(plane: ControlPlane, nodes: int) -> dict[str, Any]:
    """GPUs taken back call by call, without a scheduler: what the API server, etcd and the processors allow at best.

    Fills a cluster, and puts another pod in the place of each; measured from the first creation to the last binding.
    The same writes as a scheduler's: for each GPU one pod created, one evicted, one bound, and an event. Nothing is
    decided and nobody watches. What a scheduler takes beyond that is its own; what this takes, none can do without.
    """
    async with bench_cluster.stage(plane, nodes=nodes) as scene:
        places = [f"node-{node:04}" for node in range(nodes) for _ in range(CARDS)]
        gone = [objects.whole(f"r{at:05}", scheduler=_NOBODY, node=node) for at, node in enumerate(places)]
        await scene.create(bench_cluster.PODS, gone)
        came = [f"all-{at:05}" for at in range(len(places))]
        before, began = servers_cpu_s(), anyio.current_time()
        await scene.create(bench_cluster.PODS, [objects.whole(name, scheduler=_NOBODY) for name in came])
        waiting = iter([*zip((pod["metadata"]["name"] for pod in gone), came, places, strict=True)])

        async def work() -> None:
            for victim, taker, node in waiting:
                await _take_back(scene, victim, taker, node)

        async with anyio.create_task_group() as tasks:
            for _ in range(_SIDE_BY_SIDE):
                tasks.start_soon(work)
        took_s = anyio.current_time() - began
    return {"gpus": len(places), "s": round(took_s, 1), "cpu_ms_a_gpu": spent_ms(before, len(places))}


async def _take_back(scene: Stage, victim: str, taker: str, node: str) -> None:
    await scene.send("POST", f"{bench_cluster.PODS}/{victim}/eviction", _eviction(victim))
    await scene.send("POST", f"{bench_cluster.PODS}/{taker}/binding", _binding(taker, node))
    await scene.send("POST", bench_cluster.EVENTS, _event(taker, node))


def _eviction(name: str) -> Manifest:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": bench_cluster.NAMESPACE},
    }


def _binding(name: str, node: str) -> Manifest:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}


def _event(name: str, node: str) -> Manifest:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.bound", "namespace": bench_cluster.NAMESPACE},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "bench",
        "reportingInstance": "bench",
        "action": "Binding",
        "reason": "Scheduled",
        "type": "Normal",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": name, "namespace": bench_cluster.NAMESPACE},
        "note": f"Successfully assigned pod {bench_cluster.NAMESPACE}/{name} to node {node}",
    }


_BOUND_WITHIN_S: Final = 300.0
_QUIET_S: Final = 30.0
_TEAMS: Final = 20
_ARGUMENTS: Final = {SCHEDULER: ("--no-leader-election",), BINDER: ("--no-leader-election",)}
#: How many pods of one GPU a team takes back, one after the other, for the median.
_ONES: Final = 20
_BETWEEN_S: Final = 0.5

NOTES = (
    "Nodes of 8 GPUs; no kubelet, so an evicted pod is gone at once (grace 0). Binder beside the scheduler, no "
    "webhooks.",
    f"fill: a pod of one GPU for each GPU, all there, then the scheduler is started: over {_TEAMS} queues of one "
    "department, and without Queue objects, in turn. Seconds from its start to the last binding; ratio of the two.",
    "verdict: on a full cluster a gang of a tenth of the nodes' GPUs that can't run: from its last pod's creation "
    f"until all its pods say why; then pod writes and the scheduler's CPU in {_QUIET_S:g} s in which nothing changes.",
    f"one: on a cluster that another team filled, a pod of a team within its quota: from its creation to its binding; "
    f"median and longest of {_ONES}. all: the same for all GPUs at once, from the first creation to the last binding.",
    "calls_alone: the writes of `all` (pod created, evicted, bound, an event), 16 side by side, without scheduler and "
    "binder; all_to_calls: how many times that `all` took.",
)


def measure(sizes: Sizes) -> Figures:
    """All cases, one control plane each."""
    nodes, rounds = sizes.batch
    figures: dict[str, Any] = {}
    with ControlPlane(node_lifecycle=False) as plane:
        figures["fill"] = anyio.run(_fill, plane, nodes, rounds)
    with ControlPlane(node_lifecycle=False) as plane:
        figures |= anyio.run(_full, plane, nodes)
    with ControlPlane(node_lifecycle=False) as plane:
        figures["calls_alone"] = alone = anyio.run(writes_alone, plane, nodes)
    a_gpu_s = [each["s"] / each["gpus"] for each in (figures["all"], alone)]
    figures["all_to_calls"] = round(a_gpu_s[0] / a_gpu_s[1], 2)
    return Figures(sizes={"nodes": nodes, "rounds": rounds, "gpus": nodes * CARDS}, notes=NOTES, figures=figures)


async def _fill(plane: ControlPlane, nodes: int, rounds: int) -> dict[str, Any]:
    teams = [f"team-{number:02}" for number in range(_TEAMS)]
    share = nodes * CARDS // _TEAMS
    queues = [objects.queue("department", gpus=nodes * CARDS)]
    queues += [objects.queue(team, gpus=share, parent="department") for team in teams]
    took: dict[str, list[float]] = {"with": [], "without": []}
    async with bench_cluster.stage(plane, nodes=nodes) as scene:
        with Deployment(plane, Options(components=(), arguments=_ARGUMENTS)) as deployment:
            await scene.served(bench_cluster.QUEUES)
            for number in range(rounds):
                await scene.create(bench_cluster.QUEUES, queues)
                pods = [objects.whole(f"w{number}-{i:05}", queue=teams[i % len(teams)]) for i in range(nodes * CARDS)]
                took["with"].append(await _start_to_bound_s(scene, deployment, pods))
                await scene.delete(bench_cluster.QUEUES, [queue["metadata"]["name"] for queue in queues])
                pods = [objects.whole(f"n{number}-{i:05}") for i in range(nodes * CARDS)]
                took["without"].append(await _start_to_bound_s(scene, deployment, pods))
    ratios = [one / other for one, other in zip(took["with"], took["without"], strict=True)]
    return {
        "with_queues_s": round(statistics.median(took["with"]), 2),
        "without_s": round(statistics.median(took["without"]), 2),
        "ratio": round(statistics.median(ratios), 2),
        "with_queues_s_of_rounds": [round(one, 2) for one in took["with"]],
    }


async def _start_to_bound_s(scene: Stage, deployment: Deployment, pods: Sequence[Manifest]) -> float:
    scheduler = Moorage(deployment)
    await scene.create(bench_cluster.PODS, pods)
    await scheduler.prepare()
    async with bench_cluster.observed(scene) as observer:
        began = anyio.current_time()
        scheduler.start()
        await observer.bound([pod["metadata"]["name"] for pod in pods], within_s=_BOUND_WITHIN_S)
        took_s = max(observer.bound_at.values()) - began
    scheduler.stop()
    await scene.clear()
    return took_s


async def _full(plane: ControlPlane, nodes: int) -> dict[str, Any]:
    """A cluster that one team filled beyond its quota; the other is owed all of it."""
    async with bench_cluster.stage(plane, nodes=nodes) as scene:
        running = [
            objects.whole(f"r{node:04}-{gpu}", queue="over", node=f"node-{node:04}")
            for node in range(nodes)
            for gpu in range(CARDS)
        ]
        await scene.create(bench_cluster.PODS, running)
        with Deployment(plane, Options(components=(), arguments=_ARGUMENTS)) as deployment:
            await scene.served(bench_cluster.QUEUES)
            await scene.create(
                bench_cluster.QUEUES, [objects.queue("owed", gpus=nodes * CARDS), objects.queue("over", gpus=0)]
            )
            scheduler = Moorage(deployment)
            await scheduler.prepare()
            scheduler.start()
            await anyio.sleep(_QUIET_S / 3)
            async with bench_cluster.observed(scene) as observer:
                found = {"verdict": await _verdict(scene, scheduler, observer, nodes)}
                found["one"] = await _one_by_one(scene, observer)
                found["all"] = await _all(scene, scheduler, observer, nodes)
            deployment.check()
    return found


async def _verdict(scene: Stage, scheduler: Moorage, observer: Observer, nodes: int) -> dict[str, float]:
    """Its team is owed nothing, so it may take from nobody."""
    members = max(nodes // 10, 2)
    names = [f"hopeless-{i:03}" for i in range(members)]
    await scene.create(bench_cluster.POD_GROUPS, [objects.pod_group("hopeless", members, queue="over")])
    pods = [objects.whole(name, gpus=CARDS, group="hopeless", queue="over") for name in names]
    await scene.create(bench_cluster.PODS, pods)
    with anyio.fail_after(_BOUND_WITHIN_S):
        while not observer.refused_at.keys() >= set(names):  # noqa: ASYNC110 - the observer tells nobody
            await anyio.sleep(0.005)
    created = max(observer.created_at[name] for name in names)
    refused = [observer.refused_at[name] for name in names]
    await anyio.sleep(_QUIET_S / 3)
    cpu_before_s, writes_before = processes.cpu_s(scheduler.pid), observer.seen
    await anyio.sleep(_QUIET_S)
    cpu_s, writes = processes.cpu_s(scheduler.pid) - cpu_before_s, observer.seen - writes_before
    await scene.delete(bench_cluster.PODS, names)
    return {
        "members": members,
        "ms": round(max(0.0, max(refused) - created) * 1e3, 1),
        "writes_after": writes,
        "cpu_after_s": round(cpu_s, 2),
    }


async def _one_by_one(scene: Stage, observer: Observer) -> dict[str, float]:
    names = [f"one-{number:02}" for number in range(_ONES)]
    for name in names:
        await scene.create(bench_cluster.PODS, [objects.whole(name, queue="owed")])
        await observer.bound([name], within_s=_BOUND_WITHIN_S)
        await anyio.sleep(_BETWEEN_S)
    took = observer.waits_s(names)
    return {"ms": round(statistics.median(took) * 1e3, 1), "slowest_ms": round(max(took) * 1e3, 1)}


async def _all(scene: Stage, scheduler: Moorage, observer: Observer, nodes: int) -> dict[str, Any]:
    names = [f"all-{number:05}" for number in range(nodes * CARDS - _ONES)]
    cpu_before_s, servers_before_s = processes.cpu_s(scheduler.pid), servers_cpu_s()
    await scene.create(bench_cluster.PODS, [objects.whole(name, queue="owed") for name in names])
    await observer.bound(names, within_s=_BOUND_WITHIN_S)
    first, last = min(observer.created_at[name] for name in names), max(observer.bound_at[name] for name in names)
    return {
        "gpus": len(names),
        "s": round(last - first, 1),
        "first_bound_s": round(min(observer.bound_at[name] for name in names) - first, 2),
        "cpu_s": round(processes.cpu_s(scheduler.pid) - cpu_before_s, 1),
        "cpu_ms_a_gpu": spent_ms(servers_before_s, len(names)),
    }
