"""What a decision supposes of one node: pods that it places there, evicts, and idle devices that it gives back.

And intents whose charge it has taken off, to place their holders.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Final

import msgspec

from gpu.book import Book
from gpu.reservation import Reservation
from scheduler.core.nodes.kept_room import KeptRoom
from scheduler.core.nodes.node_usage import Charge


class Supposed(msgspec.Struct, frozen=True):
    """``evicted``: UIDs of pods. ``retired``: groups whose reservations are on their way out.

    ``lifted``: ids of intents that charge nothing.
    """

    placed: tuple[Charge, ...] = ()
    evicted: Set[str] = frozenset()
    retired: Set[str] = frozenset()
    lifted: Set[str] = frozenset()

    @property
    def only_evicts(self) -> bool:
        """Whether it is nothing but that pods go."""
        return bool(self.evicted) and not (self.placed or self.retired or self.lifted)

    def reservation(self, held: Reservation) -> Reservation:
        """A reservation as it would be."""
        gone = held.group in self.retired
        if held.book is not None and not self.evicted.isdisjoint(held.book.entries):
            left = {uid: entry for uid, entry in held.book.entries.items() if uid not in self.evicted}
            held = msgspec.structs.replace(held, book=Book(left))
        return msgspec.structs.replace(held, deleting=True) if gone else held

    def charges(self, under_way: Iterable[Charge]) -> Iterable[Charge]:
        """What would be under way."""
        return (*(charge for charge in under_way if charge.pod_uid not in self.evicted), *self.placed)

    def kept(self, rooms: Iterable[KeptRoom]) -> list[KeptRoom]:
        """What intents would keep."""
        return [room for room in rooms if room.intent_id not in self.lifted]


#: Nothing is supposed.
AS_IT_IS: Final = Supposed()
