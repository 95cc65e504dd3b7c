"""Containers of a raw pod: walking them, and what their resources say about GPUs.

Raw means the dict that the API server sent: a partial struct must not be written back, so the webhook changes the
raw pod and reads the struct only to understand it. Callers have decoded the pod into wire.core.Pod before, so the
types of what is touched here are known to be right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from gpu.request import ContainerKind, ContainerRef
from wire import names, quantity

#: A container, or the whole pod, as the API server sent it.
Raw = dict[str, Any]

_NVIDIA: Final = names.GPU_RESOURCE.partition("/")[0]
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


def asks_for_gpu(container: Raw) -> bool:
    """Whether the container gets a GPU from somebody else than us: a device plugin or a resource claim.

    Any resource of NVIDIA's (whole, MIG, renamed) and any extended resource with ``gpu`` in its name counts, since
    their plugins hand devices over in the same variable. Such a container runs only where a node really offers the
    resource, so naming one opens nothing.
    """
    resources = container.get("resources") or {}
    if resources.get("claims"):
        return True
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return any(_is_gpu(name) and _is_something(amount) for name, amount in asked.items())


def _is_gpu(resource: str) -> bool:
    vendor, slash, device = resource.partition("/")
    if not slash or vendor.endswith("kubernetes.io"):
        return False
    is_nvidia = vendor == _NVIDIA or vendor.endswith("." + _NVIDIA)
    return is_nvidia or "gpu" in vendor.lower() or "gpu" in device.lower()


def _is_something(amount: str | float) -> bool:
    try:
        return quantity.parse_nano(amount) > 0
    except quantity.MalformedQuantity:
        return True
