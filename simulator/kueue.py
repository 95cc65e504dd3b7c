"""Workloads of Kueue, taken as admitted: Kueue itself is not simulated.

Kueue suspends a workload with a queue, or puts a gate on a plain pod, until it admits it. Facts:
Kueue's docs, Tasks, Run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from simulator.podmaking import child

QUEUE: Final = "kueue.x-k8s.io/queue-name"
_GATE: Final = "kueue.x-k8s.io/admission"


def admitted(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object as Kueue leaves it when it has admitted it; the same object if Kueue holds it not back.

    Kueue holds back what has a queue and is suspended (``spec.suspend``, ``spec.runPolicy.suspend``) or has its gate.
    """
    if not child(child(child(obj, "metadata"), "labels"), QUEUE):
        return obj
    spec = child(obj, "spec")
    if obj.get("kind") == "Pod":
        return _without_gate(obj, child(spec, "schedulingGates"))
    policy = child(spec, "runPolicy")
    if child(spec, "suspend") is True:
        return {**obj, "spec": {**spec, "suspend": False}}
    if child(policy, "suspend") is True:
        return {**obj, "spec": {**spec, "runPolicy": {**policy, "suspend": False}}}
    return obj


def _without_gate(pod: Mapping[str, Any], gates: object) -> Mapping[str, Any]:
    listed = gates if isinstance(gates, list) else []
    left = [gate for gate in listed if child(gate, "name") != _GATE]
    return pod if len(left) == len(listed) else {**pod, "spec": {**pod["spec"], "schedulingGates": left}}
