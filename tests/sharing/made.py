"""Attempts, pods, reservations and worlds for tests of the core, with all that a test doesn't care about filled in."""

from __future__ import annotations

from typing import Any

import msgspec

from gpu.bind_request import PlannedDevice
from gpu.book import Book, Entry
from gpu.grant import DeviceGrant, Grant
from gpu.request import ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest
from gpu.reservation import Reservation
from sharing.attempt import Attempt
from sharing.pods import PodView
from sharing.state import Joined, State, World

HALF = 500_000_000


def request(count: int = 1, nano: int = HALF) -> GpuRequest:
    container = ContainerRef(ContainerKind.REGULAR, 0, "main")
    return GpuRequest((ContainerRequest(container, (FractionAsk(nano),) * count),)) if count else GpuRequest()


def request_of(made: Attempt) -> GpuRequest:
    """What a pod asks that this attempt was made for."""
    container = ContainerRef(ContainerKind.REGULAR, 0, "main")
    asks = tuple(FractionAsk(device.nano) for device in made.devices)
    return GpuRequest((ContainerRequest(container, asks),) if asks else ())


def attempt(name: str = "p", *, groups: tuple[str, ...] = ("g",), **changes: Any) -> Attempt:
    made = Attempt(
        id=f"attempt-{name}",
        namespace="team",
        name=name,
        pod_uid=f"uid-{name}",
        pod_name=name,
        node="node-1",
        rv="10",
        devices=tuple(PlannedDevice(group, HALF) for group in groups),
    )
    return msgspec.structs.replace(made, **changes)


def gang(count: int, **changes: Any) -> list[Attempt]:
    return [attempt(f"p{i}", groups=(f"g{i}",), plan="plan", members=count, **changes) for i in range(count)]


def state(made: Attempt | None = None, **changes: Any) -> State:
    made = made or attempt()
    return msgspec.structs.replace(State(attempt=made, rv=made.rv), **changes)


def joined(made: Attempt, rv: str = "10") -> dict[str, Joined]:
    return {device.group: Joined(f"R-{device.group}", rv) for device in made.devices}


def pod(made: Attempt | None = None, **changes: Any) -> PodView:
    made = made or attempt()
    view = PodView(uid=made.pod_uid, namespace="team", name=made.pod_name, rv="10", request=request(len(made.devices)))
    return msgspec.structs.replace(view, **changes)


def bound(made: Attempt | None = None, **changes: Any) -> PodView:
    """The pod as this attempt's Binding leaves it."""
    made = made or attempt()
    devices = tuple(DeviceGrant(d.group, f"R-{d.group}", f"GPU-{d.group}", d.nano) for d in made.devices)
    grant = Grant(made.id, devices) if devices else None
    groups = tuple(device.group for device in made.devices)
    return pod(made, **{"rv": "11", "node": made.node, "grant": grant, "groups": groups, **changes})


def reservation(group: str = "g", *made: Attempt, **changes: Any) -> Reservation:
    """A learned reservation with these attempts in its book."""
    entries = {one.pod_uid: Entry(HALF, one.id, "10", 0, f"team/{one.pod_name}") for one in made}
    held = Reservation(
        group=group,
        namespace="kai-resource-reservation",
        name=f"gpu-reservation-{group}",
        uid=f"R-{group}",
        rv="20",
        node="node-1",
        phase="Running",
        uuid=f"GPU-{group}",
        index=0,
        mem_mib=0,
        book=Book(entries),
        deleting=False,
        finalized=True,
    )
    return msgspec.structs.replace(held, **changes)


def world(made: Attempt | None = None, *, verified: bool = True, **changes: Any) -> World:
    """All is well: the pod unbound, its reservations learned, their devices nobody else's."""
    made = made or attempt()
    held = {device.group: reservation(device.group, made) for device in made.devices}
    pairs = frozenset((r.uid, r.uuid) for r in held.values()) if verified else frozenset()
    return msgspec.structs.replace(World(pod=pod(made), reservations=held, verified=pairs), **changes)
