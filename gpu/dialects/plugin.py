"""What containers ask of the vendor's device plugin: whole GPUs and MIG slices, as extended resources.

No dialect owns these; every one of them finds them beside its own words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from gpu.refusal import Mistake, Refusal, shown
from gpu.request import Ask, ContainerKind, ContainerRef, MigAsk, WholeAsk
from wire import names
from wire.core import Container, PodSpec
from wire.quantity import MalformedQuantity, whole

#: Most devices, or slices of one profile, that one container may ask: a bound on what a request can cost us, and on
#: what its Binding writes (gpu/room.py). No node has as many.
MOST_DEVICES: Final = 256

_ALWAYS: Final = "Always"

Amount = str | int | float


def containers(spec: PodSpec) -> Iterator[tuple[ContainerRef, Container]]:
    """Go through the containers with their places: regular ones first, as the normal form lists them."""
    for kind, listed in ((ContainerKind.REGULAR, spec.containers), (ContainerKind.INIT, spec.init_containers or ())):
        for index, container in enumerate(listed):
            yield ContainerRef(kind, index, container.name), container


def is_sidecar(ref: ContainerRef, container: Container) -> bool:
    """Whether this is an init container that goes on running beside the regular ones."""
    return ref.kind is ContainerKind.INIT and container.restart_policy == _ALWAYS


def amounts(container: Container) -> Mapping[str, Amount]:
    """All resources that a container names. Limits and requests of extended ones are equal; either may be left out."""
    limits, requests = container.resources.limits, container.resources.requests
    if limits and requests:
        return {**requests, **limits}
    return limits or requests or {}


def names_any(spec: PodSpec, resources: Iterable[str]) -> bool:
    """Whether a container names one of these resources."""
    return any(
        amounts_of and not amounts_of.keys().isdisjoint(resources)
        for listed in (spec.containers, spec.init_containers or ())
        for container in listed
        for amounts_of in (container.resources.limits, container.resources.requests)
    )


def plugin_resources(container: Container) -> dict[str, Amount]:
    """Pick the GPUs and MIG slices."""
    both = amounts(container)
    return {
        name: both[name] for name in both if name == names.GPU_RESOURCE or name.startswith(names.MIG_RESOURCE_PREFIX)
    }


def too_many(field: str, text: str) -> Refusal:
    """Refuse a count above MOST_DEVICES."""
    return Refusal(
        code=Mistake.TOO_MANY,
        field=field,
        value=shown(text),
        message=f"{field} {shown(text)} is too large: a container can be given at most {MOST_DEVICES} devices",
        allowed=f"1 to {MOST_DEVICES}",
    )


def plugin_asks(ref: ContainerRef, container: Container) -> tuple[Ask, ...] | Refusal:
    """Read what one container asks, one ask a device or slice, or say which count is malformed."""
    asks: list[Ask] = []
    for name, amount in sorted(plugin_resources(container).items()):
        count = _count(ref, container, name, amount)
        if isinstance(count, Refusal):
            return count
        if count + len(asks) > MOST_DEVICES:
            return too_many(f"{name} of container {ref.name}", f"{count}{f' beside {len(asks)}' if asks else ''}")
        ask = WholeAsk() if name == names.GPU_RESOURCE else MigAsk(name.removeprefix(names.MIG_RESOURCE_PREFIX))
        asks += (ask,) * count
    return tuple(asks)


def count_of(ref: ContainerRef, container: Container, name: str) -> int | Refusal:
    """Read how much of the extended resource ``name`` one container asks: 0 where it doesn't name it."""
    # Not by amounts(): that copies all that the container names, and callers ask for each name.
    for listed in (container.resources.limits, container.resources.requests):
        if listed and name in listed:
            return _count(ref, container, name, listed[name])
    return 0


def _count(ref: ContainerRef, container: Container, name: str, amount: Amount) -> int | Refusal:
    """A count of extended resources, by the API server's rules: a whole number, requests equal to limits."""
    field = f"{name} of container {ref.name}"
    try:
        count = whole(amount)
        requested = whole((container.resources.requests or {}).get(name, amount))
    except MalformedQuantity as error:
        return _bad_count(field, error.shown, "must be an integer")
    if count < 0:
        return _bad_count(field, str(amount), "must be greater than or equal to 0")
    if requested != count:
        return _bad_count(field, str(requested), f"must be equal to {name} limit of {count}")
    return count


def _bad_count(field: str, value: str, rule: str) -> Refusal:
    return Refusal(
        code=Mistake.MALFORMED,
        field=field,
        value=shown(value),
        message=f"{field} {rule}, it is {shown(value)}",
        allowed="a whole number, the same in limits and requests",
    )
