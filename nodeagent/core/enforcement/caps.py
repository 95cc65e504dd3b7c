"""Who holds what of this node's devices, the memory caps that follow, and by what each cap is enforced. Pure.

A cap exists only where nobody can doubt whose it is: the device is known, its memory is known, one reservation holds
it, and every entry of the pod there has a cap. In doubt there is none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from gpu.book import Entry
from gpu.reservation import Reservation
from gpu.share import mib_of_fraction
from nodeagent.core.enforcement.messages import MOST_CAPS, can_be_capped
from nodeagent.core.enforcement.overuse import Key
from wire.units import SECOND_NS

#: What ends over-use here, as ``status.tenants[].enforced`` of a GpuNode says it.
BY_KILLING: Final = "kill"
#: The driver holds it, by limits that the memory enforcer sets and reads back
#: (nodeagent/core/enforcement/driver_limits.py).
BY_DRIVER: Final = "driver"
#: The strongest first (docs/enforcement.md).
_STRONGEST: Final = (BY_DRIVER, BY_KILLING, "mps", "hami-core")


def strongest(back_ends: Collection[str]) -> str:
    """Return what of these holds a cap best; "" for none of them."""
    return next((name for name in _STRONGEST if name in back_ends), "")


def is_weaker(word: str, than: str) -> bool:
    """Whether what enforces a cap, or nothing, holds it less well than another."""
    return word != than and strongest({word, than}) == than


#: After a loss.
PAUSE_NS: Final = 30 * SECOND_NS
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Steady:
    """What is told of a tenant: ``word`` of ``status.tenants[].enforced``. ``lost_ns``: when a better one was lost."""

    word: str
    lost_ns: int | None = None


def steadied(before: Mapping[_Key, Steady], now: Mapping[_Key, str], now_ns: int) -> dict[_Key, Steady]:
    """Return what is told from now on, of those that are there now. ``now``: what enforces their caps in truth.

    What enforces a cap is not told anew with each look where it comes and goes. A loss is told at once: nobody is said
    to be limited who is not. What is gained within 30 s after a loss is told when they are over. So a tenant whose
    limit alternates costs two writes in 30 s at most, and one that is limited for the first time waits for nothing.
    """
    return {key: _steadied(before.get(key), word, now_ns) for key, word in now.items()}


def _steadied(told: Steady | None, word: str, now_ns: int) -> Steady:
    if told is None:
        return Steady(word)
    if told.word == word:
        return told
    if is_weaker(word, told.word):
        return Steady(word, now_ns)
    is_over = told.lost_ns is None or now_ns - told.lost_ns >= PAUSE_NS
    return Steady(word) if is_over else told


@dataclass(frozen=True, slots=True)
class Tenancy:
    """A pod's part of a device. ``pod``: namespace/name. ``cap_mib``: 0 for none. ``asked_mib``: 0 if not known.

    ``compute_percent``: what it asks of the device's compute, 0 for nothing. ``is_doubtful``: its book has a memory cap
    for it, and what that is here is not known.
    """

    pod_uid: str
    pod: str
    device: str
    nano: int
    asked_mib: int = 0
    cap_mib: int = 0
    mode: str = ""
    compute_percent: int = 0
    is_doubtful: bool = False

    @property
    def key(self) -> Key:
        """Whose and where."""
        return self.pod_uid, self.device


def tenancies(
    held: Iterable[Reservation], memory_mib: Mapping[str, int], *, cap_all: bool = False
) -> tuple[Tenancy, ...]:
    """Read this node's reservations. ``memory_mib``: of its devices, by UUID.

    ``cap_all``: a tenant whose entry has no cap is capped at its charge. Sorted by device and pod.
    """
    live = [one for one in held if one.uuid and one.book is not None and not one.is_terminal]
    holders = Counter(one.uuid for one in live)
    entries: defaultdict[Key, list[Entry]] = defaultdict(list)
    for one in live:
        for pod_uid, entry in (one.book.entries if one.book is not None else {}).items():
            entries[pod_uid, one.uuid].append(entry)
    return tuple(
        _tenancy(key, found, memory_mib.get(key[1], 0), is_sure=holders[key[1]] == 1, cap_all=cap_all)
        for key, found in sorted(entries.items(), key=lambda each: each[0][::-1])
    )


def caps(found: Iterable[Tenancy]) -> dict[Key, int]:
    """Return the caps in MiB; what no memory enforcer would take is left out, so that it takes the others."""
    capped = [(one.key, one.cap_mib) for one in found if one.cap_mib > 0 and can_be_capped(one.pod_uid, one.device)]
    return dict(capped[:MOST_CAPS])


def _tenancy(key: Key, found: list[Entry], memory_mib: int, *, is_sure: bool, cap_all: bool) -> Tenancy:
    nano = sum(entry.nano for entry in found)
    each = [_cap_mib(entry, memory_mib, cap_all=cap_all) for entry in found]
    cap_mib = sum(each) if is_sure and all(each) else 0
    return Tenancy(
        pod_uid=key[0],
        pod=found[0].pod,
        device=key[1],
        nano=nano,
        asked_mib=mib_of_fraction(nano, memory_mib),
        cap_mib=cap_mib,
        mode=found[0].mode,
        compute_percent=sum(entry.compute_percent for entry in found),
        is_doubtful=not cap_mib and any(entry.cap_mib or entry.cap_nano for entry in found),
    )


def _cap_mib(entry: Entry, memory_mib: int, *, cap_all: bool) -> int:
    """What the entry allows; 0 for no cap. Never above the device, where more would be none."""
    if not memory_mib:
        return 0
    if entry.cap_mib:
        return min(entry.cap_mib, memory_mib)
    return mib_of_fraction(entry.cap_nano or (entry.nano if cap_all else 0), memory_mib)


#: Devices of one tenant of a reservation: who writes what a reservation holds may change it without end.
_MOST: Final = 8
#: A tenant of a reservation: the UID of this, of the pod, and its attempt.
_Entry = tuple[str, str, str]


class FormerDevices:
    """Remembers on which devices each entry of a book had a cap.

    A kubelet that lost its notes may give reservations other devices, two of them each other's. What a container has
    was chosen when it started, so its processes stay where they are until healing has ended the pod. Its cap holds
    there as well, and on the new device, where a pod that was bound meanwhile is. Both are what the pod asked for
    itself. That is known since the agent was started: an agent that starts after the change caps tenants on the new
    device alone.
    """

    def __init__(self) -> None:
        self._seen: dict[_Entry, dict[str, Tenancy]] = {}

    def take(self, held: Iterable[Reservation], now: Sequence[Tenancy]) -> tuple[Tenancy, ...]:
        """Take what is held now; return tenants of devices that their reservation does not name any more."""
        capped = {one.key: one for one in now if one.cap_mib}
        before, self._seen = self._seen, {}
        former: list[Tenancy] = []
        for key, device in _entries(held):
            devices = dict(before.get(key, ()))
            tenancy = capped.get((key[1], device))
            if tenancy is not None and (device in devices or len(devices) < _MOST):
                devices[device] = tenancy
            if devices:
                self._seen[key] = devices
                former += [one for one in devices.values() if one.device != device]
        return tuple(former)


def with_former(now: Iterable[Tenancy], former: Iterable[Tenancy]) -> tuple[Tenancy, ...]:
    """Return all who may have a cap. Of two caps of a pod on a device the larger counts; none stays none."""
    found = {one.key: one for one in now}
    for one in former:
        known = found.get(one.key)
        if known is None:
            found[one.key] = one
        elif 0 < known.cap_mib < one.cap_mib:
            found[one.key] = replace(known, cap_mib=one.cap_mib)
    return tuple(found.values())


def _entries(held: Iterable[Reservation]) -> Iterator[tuple[_Entry, str]]:
    """All entries of books, each with the device that its reservation names."""
    for one in held:
        if one.book is not None and not one.is_terminal:
            for pod_uid, entry in one.book.entries.items():
                yield (one.uid, pod_uid, entry.attempt), one.uuid
