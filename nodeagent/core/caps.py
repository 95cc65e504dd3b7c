"""Who holds what of this node's devices, and the memory caps that follow, from the books of its reservations.

A cap exists only where nobody can doubt whose it is: the device is known, its memory is known, one reservation holds
it, and every entry of the pod there has a cap. In doubt there is none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpu.book import Entry
from gpu.reservation import Reservation
from gpu.share import mib_of_fraction
from nodeagent.core.judging import Key
from nodeagent.core.messages import MOST_CAPS, can_be_capped


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
    """Return the caps in MiB; what no warden would take is left out, so that it takes the others."""
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
