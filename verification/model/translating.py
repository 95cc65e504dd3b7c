"""Between the model's tuples and the values that the product's functions take.

Names become texts ("p100", "g200", ...), versions decimal numbers, shares nano-GPU. What the model leaves out has its
usual value: no ConfigMaps, no memory asks, nobody's grace period differs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

from gpu.attempts import Cause
from gpu.bind_request import PlannedDevice
from gpu.book import Book, Tenant
from gpu.book import Entry as BookEntry
from gpu.grant import DeviceGrant, Grant
from gpu.request import ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest
from gpu.reservation import Reservation
from gpu.share import NANO_PER_DEVICE
from sharing.attempt import Attempt
from sharing.failure import Failure
from sharing.pods import PodView
from sharing.state import Joined, Phase, State
from verification.model.state import FINISHED, LIVE, PENDING, Device, Entry, Pod, Request, Resv, Unit, slot_of
from wire import names

NANO: Final = NANO_PER_DEVICE // 10
NODE: Final = "node"
NAMESPACE: Final = "ns"
_PHASES: Final = (names.PENDING, names.RUNNING, names.FAILED)


def text(name: int) -> str:
    """A name as the product sees it."""
    return str(name)


def name(of: str) -> int:
    """And back."""
    return int(of)


@cache
def request_of(shares: tuple[int, ...]) -> GpuRequest:
    """What a pod with these shares asks."""
    asks = tuple(FractionAsk(share * NANO) for share in shares)
    return GpuRequest((ContainerRequest(ContainerRef(ContainerKind.REGULAR, 0), asks),))


class Translator:
    """``shares`` per pod slot, ``fences_told``: what a pod's annotations tell of its fences (rules.py)."""

    def __init__(
        self, shares: tuple[tuple[int, ...], ...], fences_told: Callable[[tuple[int, ...]], tuple[int, ...]]
    ) -> None:
        self._shares = shares
        self._fences_told = fences_told
        self._pods: dict[Pod, PodView] = {}
        self._resvs: dict[tuple[int, Resv], Reservation] = {}

    def pod(self, pod: Pod) -> PodView:
        """A pod as it is read."""
        view = self._pods.get(pod)
        if view is None:
            view = self._pods[pod] = self._pod(pod)
        return view

    def _pod(self, pod: Pod) -> PodView:
        told = self._fences_told(pod.fences)
        grant = None
        if pod.grant:
            attempt, holdings = pod.grant
            grant = Grant(
                text(attempt), tuple(DeviceGrant(text(g), text(r), text(d), s * NANO) for g, r, d, s in holdings)
            )
        return PodView(
            uid=text(pod.uid),
            namespace=NAMESPACE,
            name=str(slot_of(pod.uid)),
            rv=text(pod.rv),
            node=NODE if pod.grant else "",
            ended=pod.life == FINISHED,
            deleting=pod.life != LIVE,
            groups=tuple(sorted(text(holding[0]) for holding in pod.holdings)),
            grant=grant,
            fenced=text(told[0]) if told else "",
            fenced_before=tuple(map(text, told[1:])),
            request=request_of(self._shares[slot_of(pod.uid)]),
        )

    def resv(self, group: int, resv: Resv) -> Reservation:
        """A reservation pod as it is read."""
        key = (group, resv)
        view = self._resvs.get(key)
        if view is None:
            view = self._resvs[key] = Reservation(
                group=text(group),
                namespace="reservations",
                name=text(group),
                uid=text(resv.uid),
                rv=text(resv.rv),
                node=NODE,
                phase=_PHASES[resv.phase],
                uuid=text(resv.uuid) if resv.uuid else "",
                index=-1,
                mem_mib=0,
                book=book(resv.book),
                deleting=resv.deleting,
                finalized=resv.finalized,
                is_reported=resv.reported and resv.phase == PENDING,
            )
        return view

    def state(self, unit: Unit) -> State:
        """The binder's state of an attempt."""
        return State(
            attempt=attempt(unit.request),
            phase=Phase(unit.phase),
            rv=text(unit.rv),
            joined={text(g): Joined(text(r), text(rv)) for g, r, rv in unit.joined},
            pod=self.pod(unit.read) if unit.read else None,
            tries=unit.tries,
            failure=Failure(cause=Cause(unit.failure)) if unit.failure else None,
            disputed="somebody" if unit.disputed else "",
            has_told=bool(unit.told),
        )


@cache
def attempt(request: Request) -> Attempt:
    """What a BindRequest says."""
    return Attempt(
        id=text(request.attempt),
        namespace=NAMESPACE,
        name=str(slot_of(request.pod)),
        pod_uid=text(request.pod),
        pod_name=str(slot_of(request.pod)),
        node=NODE,
        rv=text(request.rv),
        devices=planned(request.devices),
        plan=text(request.plan) if request.plan else "",
        members=request.members,
    )


def planned(devices: tuple[Device, ...]) -> tuple[PlannedDevice, ...]:
    """Devices as the scheduler hands them over."""
    return tuple(PlannedDevice(text(group), share * NANO) for group, share in devices)


@cache
def book(entries: tuple[Entry, ...]) -> Book:
    """A book as it is read."""
    return Book({tenant(entry).pod_uid: tenant(entry).entry for entry in entries})


@cache
def tenant(entry: Entry) -> Tenant:
    """An entry with its key."""
    pod = f"{NAMESPACE}/{slot_of(entry.uid)}"
    return Tenant(text(entry.uid), BookEntry(entry.share * NANO, text(entry.attempt), text(entry.rv), 0, pod))


def entries(of: Book) -> tuple[Entry, ...]:
    """A book as the model keeps it."""
    return tuple(
        sorted(
            Entry(name(uid), name(entry.attempt), name(entry.rv), entry.nano // NANO)
            for uid, entry in of.entries.items()
        )
    )


_READ_MATTERS: Final = frozenset({Phase.BIND, Phase.RENEW})


def unit(state: State, request: Request, views: Translator, known: Pod | None) -> Unit:
    """The model's form of a state. ``known``: the pod that was just read, if the state holds one.

    The read pod is kept in the phases that look at it; the product replaces it before it looks again in all others.
    """
    keeps = state.pod is not None and state.phase in _READ_MATTERS and known is not None
    return Unit(
        request=request,
        phase=state.phase.value,
        rv=name(state.rv),
        joined=tuple(sorted((name(g), name(j.reservation), name(j.rv)) for g, j in state.joined.items())),
        read=known if keeps and known is not None else (),
        tries=state.tries,
        failure=state.failure.cause.value if state.failure else "",
        disputed=int(bool(state.disputed)),
        told=int(state.has_told),
    )
