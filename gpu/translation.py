"""What a dialect makes of a pod: its request in the normal form and what else was said, or why it is refused.

Nothing here decides where a pod goes; a node that can't do what is wished is a matter of the scheduler and of the pod's
conditions (docs/design/dialects.md).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

import msgspec

from gpu.request import ContainerRef, GpuRequest


class Mistake(enum.Enum):
    """What kind of mistake was made, over all dialects."""

    #: The request may be right, but this installation doesn't serve it.
    DISABLED = "disabled"
    #: Two requests that exclude each other.
    CONFLICTING = "conflicting"
    #: A request that means something only beside another one, which is missing.
    INCOMPLETE = "incomplete"
    #: A value that can't be read, or is outside of what is allowed.
    MALFORMED = "malformed"
    #: More devices than one container can be given.
    TOO_MANY = "too-many"
    #: More text than an object can hold.
    TOO_LARGE = "too-large"
    #: The container that shall get the devices is not in the pod.
    UNKNOWN_CONTAINER = "unknown-container"


class Refusal(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One refused field: data for programs, and the words that the user sees. A refusal is expected, so it is returned.

    ``value`` is shortened if it was long; ``message`` is the source system's own text where it has one, because people
    search for it. What is allowed is added to it, because those texts often lack that.
    """

    code: Mistake
    field: str
    value: str
    message: str
    allowed: str


def shown(value: str) -> str:
    """Shorten a value for people: an annotation may have 256 KiB."""
    return value if len(value) <= 64 else f"{value[:48]}... ({len(value)} characters)"


def told(refusal: Refusal) -> str:
    """Return a refusal's words: the dialect's own first, since people search for them, then field, value and rule."""
    value = msgspec.json.encode(refusal.value).decode()
    return f"{refusal.message} ({refusal.field} is {value}; allowed: {refusal.allowed})"


class NoteCode(enum.Enum):
    """What has another meaning than its text suggests, or was kept though the origin would have weakened it."""

    #: A count of whole GPUs beside a share, which the share replaces (C8, C10).
    COUNT_DROPPED = "count-dropped"
    #: That count is not what the origin's documents put beside this share (C8).
    COUNT_DIFFERS = "count-differs"
    #: A share was rounded up to one that the origin allows (C6).
    ROUNDED_UP = "rounded-up"
    #: A variable of the pod that would have shown it other devices is overridden (A11).
    VARIABLE_OVERRIDDEN = "variable-overridden"
    #: The origin counted this and then did nothing about it (A9).
    MORE_THAN_ORIGIN = "more-than-origin"
    #: Fewer devices than were asked may be given (I3), or a share may be cut over several (M5).
    WEAKENED = "weakened"
    #: A key that means something else elsewhere, and nothing here (K13).
    NO_EFFECT = "no-effect"
    #: A second dialect asks the same (X3, X4).
    SAID_TWICE = "said-twice"
    #: All the compute of a device is asked, so the device is charged whole, for any amount of memory (H8, V6).
    EXCLUSIVE = "exclusive"
    #: Done as far as the normal form can say it, or not at all: preferences of placement (H14, O14).
    APPROXIMATED = "approximated"
    #: Nodes on which the words would change the containers differently, or are refused (gpu/translate/combine.py).
    LEFT_OUT = "left-out"


#: Of these the pod gets less than its words say, or something in their place; of the others no less.
LOSSES: Final = frozenset(
    {
        NoteCode.COUNT_DROPPED,
        NoteCode.COUNT_DIFFERS,
        NoteCode.VARIABLE_OVERRIDDEN,
        NoteCode.WEAKENED,
        NoteCode.NO_EFFECT,
        NoteCode.APPROXIMATED,
    }
)


class Note(msgspec.Struct, frozen=True, gc=False):
    """One remark. ``instead``: what was made of it, "" where nothing was."""

    code: NoteCode
    field: str
    value: str
    instead: str = ""


class Wishes(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """What a node may be unable to enforce. Kept in the record, told in the pod's condition, never dropped."""

    #: No more memory than was charged, or than the ask's ``limit_mib``.
    memory_cap: bool = False
    #: No more compute than the asks' ``compute_percent``.
    compute_cap: bool = False
    #: How tenants of a device run: ``time-slicing``, ``sm-sharing``, ``mps``, ``hami-core``, ``mig``, or "" for any.
    mode: str = ""


class Cards(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """Which devices will do. Products are parts of the name in lower case; an empty tuple of the first kind is any."""

    products: tuple[str, ...] = ()
    not_products: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    not_uuids: tuple[str, ...] = ()


ANY_CARD = Cards()
#: Products and UUIDs that a pod names at most: each is compared with every device.
MOST_NAMED: Final = 500

#: Labels of a node, sorted by name: all of them.
Labels = tuple[tuple[str, str], ...]


class Place(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """Nodes that a request is for: with all of ``labels``, and not with all of those of one of ``other_than``.

    ``unit``: how amounts are counted there, as in Translation.
    """

    labels: Labels = ()
    other_than: tuple[Labels, ...] = ()
    unit: int = 0

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels is one of them."""
        return _has(labels, self.labels) and not any(_has(labels, other) for other in self.other_than)


def _has(labels: Mapping[str, str], wanted: Labels) -> bool:
    return all(labels.get(key) == value for key, value in wanted)


class ResourceEdit(msgspec.Struct, frozen=True, gc=False):
    """What admission does to limits and requests of a container: set a count of ``resource``, or None to take it out.

    A count of whole GPUs beside a share would make kubelet hand out those as well; whole devices that a foreign form
    asks for are asked of the vendor's plugin in its own words.
    """

    container: ContainerRef
    resource: str
    count: int | None


class EnvEdit(msgspec.Struct, frozen=True, gc=False):
    """A variable that admission sets in a container, because its value is known when the pod comes."""

    container: ContainerRef
    name: str
    value: str


class Translation(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A pod's request, in the normal form.

    ``alternatives`` are whole requests in order of preference, for when ``request`` fits nowhere. ``strategy``:
    ``binpack``, ``spread`` or "" for the cluster's. ``dialect`` is the module's name. ``unit`` is how its amounts were
    counted when the pod came, for what is written back: MiB of one unit (aliyun, volcano) or units of one device
    (metagpu); 0 for what is usual there. ``places``: where ``request`` and each of the alternatives is meant, in this
    order, for a pod that asks for something else on some nodes; empty: everywhere.
    """

    dialect: str
    request: GpuRequest
    alternatives: tuple[GpuRequest, ...] = ()
    strategy: str = ""
    cards: Cards = ANY_CARD
    wishes: Wishes = Wishes()
    notes: tuple[Note, ...] = ()
    unit: int = 0
    places: tuple[Place, ...] = ()
    edits: tuple[ResourceEdit, ...] = ()
    env: tuple[EnvEdit, ...] = ()
    #: Its containers read their memory caps for the driver; never in the record (gpu/limits.py).
    driver_caps: bool = False


class GivenDevice(msgspec.Struct, frozen=True, gc=False):
    """A device as a pod got it, for what is written back. ``mem_mib``: of the whole card. ``nano``: the charge."""

    uuid: str
    index: int
    mem_mib: int
    nano: int


class Written(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the origin's apps and tools read. ``env`` by container key (``c0``); all of it goes into the one Binding."""

    env: Mapping[str, Mapping[str, str]] = {}
    annotations: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
