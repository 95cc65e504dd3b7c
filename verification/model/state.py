"""A state of the model, and the values of the product's functions that stand for parts of it.

A state is nested tuples of small integers, so that it can be hashed, shared and renamed. Names are integers of disjoint
ranges (``base`` + number), so that one renaming serves every place (canonical.py): a pod's UID, a group, a device, a
reservation's UID, an attempt, a gang's plan, and the resourceVersions of pods and reservations, which carry the UID
that they belong to. Everything below ``NAMES`` is a plain number. Shares are tenths of a device.

For the product's functions names become texts ("p100", "g200", ...), versions decimal numbers, shares nano-GPU. What
the model leaves out has its usual value: no ConfigMaps, no memory asks, nobody's grace period differs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

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
from wire import names

NAMES: Final = 100
POD: Final = 100
GROUP: Final = 200
DEVICE: Final = 300
RESERVATION: Final = 400
ATTEMPT: Final = 500
PLAN: Final = 600
#: A resourceVersion is the UID of its object times this, and a number that grows with each write.
VERSIONS: Final = 100
#: Pods of one name, one after the other: the UID is POD + slot * INCARNATIONS + how often it was made before.
INCARNATIONS: Final = 10

PENDING, RUNNING, ENDED = 0, 1, 2
LIVE, DELETING, FINISHED = 0, 1, 2
PRESENT, AWAY, BACK = 0, 1, 2

Device = tuple[int, int]
"""A group and a share."""
Holding = tuple[int, int, int, int]
"""What a bound pod was given: group, reservation (UID), device, share."""


class Pod(NamedTuple):
    """``grant`` is () while unbound, then (attempt, holdings). ``fences``: attempts that were fenced, the last first.

    ``life``: LIVE, DELETING (bound, its containers still run) or FINISHED (they have terminated).
    """

    uid: int
    rv: int
    grant: tuple[int, tuple[Holding, ...]] | tuple[()] = ()
    fences: tuple[int, ...] = ()
    life: int = LIVE

    @property
    def holdings(self) -> tuple[Holding, ...]:
        """Devices that it was bound with."""
        return self.grant[1] if self.grant else ()


class Entry(NamedTuple):
    """One tenant in a book."""

    uid: int
    attempt: int
    rv: int
    share: int


class Resv(NamedTuple):
    """A reservation pod. ``dev``: what it holds on the machine, 0 if nothing; ``uuid``: what it has announced.

    ``proven``: a pod was bound through this very pod and device, which schedulers may have seen. ``reported``: the
    node agent announced it, before the process ran. ``forced``: deleted by force, so it goes before its device is free.
    """

    uid: int
    rv: int
    book: tuple[Entry, ...]
    dev: int = 0
    uuid: int = 0
    phase: int = PENDING
    deleting: bool = False
    finalized: bool = True
    proven: bool = False
    reported: bool = False
    forced: bool = False


class Request(NamedTuple):
    """A BindRequest; its UID is the attempt. ``plan`` is 0 for a pod alone."""

    attempt: int
    pod: int
    rv: int
    devices: tuple[Device, ...]
    plan: int = 0
    members: int = 1


class Unit(NamedTuple):
    """The binder's state of one attempt (sharing.state.State).

    ``joined``: (group, reservation, rv) each. ``read``: the last quorum read where it still matters. ``failure`` and
    ``phase`` are the product's names. ``listed``: the first of the two LISTs of a verification, (group, reservation).
    """

    request: Request
    phase: str
    rv: int
    joined: tuple[tuple[int, int, int], ...] = ()
    read: Pod | tuple[()] = ()
    tries: int = 0
    failure: str = ""
    disputed: int = 0
    told: int = 0
    listed: tuple[int, Resv] | tuple[()] = ()


class Binder(NamedTuple):
    """One binder process: its units, and the (reservation, device) that it has verified."""

    units: tuple[Unit, ...] = ()
    verified: tuple[tuple[int, int], ...] = ()


class Direct(NamedTuple):
    """A direct attempt on its way in a scheduler (sharing.state.State).

    ``stage``: the phase of the step function, or what its gang is at. ``held``: (group, reservation, uuid, rv) each;
    uuid 0: the reservation showed no device that may be used. ``failed``: it failed, and the pod is read for it.
    """

    stage: str
    attempt: int
    uid: int
    rv: int
    devices: tuple[Device, ...]
    held: tuple[tuple[int, int, int, int], ...] = ()
    may_land: int = 0
    plan: int = 0
    failed: int = 0


class Late(NamedTuple):
    """A write whose outcome nobody waits for any more; it may still land. ``what`` depends on ``kind``."""

    kind: str
    what: tuple[object, ...]


class Left(NamedTuple):
    """What may still go wrong, or be done by users.

    ``node``: PRESENT at first, AWAY while the Node object is gone, then BACK: the same machine, another Node UID.
    """

    deletes: int = 0
    vanishes: int = 0
    recreates: int = 0
    touches: int = 0
    finishes: int = 0
    unreserves: int = 0
    evictions: int = 0
    lates: int = 0
    binder_crashes: int = 0
    scheduler_crashes: int = 0
    silences: int = 0
    refusals: int = 0
    tidies: int = 0
    node_losses: int = 0
    node: int = PRESENT
    swaps: int = 0
    forced: int = 0
    late_words: int = 0


class Ghost(NamedTuple):
    """Containers that outlive their vanished pod; ``seen_bound``: whether anybody saw it bound before."""

    uid: int
    holdings: tuple[Holding, ...]


class World(NamedTuple):
    """Everything. Pods and BindRequests by slot (the pod's name), reservations by group.

    ``left_behind``: reservations (group, device) that were deleted by force, and of which kubelet has not heard: to it
    their names still mean them.
    """

    pods: tuple[Pod | None, ...]
    requests: tuple[Request | None, ...]
    resvs: tuple[Resv | None, ...]
    ghosts: tuple[Ghost, ...]
    late: tuple[Late, ...]
    schedulers: tuple[tuple[Direct, ...], ...]
    binders: tuple[Binder, ...]
    collector: tuple[object, ...]
    plan: tuple[int, tuple[tuple[int, tuple[Device, ...]], ...]] | tuple[()]
    left: Left
    left_behind: tuple[Device, ...] = ()


Step = tuple[tuple[Any, ...], World]
"""A label, and the world after it. A label that begins with "!" is a fault or an accident, no progress."""


def slot_of(uid: int) -> int:
    """The name that a pod's UID had."""
    return (uid - POD) // INCARNATIONS


def owner_of(rv: int) -> int:
    """UID of the object that a resourceVersion belongs to."""
    return rv // VERSIONS


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
