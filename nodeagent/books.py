"""The reservations of this node with their books, as the API server shows them: who holds what of its GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from gpu import reservation
from gpu.reservation import Reservation
from kube.watch.reflector import Sink
from kube.watch.signal import Signal
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
