"""Which GPUs the node's reservations are opened for, while kubelet has not given them one (docs/design/opening.md).

The reservations of this node with their books, as the API server shows them: who holds what of its GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from typing_extensions import override

from gpu import pinning, reservation
from gpu.pinning import Pin
from gpu.reservation import Reservation
from kube.watch.reflector import Sink
from kube.watch.signal import Signal
from nodeagent.core.devices import Card
from wire import names
from wire.core import Pod


class Books(Sink[Pod, Reservation]):
    """``reservations``: by the pod's UID. ``changed`` is set when one has come, changed or gone."""

    def __init__(self, changed: Signal) -> None:
        self._changed = changed
        self.reservations: dict[str, Reservation] = {}

    def pods(self) -> frozenset[str]:
        """Return the UIDs of all pods that have an entry."""
        books = (one.book for one in self.reservations.values() if one.book is not None)
        return frozenset(uid for book in books for uid in book.entries)

    @override
    def keep(self, obj: Pod) -> Reservation:
        return reservation.read(obj)

    @override
    async def replace(self, kept: Sequence[Reservation]) -> None:
        self.reservations = {one.uid: one for one in kept}
        self._changed.set()

    @override
    def upsert(self, obj: Pod) -> None:
        self.reservations[obj.metadata.uid] = reservation.read(obj)
        self._changed.set()

    @override
    def delete(self, obj: Pod) -> None:
        self.reservations.pop(obj.metadata.uid, None)
        self._changed.set()


#: UID of a reservation, and what it is opened for; None: it is opened for any device, or has one.
_Waits = tuple[str, Pin | None]


class Opening(Sink[Pod, _Waits]):
    """Reservations that wait for a device which a tenant names. A hint for the device plug-in: nothing rests on it."""

    def __init__(self) -> None:
        self._waits: dict[str, Pin] = {}

    def wanted(self, cards: Iterable[Card]) -> frozenset[str]:
        """Return the UUIDs that they name. By index is by the N of /dev/nvidiaN, as tenants mean it."""
        if not self._waits:
            return frozenset()
        indexes = {pin.index for pin in self._waits.values() if pin.index >= 0}
        named = (uuid for pin in self._waits.values() for uuid in pin.uuids)
        return frozenset((*named, *(card.uuid for card in cards if card.minor in indexes)))

    @override
    def keep(self, obj: Pod) -> _Waits:
        read = reservation.read(obj)
        hint = pinning.hinted((obj.metadata.annotations or {}).get(names.OPENED_FOR, ""))
        is_open = not (read.uuid or read.deleting or read.is_terminal or hint.is_any)
        return read.uid, hint if is_open else None

    @override
    async def replace(self, kept: Sequence[_Waits]) -> None:
        self._waits = {uid: pin for uid, pin in kept if pin is not None}

    @override
    def upsert(self, obj: Pod) -> None:
        uid, pin = self.keep(obj)
        if pin is None:
            self._waits.pop(uid, None)
        else:
            self._waits[uid] = pin

    @override
    def delete(self, obj: Pod) -> None:
        self._waits.pop(obj.metadata.uid, None)
