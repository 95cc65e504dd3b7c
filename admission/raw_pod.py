"""Pods as the API server sent them: how large they may be, and what their containers say about GPUs.

Raw means the dict that the API server sent. A partial struct must not be written back, so the webhook changes the raw
pod and reads the struct only to understand it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from gpu import node_resources
from gpu.request import ContainerKind, ContainerRef
from gpu.translation import Mistake, Refusal, shown
from wire import quantity

#: A container, or the whole pod, as the API server sent it.
Raw = dict[str, Any]

_FIELDS: Final = {ContainerKind.REGULAR: "containers", ContainerKind.INIT: "initContainers"}


def walk(pod: Raw) -> Iterator[tuple[ContainerRef, Raw]]:
    """Yield every regular and init container with its place.

    Callers of this and of all that reads containers here have decoded the pod into wire.core.Pod, so its types are
    right.
    """
    for kind, field in _FIELDS.items():
        for index, container in enumerate(pod["spec"].get(field) or ()):
            yield ContainerRef(kind, index, container.get("name", "")), container


def rewritten(pod: Raw, change: Callable[[ContainerRef, Raw], Raw]) -> Raw:
    """Return the pod with every regular and init container replaced by what ``change`` makes of it."""
    spec = dict(pod["spec"])
    for kind, field in _FIELDS.items():
        if spec.get(field):
            spec[field] = [
                change(ContainerRef(kind, index, container.get("name", "")), container)
                for index, container in enumerate(spec[field])
            ]
    return {**pod, "spec": spec}


def env_of(container: Raw) -> list[Raw]:
    """Return the container's env entries, null or absent being none."""
    return container.get("env") or []


def with_list(owner: Raw, field: str, values: list[Raw]) -> Raw:
    """Return ``owner`` with that list in ``field``; an empty list changes nothing where there was none."""
    if not values and not owner.get(field):
        return owner
    return {**owner, field: values}


def asks_for_gpu(container: Raw, renamed: Collection[str] = ()) -> bool:
    """Whether NVIDIA's device plugin gives the container devices, and so says its variable.

    That is so for whole GPUs, MIG slices, and devices with another name in the plugin's settings (``renamed``). Kubelet
    lets a pod in without an extended resource that its node lacks, so what no plugin serves must not count. Resource
    claims, and GPUs of others, are handed over by CDI or by device files: nobody says the variable there.
    """
    resources = container.get("resources") or {}
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return any(
        (node_resources.is_device_resource(name) or name in renamed) and _is_something(amount)
        for name, amount in asked.items()
    )


def _is_something(amount: str | float) -> bool:
    try:
        return quantity.parse_nano(amount) > 0
    except quantity.MalformedQuantity:
        return True


_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
#: Written by the API server, and read by nobody here.
_UNREAD: Final = "managedFields"


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod may have at most.

    ``containers`` of all three kinds: more than one for each of the 384 devices that a pod may ask for. ``resources``:
    different names of resources, as many as the scheduler compares with nodes. ``entries``: members of all lists and
    maps together.

    They are looked at before anything else is read. All that is done for a pod afterwards is linear in its entries, so
    they bound the CPU time of a review without a clock: the same pod is let in everywhere, always. They are far above
    what pods have. Kubernetes is tested with 300,000 containers in 150,000 pods
    (kubernetes.io/docs/setup/best-practices/cluster-large), and all annotations of a pod are 256 KiB at most, so 10,000
    of them would have 26 bytes each.
    """

    containers: int = 512
    resources: int = 100
    entries: int = 10_000


def excess(pod: Raw, bounds: Bounds) -> Refusal | None:
    """Say which bound the pod exceeds; None if none. ``pod`` may be anything with maps as metadata and spec."""
    if (found := containers(pod)) > bounds.containers:
        return _refusal("spec.containers", found, "containers of all kinds", bounds.containers)
    if (found := len(resources(pod, bounds.resources))) > bounds.resources:
        return _refusal("resources of containers", found, "names of resources", bounds.resources)
    field, found = entries(pod, bounds.entries)
    return _refusal(field, found, "entries of lists and maps in the pod", bounds.entries) if field else None


def has_grown(before: Raw, after: Raw) -> bool:
    """Whether a change adds entries. A pod that came before there was a bound may always be freed of its finalizers."""
    old, new = dict(_fields(before)), dict(_fields(after))
    changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return sum(_count(new.get(name)) for name in changed) > sum(_count(old.get(name)) for name in changed)


def containers(pod: Raw) -> int:
    """Return the number of containers of all three kinds."""
    return sum(len(_list(pod["spec"].get(field))) for field in _CONTAINERS)


def resources(pod: Raw, most: int, *, most_containers: int | None = None) -> set[str]:
    """Return the names of resources that the pod says; not all of them if there are more than ``most``."""
    found: set[str] = set()
    for owner in islice(_owners(pod["spec"]), most_containers):
        asked = _map(owner.get("resources"))
        for field in ("limits", "requests"):
            found.update(_map(asked.get(field)))
        if len(found) > most:
            break
    return found


def entries(pod: Raw, most: int) -> tuple[str, int]:
    """Return the field with the most entries, and the pod's entries so far, once there are more than ``most``."""
    total, largest, field = 0, 0, ""
    for name, value in _fields(pod):
        count = _count(value, most)
        if count > largest:
            largest, field = count, name
        total += count
        if total > most:
            return field, total
    return "", total


def _fields(pod: Raw) -> Iterator[tuple[str, Any]]:
    """Parts of the pod small enough to name: fields of metadata, of spec, and the rest."""
    yield "the pod", [None] * (len(pod) + len(pod["metadata"]) + len(pod["spec"]))
    for outer in ("spec", "metadata"):
        for name, value in pod[outer].items():
            if name != _UNREAD:
                yield f"{outer}.{name}", value
    yield "status", pod.get("status")


def _count(value: object, most: float = math.inf) -> int:
    """Members of a list or map and of all that is in it; some number above ``most`` if there are more."""
    count, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, (dict, list)):
            continue
        count += len(one)
        if count > most:
            break
        inner = one.values() if isinstance(one, dict) else one
        waiting += [each for each in inner if isinstance(each, (dict, list))]
    return count


def _owners(spec: Raw) -> Iterator[Raw]:
    """All that may say resources: the pod and its containers."""
    yield spec
    for field in _CONTAINERS:
        for container in _list(spec.get(field)):
            yield _map(container)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _map(value: object) -> Raw:
    return value if isinstance(value, dict) else {}


def _refusal(field: str, found: int, what: str, most: int) -> Refusal:
    return Refusal(
        code=Mistake.TOO_LARGE,
        field=shown(field),
        value=f"{found:,}",
        message=f"the pod is too large: more than {most:,} {what}",
        allowed=f"{most:,} {what}",
    )
