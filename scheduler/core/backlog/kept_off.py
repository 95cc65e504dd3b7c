"""Who sleeps because nodes are kept for others (queues/reserved_nodes.py): it would fit there, and nowhere else.

It wakes when the berths change, when its queue may use them after all, when another node got something that may help
it, or when rules about other pods may have opened another node to it. Those that ask the same of the same queue are
compared once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from scheduler.core.backlog.asleep import LOOKED_AT, Kept, depends_on_all
from scheduler.core.backlog.sayings import Key
from scheduler.core.backlog.shape import ShapeKey
from scheduler.core.backlog.sums import passing
from scheduler.core.model.quota import Resources
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.pod_places import PodPlaces
from scheduler.core.queues.reserved_nodes import Berth

Item = ShapeKey | Key


class Off(NamedTuple):
    """Why something is kept off. ``queue``: its own; ``use``: what it would use there next.

    ``berths``: which keep it off. ``asks``: what it asks, equal where all else is.
    """

    queue: str
    use: Resources
    berths: tuple[Berth, ...]
    asks: Hashable


@dataclass(slots=True)
class _Alike:
    """Those of one ``Off``. ``kept``: what one of their pods needs; None: any node that got something may help.

    ``placed_at``: the change of places after which any other may help; None: none does, or ``kept`` says which.
    """

    kept: Kept | None
    sure_at: int
    placed_at: int | None
    items: dict[Item, None] = field(default_factory=dict)


@dataclass(slots=True)
class KeptOff:
    """All of them. ``berths``: as of the last decision. ``places``: which pods are where; None: nobody knows."""

    ledger: Ledger
    places: Callable[[], PodPlaces] | None = None
    berths: tuple[Berth, ...] = ()
    _of: dict[Item, Off] = field(default_factory=dict)
    _alike: dict[Off, _Alike] = field(default_factory=dict)
    #: The change of nodes as of which each was told, those told longest ago first.
    _told_at: dict[Item, int] = field(default_factory=dict)

    def __contains__(self, item: Item) -> bool:
        return item in self._of

    def __len__(self) -> int:
        return len(self._of)

    def put(self, item: Item, off: Off, kept: Kept | None, *, asks_others: bool = False) -> None:
        """Have it sleep. ``kept``: of the only class that it asks, as of now.

        ``asks_others``: of several classes, whether rules about other pods keep one of them off nodes.
        """
        self.drop(item)
        self._of[item] = off
        self._told_at[item] = self.ledger.changes.last
        placed_at = self._places_number if kept is None and asks_others else None
        alike = self._alike.setdefault(off, _Alike(kept, self.ledger.changes.last, placed_at))
        alike.items[item] = None

    @property
    def _places_number(self) -> int:
        return -1 if self.places is None else self.places().number

    def drop(self, item: Item) -> None:
        """It sleeps no more, or not for this."""
        off = self._of.pop(item, None)
        if off is None:
            return
        del self._told_at[item]
        alike = self._alike[off]
        del alike.items[item]
        if not alike.items:
            del self._alike[off]

    def outdated(self, count: int) -> list[Item]:
        """Those that were told longest ago, as far as nodes have changed since: what they say counts nodes."""
        last, first = self.ledger.changes.last, islice(self._told_at, LOOKED_AT * count)
        return list(islice((item for item in first if self._told_at[item] != last), count))

    def due(self, berths: tuple[Berth, ...], is_starved: Callable[[str, Resources], bool]) -> list[Item]:
        """Those that may be placed now; before each decision. ``is_starved``: of a queue, and a use."""
        if berths != self.berths:
            self.berths = berths
            return list(self._of)
        return [
            item
            for off, alike in self._alike.items()
            if self._may_enter(off, is_starved) or self._may_fit_elsewhere(off, alike)
            for item in alike.items
        ]

    def _may_enter(self, off: Off, is_starved: Callable[[str, Resources], bool]) -> bool:
        of_others = [berth for berth in off.berths if berth.queue != off.queue]
        return bool(of_others) and is_starved(off.queue, off.use)

    def _may_have_opened(self, alike: _Alike) -> bool:
        """Whether pods that came or went may have opened a node: it need not have got anything for that."""
        if alike.placed_at is not None:
            return alike.placed_at != self._places_number
        if alike.kept is None or alike.kept.watch is None:
            return False
        still = alike.kept.watch.still_closed(self.ledger, None if self.places is None else self.places())
        if still is not None:
            alike.kept = replace(alike.kept, watch=still)
        return still is None

    def _may_fit_elsewhere(self, off: Off, alike: _Alike) -> bool:
        if self._may_have_opened(alike):
            return True
        changes = self.ledger.changes
        if not changes.has_helped_since(alike.sure_at):
            return False
        kept = alike.kept
        if kept is None or depends_on_all(kept.needs.cls) or kept.watch is not None:
            return True
        if kept.needs.resources != len(self.ledger.table.resources):
            return True
        nodes = {name for berth in off.berths for name in berth.nodes}
        rows = [row for row in changes.helped_since(alike.sure_at) if not self._is_of(row, nodes)]
        if passing(self.ledger, kept.needs, rows):
            return True
        alike.sure_at = changes.last
        return False

    def _is_of(self, row: int, nodes: set[str]) -> bool:
        node = self.ledger.nodes[row]
        return node is None or node.name in nodes
