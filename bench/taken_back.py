"""GPUs taken back call by call, without a scheduler: what the API server, etcd and the processors allow at best.

The same writes as a scheduler's, for each GPU one pod created, one evicted, one bound, and an event. Nothing is decided
and nobody watches. What a scheduler takes beyond that is its own; what this takes, none can do without.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anyio

from bench import objects, procfs, stage
from bench.objects import CARDS, Manifest
from bench.stage import Stage
from tools.cluster.plane import ControlPlane

#: Of which the CPU is read.
_SERVERS: Final = ("kube-apiserver", "etcd")
#: As many as a scheduler's evictions.
_SIDE_BY_SIDE: Final = 16
_NOBODY: Final = "nobody"


def servers_cpu_s() -> dict[str, float]:
    """CPU seconds of the API server and of etcd so far, in the control plane that this process runs."""
    return {name: procfs.cpu_s(procfs.child_named(name)) for name in _SERVERS}


def spent_ms(before: Mapping[str, float], gpus: int) -> dict[str, float]:
    """CPU milliseconds a GPU of each of them since then."""
    return {name: round((cpu_s - before[name]) * 1e3 / gpus, 2) for name, cpu_s in servers_cpu_s().items()}


async def alone(plane: ControlPlane, nodes: int) -> dict[str, Any]:
    """Fill a cluster, and put another pod in the place of each; from the first creation to the last binding."""
    async with stage.stage(plane, nodes=nodes) as scene:
        places = [f"node-{node:04}" for node in range(nodes) for _ in range(CARDS)]
        gone = [objects.whole(f"r{at:05}", scheduler=_NOBODY, node=node) for at, node in enumerate(places)]
        await scene.create(stage.PODS, gone)
        came = [f"all-{at:05}" for at in range(len(places))]
        before, began = servers_cpu_s(), anyio.current_time()
        await scene.create(stage.PODS, [objects.whole(name, scheduler=_NOBODY) for name in came])
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
    await scene.send("POST", f"{stage.PODS}/{victim}/eviction", _eviction(victim))
    await scene.send("POST", f"{stage.PODS}/{taker}/binding", _binding(taker, node))
    await scene.send("POST", stage.EVENTS, _event(taker, node))


def _eviction(name: str) -> Manifest:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": stage.NAMESPACE},
    }


def _binding(name: str, node: str) -> Manifest:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}


def _event(name: str, node: str) -> Manifest:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.bound", "namespace": stage.NAMESPACE},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "bench",
        "reportingInstance": "bench",
        "action": "Binding",
        "reason": "Scheduled",
        "type": "Normal",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": name, "namespace": stage.NAMESPACE},
        "note": f"Successfully assigned pod {stage.NAMESPACE}/{name} to node {node}",
    }
