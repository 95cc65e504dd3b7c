"""The state for reports: shared devices, their reservations, and whether books agree with bound pods.

Read from the view, so a moment late. Books are ahead of pods on purpose (protocol.md, step 1), so an entry whose pod is
not bound yet is no drift.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping

from binder.watch.view import View
from gpu.reservation import Reservation


class Held(enum.Enum):
    """How a reservation stands. The value is its stable name for machines; the first that fits holds."""

    LEAVING = "leaving"
    #: kubelet has ended it: it holds no device.
    ENDED = "ended"
    #: Its book can't be read: KAI's that is not adopted yet, or a lost one.
    UNREADABLE = "unreadable"
    #: Its device plugin says that the device is unhealthy.
    ILL = "ill"
    #: It has not told its device yet.
    STARTING = "starting"
    #: It has tenants.
    SHARED = "shared"
    IDLE = "idle"


class Drift(enum.Enum):
    """How a bound pod and the books disagree. The value is its stable name for machines."""

    #: Its group has no reservation: its device is unguarded.
    UNRESERVED = "unreserved"
    #: It is missing from the book of its group.
    UNCHARGED = "uncharged"
    #: The book has less for it than it was bound with.
    UNDERCHARGED = "undercharged"
    #: The book has more for it than it was bound with: the difference is nobody's until it is lowered.
    OVERCHARGED = "overcharged"


class BinderState:
    """Reads a view."""

    def __init__(self, view: View) -> None:
        self._view = view

    def groups(self) -> int:
        """How many shared devices there are: with a reservation, or with bound pods that name them."""
        return len({*self._view.reservations, *self._view.bound_groups()})

    def tenants(self) -> int:
        """How many entries books have."""
        return sum(len(held.book.entries) for held in self._view.reservations.values() if held.book is not None)

    def reservations(self) -> Mapping[Held, int]:
        """How many reservations there are in each state."""
        found = Counter(map(held_as, self._view.reservations.values()))
        return {state: found[state] for state in Held}

    def drift(self) -> Mapping[Drift, int]:
        """How many bound pods the books are wrong about, each counted in each of its groups."""
        found = Counter(self._drifts())
        return {kind: found[kind] for kind in Drift}

    def _drifts(self) -> Iterator[Drift]:
        for group in self._view.bound_groups():
            held = self._view.reservations.get(group)
            if held is None or held.book is not None:
                yield from self._drifts_of(group, held)

    def _drifts_of(self, group: str, held: Reservation | None) -> Iterator[Drift]:
        entries = held.book.entries if held is not None and held.book is not None else None
        for pod in self._view.bound_in(group):
            if entries is None:
                yield Drift.UNRESERVED
                continue
            entry = entries.get(pod.uid)
            devices = pod.grant.devices if pod.grant is not None else ()
            granted = next((device.nano for device in devices if device.group == group), None)
            if entry is None:
                yield Drift.UNCHARGED
            elif granted is not None and entry.nano != granted:
                yield Drift.UNDERCHARGED if entry.nano < granted else Drift.OVERCHARGED


def held_as(held: Reservation) -> Held:
    """How a reservation stands."""
    if held.deleting:
        return Held.LEAVING
    if held.is_terminal:
        return Held.ENDED
    if held.book is None:
        return Held.UNREADABLE
    if held.is_ill:
        return Held.ILL
    if not held.is_told:
        return Held.STARTING
    return Held.SHARED if held.book.entries else Held.IDLE
