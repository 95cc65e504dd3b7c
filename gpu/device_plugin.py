"""What a pod asks of the vendor's device plugin, and the asks of a dialect beside that.

The vendor's resources are no dialect's: every one of them finds them beside its own words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from gpu.request import (
    Ask,
    ContainerKind,
    ContainerRef,
    ContainerRequest,
    FractionAsk,
    GpuRequest,
    MigAsk,
    SharedAsk,
    WholeAsk,
    would_hide,
)
from gpu.share import NANO_PER_DEVICE
from gpu.translation import Mistake, Refusal, ResourceEdit, shown
from wire import names
from wire.core import Container, PodSpec
from wire.quantity import MalformedQuantity, whole

#: Most devices, or slices of one profile, that one container may ask: a bound on what a request can cost us, and on
#: what its Binding writes (gpu/bound_pod.py). No node has as many.
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


Asks = Mapping[ContainerRef, tuple[Ask, ...]]

#: Most devices and slices that all containers of a pod may ask together. A Binding has no room for as many shares
#: (gpu/bound_pod.py), but that is known only at the end, and a pod of a few lines may ask for a million.
MOST_ASKS: Final = 384


class Assembled(msgspec.Struct, frozen=True, gc=False):
    """The request of the whole pod, and the edits of ``nvidia.com/gpu`` that it needs."""

    request: GpuRequest
    edits: tuple[ResourceEdit, ...] = ()


def assembled(
    spec: PodSpec,
    asks: Asks,
    *,
    key: str,
    owned: Collection[ContainerRef] = (),
    replaced: Collection[tuple[ContainerRef, str]] = (),
) -> Assembled | Refusal:
    """Put ``asks`` beside MIG slices.

    ``key`` names them to people. In ``owned`` containers the dialect has read the count of whole GPUs itself;
    ``replaced`` are resources of which it makes something else.

    Two rules of docs/design/dialects.md hold for every dialect whose resources are its own:

    - whole devices alone are asked of the vendor's plugin in its own words, so ``nvidia.com/gpu`` is set to their
      number;
    - beside a share they are shares of a whole device, since one ledger has to hold both.

    A count of ``nvidia.com/gpu`` that says something else is refused, unless the dialect owns it. Equal counts pass, so
    a pod that was through admission once reads the same again.
    """
    asks = _of_one_kind(asks)
    owned = frozenset(owned)
    requests: list[ContainerRequest] = []
    edits: list[ResourceEdit] = []
    for ref, container in containers(spec):
        mine = asks.get(ref, ())
        asked = plugin_asks(ref, container)
        if isinstance(asked, Refusal):
            return asked
        edit = _edit(ref, asked, mine)
        if edit is not None and ref not in owned and names.GPU_RESOURCE in plugin_resources(container):
            return beside_whole(ref, container, key)
        if edit is not None:
            edits.append(edit)
        everything = (*mine, *(ask for ask in asked if _is_slice(ask, ref, replaced)))
        if would_hide(everything):
            return _hidden(ref, key)
        if len(everything) > MOST_DEVICES:
            return too_many(f"{key} of container {ref.name}", f"for {len(everything)} devices")
        if everything:
            requests.append(ContainerRequest(ref, everything, is_sidecar(ref, container)))
    if (refusal := too_many_together(key, sum(len(asking.asks) for asking in requests))) is not None:
        return refusal
    return Assembled(GpuRequest(tuple(requests)), tuple(edits))


def reassembled(made: GpuRequest, asks: Asks, ways: Iterable[Asks]) -> Iterator[GpuRequest]:
    """``made`` of ``asks`` with each of ``ways`` in their place: the same served by no more devices.

    The ways are of the same containers and kinds, so what stands beside them is the same, and so are the edits.
    """
    beside = [(asking, asking.asks[len(asks.get(asking.container, ())) :]) for asking in made.containers]
    has_whole = any(isinstance(ask, WholeAsk) for mine in asks.values() for ask in mine)
    for way in ways:
        mine = _of_one_kind(way) if has_whole else way
        yield GpuRequest(
            tuple(
                [
                    ContainerRequest(asking.container, (*mine.get(asking.container, ()), *rest), asking.is_sidecar)
                    for asking, rest in beside
                ]
            )
        )


def _hidden(ref: ContainerRef, key: str) -> Refusal:
    return Refusal(
        code=Mistake.CONFLICTING,
        field=f"{key} of container {ref.name}",
        value="",
        message=f"container {ref.name} asks for a part of a MIG slice and for whole devices, and could see one of both",
        allowed="parts of slices and whole devices in containers of their own",
    )


def _is_slice(ask: Ask, ref: ContainerRef, replaced: Collection[tuple[ContainerRef, str]]) -> bool:
    return isinstance(ask, MigAsk) and (ref, names.MIG_RESOURCE_PREFIX + ask.profile) not in replaced


def _of_one_kind(asks: Asks) -> Asks:
    """Whole devices beside shares of such, in any container of the pod, are shares of 10^9 nano."""
    if not any(isinstance(ask, SharedAsk) and not ask.profile for mine in asks.values() for ask in mine):
        return asks
    whole = FractionAsk(NANO_PER_DEVICE)
    return {ref: tuple(whole if isinstance(ask, WholeAsk) else ask for ask in mine) for ref, mine in asks.items()}


def _edit(ref: ContainerRef, asked: tuple[Ask, ...], mine: tuple[Ask, ...]) -> ResourceEdit | None:
    """What makes the count of whole GPUs in the container's limits that of the dialect's whole devices."""
    have = sum(isinstance(ask, WholeAsk) for ask in asked)
    want = sum(isinstance(ask, WholeAsk) for ask in mine)
    return None if have == want else ResourceEdit(ref, names.GPU_RESOURCE, want or None)


def too_many_together(key: str, count: int) -> Refusal | None:
    """Refuse more devices than the containers of a pod may have; None within the limit.

    For who looks for ways to serve them: before it does.
    """
    if count <= MOST_ASKS:
        return None
    return Refusal(
        code=Mistake.TOO_MANY,
        field=key,
        value=str(count),
        message=f"the containers ask for {count} devices together, by {key}",
        allowed=f"at most {MOST_ASKS} in a pod",
    )


def beside_whole(ref: ContainerRef, container: Container, key: str) -> Refusal:
    """Refuse a count of whole GPUs beside another way to ask for devices."""
    return Refusal(
        code=Mistake.CONFLICTING,
        field=f"{names.GPU_RESOURCE} of container {ref.name}",
        value=shown(str(plugin_resources(container)[names.GPU_RESOURCE])),
        message=f"cannot have both {key} and {names.GPU_RESOURCE} in a pod",
        allowed=f"either {key} or {names.GPU_RESOURCE}",
    )


def taken_out(spec: PodSpec, own: Sequence[str]) -> tuple[ResourceEdit, ...]:
    """Take a dialect's own resources out of the containers that name them.

    No node has any, so a pod that keeps them waits for ever; and a kubelet that once had the origin's plugin keeps them
    at 0 and refuses such pods.
    """
    place = {name: number for number, name in enumerate(own)}
    return tuple(
        ResourceEdit(ref, name, None)
        for ref, container in containers(spec)
        for name in sorted(amounts(container).keys() & place.keys(), key=place.__getitem__)
    )
