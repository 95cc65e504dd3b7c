"""A state of the model: nested tuples of small integers, so that it can be hashed, shared and renamed.

Names are integers of disjoint ranges (``base`` + number), so that one renaming serves every place (canonical.py):
a pod's UID, a group, a device, a reservation's UID, an attempt, a gang's plan, and the resourceVersions of pods and
reservations, which carry the UID that they belong to. Everything below ``NAMES`` is a plain number. Shares are tenths
of a device.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

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
