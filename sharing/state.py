"""What is known of an attempt while it is carried out, and what may happen next: values of the state machine.

A state is made from the BindRequest alone, so after a crash it starts again from there; all that it learns it can
learn again, because every write on the way is idempotent or preconditioned (docs/design/protocol.md). A direct attempt
ends with its process; what it leaves in books is the collector's to judge.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping

import msgspec

from gpu.grant import Grant
from gpu.request import GpuRequest
from gpu.reservation import Reservation
from gpu.translation import GivenDevice, Translation
from sharing.attempt import Attempt
from sharing.failure import Failure
from sharing.pods import PodView


class Phase(enum.Enum):
    """Where an attempt stands."""

    #: Joining books, waiting for identities, verifying devices, waiting for the other members.
    PREPARE = "prepare"
    #: All joined and verified, and so are all members: the Binding may be posted.
    BIND = "bind"
    #: A Binding was posted and its outcome is not known, or it was refused: only a quorum read settles it.
    SETTLE = "settle"
    #: The pod changed without changing what it asks: our entries move to its new resourceVersion.
    RENEW = "renew"
    #: Bound. The BindRequest goes away.
    CLOSE = "close"
    #: Failed: the BindRequest goes first, so that nobody takes the attempt up again.
    DROP = "drop"
    #: Failed: the pod may still be at our resourceVersion, so a late Binding must be made impossible.
    FENCE = "fence"
    #: Failed: the entries are dead and are taken out.
    LEAVE = "leave"
    END = "end"


class Joined(msgspec.Struct, frozen=True, gc=False):
    """The book of this reservation (UID) has our entry, for this resourceVersion of the pod."""

    reservation: str
    rv: str


class State(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``rv`` is the resourceVersion that the next Binding uses; all of ``joined`` must have it by then.

    ``pod`` is the newest quorum read of the pod, if there was one. ``tries`` counts refused Bindings,
    ``reads`` quorum reads: a pod that others keep changing is read again ever more slowly.
    ``has_told``: the pod was told that it is bound, or nobody needs to.
    ``refused``: what the server said to the last Binding. ``may_land``: a Binding at ``rv`` was not answered.
    ``disputed``: who else claims the device, as the last verification found; "" when it was not asked or nobody does.
    """

    attempt: Attempt
    phase: Phase = Phase.PREPARE
    rv: str
    joined: Mapping[str, Joined] = {}
    pod: PodView | None = None
    tries: int = 0
    reads: int = 0
    failure: Failure | None = None
    has_config_maps: bool = False
    has_told: bool = False
    disputed: str = ""
    refused: str = ""
    may_land: bool = False


class World(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the shell sees, for one attempt. All of it may be late; nothing here alone decides something destructive.

    ``pod``: newest view, from the cache or our own read. ``pod_deleted``: its deletion was seen.
    ``reservations`` by group: newest view, None when none is known; ``lost``: groups whose reservation was seen to go.
    ``verified``: (reservation UID, device UUID) of which no other claim was found by quorum reads.
    ``request_gone``: the BindRequest was seen to go. ``late``: the time to learn a device, or to see all members of
    the gang, is over. ``enforces``: what the node holds pods to (gpu/limits.py); None: the node is not known.
    """

    pod: PodView | None = None
    pod_deleted: bool = False
    reservations: Mapping[str, Reservation | None] = {}
    lost: frozenset[str] = frozenset()
    verified: frozenset[tuple[str, str]] = frozenset()
    request_gone: bool = False
    late: bool = False
    enforces: Collection[str] | None = None


class Join(msgspec.Struct, frozen=True, gc=False):
    """Enter the book of this group's reservation; make the reservation if there is none."""

    group: str


class Verify(msgspec.Struct, frozen=True, gc=False):
    """Look by a quorum LIST for other claims on this reservation's device."""

    group: str


class ReadPod(msgspec.Struct, frozen=True, gc=False):
    """Quorum GET of the pod."""


class WriteConfigMaps(msgspec.Struct, frozen=True, gc=False):
    """Create KAI's two ConfigMaps, whose names begin with ``prefix``, with their final content."""

    grant: Grant
    request: GpuRequest
    prefix: str


class PostBinding(msgspec.Struct, frozen=True, gc=False):
    """POST the Binding at ``rv``. ``taken``: what the pod asks, with the request that ``devices`` were given for."""

    rv: str
    grant: Grant
    taken: Translation
    devices: tuple[GivenDevice, ...]


class TellBound(msgspec.Struct, frozen=True, gc=False):
    """Write the condition PodBound=True (kai-contract 5.2); once, for a reader and not for the protocol."""


class Renew(msgspec.Struct, frozen=True, gc=False):
    """Move our entry in this group's book from exactly ``old_rv`` to ``rv``."""

    group: str
    old_rv: str
    rv: str


class DropRequest(msgspec.Struct, frozen=True, gc=False):
    """Delete the BindRequest by UID."""


class Fence(msgspec.Struct, frozen=True, gc=False):
    """Change the pod at ``rv`` (and no other), so that a Binding at ``rv`` that is still on its way must fail."""

    rv: str
    failure: Failure


class Leave(msgspec.Struct, frozen=True, gc=False):
    """Take our entry (exactly this attempt and ``rv``) out of this group's book."""

    group: str
    rv: str


Action = Join | Verify | ReadPod | WriteConfigMaps | PostBinding | TellBound | Renew | DropRequest | Fence | Leave
