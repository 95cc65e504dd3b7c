"""Caps on devices that tenants were given before their reservation named another one.

A kubelet that lost its notes may give reservations other devices, two of them each other's. What a container has was
chosen when it started, so its processes stay where they are until healing has ended the pod. Its cap holds there as
well, and on the new device, where a pod that was bound meanwhile is. Both are what the pod asked for itself.

Known since the agent was started: an agent that starts after the change caps tenants on the new device alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from gpu.reservation import Reservation
from nodeagent.core.caps import Tenancy

#: Devices of one tenant of a reservation: who writes what a reservation holds may change it without end.
_MOST: Final = 8
#: A tenant of a reservation: the UID of this, of the pod, and its attempt.
_Entry = tuple[str, str, str]


class FormerDevices:
    """Remembers on which devices each entry of a book had a cap."""

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
