"""The normal form of a GPU request: which container wants what of how many devices.

Every dialect translates into this form (gpu/dialects/), and everything downstream reads only this form. It is a tuple
of container requests, each a tuple of asks, one ask a device: so several containers, unequal shares on several devices,
caps and compute modes are new values here and not a new shape.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec

from gpu.share import NANO_PER_DEVICE, nano_from_memory


def effective(regular: Iterable[int], init: Iterable[tuple[int, bool]]) -> int:
    """Return the most of a resource that a pod uses at one time, as kubelet and kube-scheduler count it (KEP-753).

    ``regular`` containers run together. ``init`` containers run one after the other, in their order, before them; each
    is given as (amount, whether it is a sidecar), and a sidecar goes on running beside all that starts after it.
    """
    sidecars = peak = 0
    for amount, is_sidecar in init:
        peak = max(peak, sidecars + amount)
        if is_sidecar:
            sidecars += amount
    return max(peak, sidecars + sum(regular))


#: The highest index that a device of a node can have: a bound against numbers that nobody means.
MOST_INDEX: Final = 255


class ContainerKind(enum.Enum):
    """Which list of the pod spec a container stands in. The value is the prefix of its key on the wire."""

    REGULAR = "c"
    INIT = "i"


class ContainerRef(msgspec.Struct, frozen=True, gc=False):
    """One container of a pod by kind and index; names are for people, the key is for the wire."""

    kind: ContainerKind
    index: int
    name: str = ""

    @property
    def key(self) -> str:
        """``c0`` or ``i1``: the suffix of the annotation that its env reads, and of KAI's ConfigMap (``0``, ``i1``)."""
        return f"{self.kind.value}{self.index}"


class FractionAsk(msgspec.Struct, frozen=True, gc=False, tag="fraction"):
    """A share of one device: 0 < nano <= 1e9. All of it where a foreign form mixes whole devices with parts.

    ``profile``: the device is a MIG slice of this profile (``1g.5gb``), "" for a card. ``seat``: asks of a pod
    that name the same one get the same device; "" is a device of its own. ``index``: the only device of a node that
    will do, -1 for any. ``compute_percent``: a cap on its compute, 0 for none. ``limit_nano``: the cap on its memory,
    0 for the same.
    """

    nano: int
    seat: str = ""
    index: int = -1
    compute_percent: int = 0
    limit_nano: int = 0
    profile: str = ""


class MemoryAsk(msgspec.Struct, frozen=True, gc=False, tag="memory"):
    """Memory of one card in MiB, > 0; what it costs depends on the card. ``limit_mib``: the cap, 0 for the same.

    The other fields are those of FractionAsk.
    """

    mem_mib: int
    limit_mib: int = 0
    seat: str = ""
    index: int = -1
    compute_percent: int = 0

    @property
    def profile(self) -> str:
        """Memory is asked of cards only."""
        return ""


class WholeAsk(msgspec.Struct, frozen=True, gc=False, tag="whole"):
    """One whole device, handed out by the vendor's device plugin."""


class MigAsk(msgspec.Struct, frozen=True, gc=False, tag="mig"):
    """One whole MIG slice of this profile (``1g.5gb``), handed out by the vendor's device plugin."""

    profile: str


SharedAsk = FractionAsk | MemoryAsk
Ask = FractionAsk | MemoryAsk | WholeAsk | MigAsk


class ContainerRequest(msgspec.Struct, frozen=True, gc=False):
    """What one container asks: one ask per device, all on one node and all on distinct devices."""

    container: ContainerRef
    asks: tuple[Ask, ...]
    #: An init container that goes on running beside the regular ones (``restartPolicy: Always``).
    is_sidecar: bool = False

    @property
    def whole(self) -> int:
        """Number of whole devices that this container asks."""
        return sum(isinstance(ask, WholeAsk) for ask in self.asks)


