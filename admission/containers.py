"""Containers of a raw pod: walking them, and what their resources say about GPUs.

Raw means the dict that the API server sent: a partial struct must not be written back, so the webhook changes the
raw pod and reads the struct only to understand it. Callers have decoded the pod into wire.core.Pod before, so the
types of what is touched here are known to be right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

from gpu import slices
from gpu.request import ContainerKind, ContainerRef
from wire import quantity

#: A container, or the whole pod, as the API server sent it.
Raw = dict[str, Any]

_FIELDS: Final = {ContainerKind.REGULAR: "containers", ContainerKind.INIT: "initContainers"}


def walk(pod: Raw) -> Iterator[tuple[ContainerRef, Raw]]:
    """Yield every regular and init container with its place."""
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
        (slices.is_device_resource(name) or name in renamed) and _is_something(amount) for name, amount in asked.items()
    )


def _is_something(amount: str | float) -> bool:
    try:
        return quantity.parse_nano(amount) > 0
    except quantity.MalformedQuantity:
        return True
