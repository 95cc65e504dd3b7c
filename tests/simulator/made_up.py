"""Made-up objects and records for the checker, as plain JSON, so that its tests need no product code."""

from __future__ import annotations

import json
from typing import Any

from simulator.checks.checker import PODS, Checker
from simulator.checks.evictions import Write
from simulator.checks.violations import SOUND
from simulator.nodes.device_manager import Device
from simulator.nodes.ground_truth import Freed, Held, Started, Stopped

A = Device(0, "GPU-a", 1000)
B = Device(1, "GPU-b", 1000)
C = Device(2, "GPU-c", 500)
NODE = "node-0"


def pod(name: str, *, node: str = NODE, annotations: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """A pod of our scheduler with one container, ``main``; its UID is ``uid-NAME``."""
    containers = more.get("containers", [{"name": "main"}])
    return {
        "metadata": {
            "namespace": more.get("namespace", "team"),
            "name": name,
            "uid": f"uid-{name}",
            "labels": more.get("labels", {}),
            "annotations": annotations or {},
            **more.get("metadata", {}),
        },
        "spec": {"nodeName": node, "schedulerName": more.get("scheduler", "kai-scheduler"), "containers": containers},
        "status": {"phase": more.get("phase", "Pending")},
    }


def share(name: str, group: str, fraction: str = "0.5", **more: Any) -> dict[str, Any]:
    """A pod that asks a fraction and is in a group."""
    annotations = {"gpu-fraction": fraction, **more.pop("annotations", {})}
    return pod(name, annotations=annotations, labels={"runai-gpu-group": group}, **more)


def whole(name: str, count: int = 1) -> dict[str, Any]:
    """A pod that asks whole GPUs."""
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(count)}}}
    return pod(name, containers=[container])


def reservation(name: str, group: str, book: dict[str, int] | None = None, **more: Any) -> dict[str, Any]:
    """A reservation pod; ``book`` is pod UID -> nano, and each entry says ``more``."""
    entry = {"attempt": "a", "rv": "1", "since": 0, "pod": "p", **more}
    entries = {uid: {"nano": nano, **entry} for uid, nano in (book or {}).items()}
    return pod(
        name,
        namespace="kai-resource-reservation",
        annotations={"moorage.dev/tenants": json.dumps(entries)},
        labels={"app": "kai-resource-reservation", "runai-gpu-group": group},
        scheduler="default-scheduler",
    )


class Story:
    """Tells a checker a story, second by second."""

    def __init__(self, *, cards: tuple[Device, ...] = (A, B, C), **settings: Any) -> None:
        self.checker = Checker({NODE: cards}, **settings)
        self.now_s = 0.0
        self._seen: set[str] = set()

    def sees(self, raw: dict[str, Any], *, kind: str = PODS, event: str = "MODIFIED", by_hand: bool = False) -> Story:
        """A version of an object. A user's pod was unbound before it was first told of, or was placed ``by_hand``."""
        uid = raw["metadata"]["uid"]
        is_ours = raw["metadata"].get("namespace") == "kai-resource-reservation"
        if kind == PODS and uid not in self._seen and not by_hand and not is_ours:
            self.checker.observed(kind, "ADDED", {**raw, "spec": {**raw["spec"], "nodeName": ""}}, self.now_s)
        self._seen.add(uid)
        self.checker.observed(kind, event, raw, self.now_s)
        return self

    def writes(self, verb: str, plural: str, name: str, *, user: str = "scheduler", **more: Any) -> Story:
        """A write that the API server answered."""
        more = {"namespace": "team", **more}
        is_ours = user in {"scheduler", "binder"}
        write = Write(at_s=self.now_s, user=user, is_ours=is_ours, verb=verb, plural=plural, name=name, **more)
        self.checker.wrote(write)
        return self

    def rests(self) -> Story:
        """Everything is at rest: judge what pods say, and what fits."""
        self.checker.judge_waiting(self.now_s)
        for why in self.checker.fitting(self.checker.scene).values():
            self.checker.findings.add("L1", self.now_s, why)
        return self

    def holds(self, name: str, *devices: str) -> Story:
        self.checker.recorded(Held(at_s=self.now_s, node=NODE, pod_uid=f"uid-{name}", devices=devices))
        return self

    def frees(self, name: str) -> Story:
        self.checker.recorded(Freed(at_s=self.now_s, node=NODE, pod_uid=f"uid-{name}"))
        return self

    def starts(
        self, name: str, *devices: str, assigned: tuple[str, ...] = (), container: str = "main", node: str = NODE
    ) -> Story:
        self.checker.recorded(
            Started(
                at_s=self.now_s,
                node=node,
                pod_uid=f"uid-{name}",
                pod=f"team/{name}",
                container=container,
                is_init=False,
                restarts=0,
                devices=devices,
                assigned=assigned,
            )
        )
        return self

    def stops(self, name: str, container: str = "main") -> Story:
        self.checker.recorded(Stopped(at_s=self.now_s, node=NODE, pod_uid=f"uid-{name}", container=container))
        return self

    def after(self, seconds: float) -> Story:
        self.now_s += seconds
        return self

    def broken(self) -> set[str]:
        """End the story; return the invariants that did not hold."""
        self.checker.finish(self.now_s)
        return {name for name, outcome in self.checker.report.items() if outcome not in SOUND}


def version(raw: dict[str, Any], number: int) -> dict[str, Any]:
    """The same object at a resourceVersion."""
    return {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(number)}}


def granted(name: str, group: str, fraction: str = "0.5", *, nano: int | None = None, **more: Any) -> dict[str, Any]:
    """A pod that was bound by us through the reservation ``r`` to GPU-a, and is charged ``nano``."""
    charged = int(float(fraction) * 10**9) if nano is None else nano
    device = {"group": group, "reservation": "uid-r", "uuid": "GPU-a", "nano": charged}
    grant = json.dumps({"attempt": "a", "devices": [device]})
    annotations = {"moorage.dev/grant": grant, "moorage.dev/visible-devices.c0": "GPU-a", **more.pop("annotations", {})}
    return share(name, group, fraction, annotations=annotations, **more)


def granted_memory(name: str, group: str, mem_mib: int, nano: int) -> dict[str, Any]:
    """A pod that asks memory, and was bound by us through the reservation ``r`` to GPU-a for a charge of ``nano``."""
    raw = granted(name, group, nano=nano, annotations={"gpu-memory": str(mem_mib)})
    del raw["metadata"]["annotations"]["gpu-fraction"]
    return raw


def waiting(name: str, message: str | None = None, **more: Any) -> dict[str, Any]:
    """A pod of ours that is not bound, and why, as its condition says."""
    raw = pod(name, node="", **more)
    if message is not None:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        raw["status"]["conditions"] = [condition]
    return raw


def node(name: str = NODE, *, gpus: int = 3, ready: bool = True, cordoned: bool = False) -> dict[str, Any]:
    """A node of 4 cores, 10 pods and so many GPUs."""
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"unschedulable": cordoned},
        "status": {
            "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "10", "nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


def pod_group(name: str, minimum: int) -> dict[str, Any]:
    """A PodGroup."""
    return {"metadata": {"namespace": "team", "name": name, "uid": f"uid-{name}"}, "spec": {"minMember": minimum}}