class GpuRequest(msgspec.Struct, frozen=True, gc=False):
    """What a pod asks: regular containers first, each kind in the pod's order. None of them: a pod without GPUs."""

    containers: tuple[ContainerRequest, ...] = ()

    @property
    def shared(self) -> tuple[SharedAsk, ...]:
        """What is asked of each device that is needed in part, in container and device order.

        Asks with one seat are one ask here, for as much as is in use at one time.
        """
        asks = tuple(ask for c in self.containers for ask in c.asks if isinstance(ask, (FractionAsk, MemoryAsk)))
        if not any(ask.seat for ask in asks):
            return asks
        devices: dict[int, list[tuple[ContainerRequest, SharedAsk]]] = {}
        for number, container, ask in self._seated():
            devices.setdefault(number, []).append((container, ask))
        return tuple(_together(seated) for seated in devices.values())

    def devices(self) -> dict[ContainerRef, tuple[int, ...]]:
        """Where ``shared`` has the devices of each container with shares, in the order of its asks."""
        found: dict[ContainerRef, list[int]] = {}
        for number, asking, _ in self._seated():
            found.setdefault(asking.container, []).append(number)
        return {ref: tuple(numbers) for ref, numbers in found.items()}

    def _seated(self) -> Iterator[tuple[int, ContainerRequest, SharedAsk]]:
        """Asks for a part of a device, with the number of that device."""
        numbers: dict[str, int] = {}
        devices = 0
        for container in self.containers:
            for ask in container.asks:
                if not isinstance(ask, (FractionAsk, MemoryAsk)):
                    continue
                number = numbers.setdefault(ask.seat, devices) if ask.seat else devices
                devices += number == devices
                yield number, container, ask

    @property
    def is_shared(self) -> bool:
        """Whether any container asks for a part of a device."""
        return bool(self.shared)

    @property
    def whole(self) -> int:
        """Number of whole devices that the pod needs at one time."""
        return effective(
            (c.whole for c in self.containers if c.container.kind is ContainerKind.REGULAR),
            ((c.whole, c.is_sidecar) for c in self.containers if c.container.kind is ContainerKind.INIT),
        )


NO_GPU = GpuRequest()


def would_hide(asks: Sequence[Ask]) -> bool:
    """Whether a container with these asks could see one of both only: its shares, or what the device plugin gives it.

    One variable has its shares, by us, and the rest, by kubelet. A share of a card and a whole slice never
    meet: nodes with slices share no cards.
    """
    shares = [ask for ask in asks if isinstance(ask, SharedAsk)]
    if shares and any(isinstance(ask, WholeAsk) for ask in asks):
        return True
    return any(ask.profile for ask in shares) and any(isinstance(ask, MigAsk) for ask in asks)


def served(request: GpuRequest) -> dict[str, Counter[Ask | None]]:
    """What each container that asks is made ready for: what the vendor's plugin hands out, and shares at all (None).

    By the container's key. Requests of which one may take the place of another are the same in this.
    """
    return {
        asking.container.key: Counter(
            [ask for ask in asking.asks if not isinstance(ask, SharedAsk)]
            + [None] * any(isinstance(ask, SharedAsk) for ask in asking.asks)
        )
        for asking in request.containers
    }


def _together(seated: Sequence[tuple[ContainerRequest, SharedAsk]]) -> SharedAsk:
    """One ask for all that one device has to hold at one time.

    Raises ValueError if units, profiles or indexes differ.
    """
    first = seated[0][1]
    if len(seated) == 1:
        return first
    first = msgspec.structs.replace(first, compute_percent=_at_one_time(seated, attrgetter("compute_percent")))
    if len({type(ask) for _, ask in seated}) > 1:
        raise ValueError(f"seat {first.seat}: a fraction and memory can't be added up")
    if len({ask.profile for _, ask in seated}) > 1:
        raise ValueError(f"seat {first.seat}: a device is of one profile")
    if len({ask.index for _, ask in seated}) > 1:
        raise ValueError(f"seat {first.seat}: a device has one index")
    if isinstance(first, FractionAsk):
        nano = _at_one_time(seated, attrgetter("nano"))
        limit_nano = _at_one_time(seated, lambda ask: ask.limit_nano or ask.nano)
        return msgspec.structs.replace(first, nano=nano, limit_nano=limit_nano if limit_nano > nano else 0)
    mem_mib = _at_one_time(seated, attrgetter("mem_mib"))
    limit_mib = _at_one_time(seated, lambda ask: ask.limit_mib or ask.mem_mib)
    return msgspec.structs.replace(first, mem_mib=mem_mib, limit_mib=limit_mib if limit_mib > mem_mib else 0)


def _at_one_time(seated: Sequence[tuple[ContainerRequest, SharedAsk]], amount: Callable[[Any], int]) -> int:
    """What is in use at one time on one seat: the asks of one container together, containers in the pod's order."""
    used: dict[ContainerRef, tuple[int, bool]] = {}
    for container, ask in sorted(seated, key=lambda one: one[0].container.index):
        already = used.get(container.container, (0, False))[0]
        used[container.container] = (already + amount(ask), container.is_sidecar)
    regular = (held for ref, (held, _) in used.items() if ref.kind is ContainerKind.REGULAR)
    return effective(regular, [each for ref, each in used.items() if ref.kind is ContainerKind.INIT])


def charge_nano(ask: SharedAsk, card_mib: int) -> int | None:
    """Nano-GPU that ``ask`` costs on a card of ``card_mib`` (0: unknown); None if that card can't hold it."""
    match ask:
        case FractionAsk(nano=nano):
            return nano if nano <= NANO_PER_DEVICE else None
        case MemoryAsk(mem_mib=mem_mib):
            return nano_from_memory(mem_mib, card_mib)
