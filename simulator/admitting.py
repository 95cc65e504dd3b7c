"""Whether a kubelet takes a pod that was bound to its node, by what the node has left. Pure.

Kubelet trusts no scheduler: it counts again, in its own words (``OutOfcpu``...). GPUs are the device manager's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from simulator.shape import NodeShape
from wire import names, quantity
from wire.core import Container, Pod

#: Resource -> its amount in the unit in which it is counted here.
Amounts = Mapping[str, int]

_MEMORY_LIKE: Final = (names.MEMORY_RESOURCE, names.EPHEMERAL_STORAGE_RESOURCE)


class Refusal(msgspec.Struct, frozen=True):
    """Why the pod is not admitted, as its status says it."""

    reason: str
    message: str


def allocatable(shape: NodeShape) -> dict[str, int]:
    """Return what the node has for pods: milli-CPU, MiB and numbers."""
    return {
        names.CPU_RESOURCE: shape.cpu_milli,
        names.MEMORY_RESOURCE: shape.mem_mib,
        names.EPHEMERAL_STORAGE_RESOURCE: shape.ephemeral_mib,
        names.PODS_RESOURCE: shape.pods,
    }


def judge(pod: Pod, active: Iterable[Pod], shape: NodeShape, labels: Mapping[str, str]) -> Refusal | None:
    """Judge a pod against the pods that are still active on the node (admitted, and not all containers ended)."""
    selector = pod.spec.node_selector or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return Refusal("NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match")
    others = [requests(other) for other in active]
    asked = requests(pod)
    for resource, capacity in allocatable(shape).items():
        used = sum(other.get(resource, 0) for other in others)
        if asked.get(resource, 0) and used + asked[resource] > capacity:
            detail = f"requested: {asked[resource]}, used: {used}, capacity: {capacity}"
            message = f"Pod was rejected: Node didn't have enough resource: {resource}, {detail}"
            return Refusal(f"OutOf{resource}", message)
    return None


def requests(pod: Pod) -> dict[str, int]:
    """Sum up what a pod asks, as kubelet does: init containers one by one, sidecars (KEP-753) with all after them."""
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for init in pod.spec.init_containers or ():
        if init.restart_policy == "Always":
            sidecars = _sum(sidecars, _requests(init))
            peak = _larger(peak, sidecars)
        else:
            peak = _larger(peak, _sum(sidecars, _requests(init)))
    together = sidecars
    for container in pod.spec.containers:
        together = _sum(together, _requests(container))
    if pod.spec.resources is not None and pod.spec.resources.requests:
        together = {**together, **_counted(pod.spec.resources.requests)}
    total = _sum(_larger(peak, together), _counted(pod.spec.overhead or {}))
    return {**total, names.PODS_RESOURCE: 1}


def _requests(container: Container) -> dict[str, int]:
    return _counted({**(container.resources.limits or {}), **(container.resources.requests or {})})


def _counted(amounts: Mapping[str, str | int | float]) -> dict[str, int]:
    counted: dict[str, int] = {}
    for resource, amount in amounts.items():
        if resource == names.CPU_RESOURCE:
            counted[resource] = quantity.milli_up(amount)
        elif resource in _MEMORY_LIKE:
            counted[resource] = quantity.mib_up(amount)
    return counted


def _sum(one: Amounts, other: Amounts) -> dict[str, int]:
    return {resource: one.get(resource, 0) + other.get(resource, 0) for resource in {**one, **other}}


def _larger(one: Amounts, other: Amounts) -> dict[str, int]:
    return {resource: max(one.get(resource, 0), other.get(resource, 0)) for resource in {**one, **other}}
