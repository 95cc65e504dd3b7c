"""``python -m bench.firstshare``: how long the first share of a GPU waits, with and without the agent of a node.

A real kubelet with two emulated GPUs (tools/node), and Moorage. Each round creates a pod with a share where no GPU is
shared, waits until it is bound and until it runs, and takes it away again. Rounds with and without the agent take
turns, so that both meet the same load. It needs root, and what ``python -m tools.node check`` names.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from bench.result import quantile
from tools.cluster.deployment import Deployment, Options
from tools.cluster.nodeagent import NodeAgent
from tools.cluster.plane import ControlPlane
from tools.node.gpus import MACHINE
from tools.node.node import Node
from wire import names

NODE = "bench-node"
PODS = "/api/v1/namespaces/default/pods"
RESERVATIONS = f"/api/v1/namespaces/{names.RESERVATION_NAMESPACE}/pods"
_POLL_S, _PATIENCE_S = 0.01, 240.0
T = TypeVar("T")

_SLEEPS = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [15]); signal.sigwait([15])"


def pod(name: str) -> dict[str, Any]:
    """A pod that asks for half a GPU."""
    container = {
        "name": "main",
        "image": "localhost/moorage/reservation:latest",
        "imagePullPolicy": "Never",
        "command": ["/usr/bin/python3", "-c", _SLEEPS],
    }
    return {
        "metadata": {"name": name, "annotations": {names.GPU_FRACTION: "0.5"}},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "containers": [container],
            "terminationGracePeriodSeconds": 5,
            "runtimeClassName": "nvidia",
        },
    }


def until(probe: Callable[[], T | None], what: str) -> T:
    """Ask until there is an answer."""
    give_up_at = time.monotonic() + _PATIENCE_S
    while (found := probe()) is None:
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"waited {_PATIENCE_S} s for {what}")
        time.sleep(_POLL_S)
    return found


def one_round(plane: ControlPlane, name: str) -> dict[str, float]:
    """Seconds from a pod's creation until its reservation's device was told, it was bound, and it ran."""
    rest, took = plane.rest(), dict[str, float]()
    began = time.monotonic()

    def seen(what: str, *, holds: bool) -> bool:
        if holds:
            took.setdefault(what, time.monotonic() - began)
        return holds

    def runs() -> bool | None:
        if "told" not in took:
            held = [one["metadata"].get("annotations", {}) for one in rest.call("GET", RESERVATIONS)["items"]]
            seen("told", holds=any(names.RESERVE_FOR_GPU_INDEX in each for each in held))
        found = rest.call("GET", f"{PODS}/{name}")
        seen("bound", holds=bool(found["spec"].get("nodeName")))
        return seen("running", holds=found["status"]["phase"] == "Running") or None

    rest.call("POST", PODS, pod(name))
    until(runs, f"{name} to run")
    rest.send("DELETE", f"{PODS}/{name}")
    until(lambda: not rest.call("GET", RESERVATIONS)["items"] or None, "the reservation to go")
    return took


def told(rounds: Mapping[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Return median, p95 and the longest of each stage, in seconds."""
    return {
        who: {
            stage: {
                key: round(quantile([each[stage] for each in found if stage in each], part), 3)
                for key, part in (("p50", 0.5), ("p95", 0.95), ("max", 1.0))
            }
            for stage in ("told", "bound", "running")
        }
        for who, found in rounds.items()
    }


def main(arguments: list[str]) -> int:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m bench.firstshare", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="rounds with, and as many without")
    wanted = parser.parse_args(arguments)
    rounds: dict[str, list[dict[str, float]]] = {"without": [], "with": []}
    options = {"binder": ["--idle-s", "0.5", "--reservation-runtime-class", "nvidia"]}
    with ControlPlane(nodes=[NODE]) as plane:
        runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}}
        plane.rest().call("POST", "/apis/node.k8s.io/v1/runtimeclasses", {**runtime, "handler": "nvidia"})
        labels = {"nvidia.com/gpu.memory": "81559", "nvidia.com/gpu.count": "2"}
        with Node(plane, NODE, gpus=2, labels=labels) as node, Deployment(plane, Options(arguments=options)):
            socket = node.folder / "kubelet" / "pod-resources" / "kubelet.sock"
            with NodeAgent(plane, NODE, socket=socket, machine=node.folder / MACHINE) as agent:
                agent.kill()
                one_round(plane, "warm-up")
                ready: list[float] = []
                ready_cpu: list[float] = []
                resident: list[int] = []
                for number in range(wanted.rounds):
                    rounds["without"].append(one_round(plane, f"without-{number}"))
                    agent.start()
                    ready.append(agent.ready_after_s)
                    ready_cpu.append(agent.cpu_s())
                    rounds["with"].append(one_round(plane, f"with-{number}"))
                    resident.append(agent.resident_kib())
                    agent.kill()
    figures = told(rounds)
    figures["agent"] = {
        "ready_s_p50": round(quantile(ready, 0.5), 2),
        "ready_cpu_s_p50": round(quantile(ready_cpu, 0.5), 2),
        "resident_kib_max": max(resident),
    }
    figures["load_1m"] = round(os.getloadavg()[0], 1)
    print(json.dumps({"rounds": wanted.rounds, **figures}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
