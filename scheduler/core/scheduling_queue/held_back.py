"""Groups that sleep because their queue holds them back, or because nodes are reserved for others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, NamedTuple, Protocol

from scheduler.core.model.priority_order import Rank
from scheduler.core.model.quota import Resources
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.pod_places import PodPlaces
from scheduler.core.queues.accounts import Use
from scheduler.core.queues.reserved_nodes import NodeReserve
from scheduler.core.queues.tree import Tree
from scheduler.core.scheduling_queue.hints import passing
from scheduler.core.scheduling_queue.signatures import ShapeKey
from scheduler.core.scheduling_queue.unschedulable import LOOKED_AT, Kept, KeptGang, Unschedulable, depends_on_all
from scheduler.core.scheduling_queue.verdicts import Key

Item = ShapeKey | Key

#: The fewest that wake at once: the first may fit on no node, and the next is then decided on with it.
_AT_LEAST: Final = 32
#: Places of what has left are not removed from a line while they are fewer than this.
_FEW: Final = 64


class Room(Protocol):
    """What queues have left."""

    def room_for(self, use: Use) -> int:
        """How many times a queue may take a use."""
        ...


class _Place(NamedTuple):
    """Where an item stands. No two have the same number, so that places are compared, and items never are."""

    rank: Rank
    number: int
    item: Item


@dataclass(slots=True)
class _Line:
    """All that would use the same. ``places``: a heap, from which what has left is not taken out at once."""

    places: list[_Place] = field(default_factory=list)
    waiting: int = 0


@dataclass(slots=True)
class OverQuota:
    """Who sleeps for which use. Those that would use the same in one queue are in one line, by rank.

    When the queue may take some of them, the first few wake, or as many as it may take: of ten thousand that wait at a
    limit, a GPU that comes free wakes some thirty.

    What something uses may depend on its node. ``elsewhere``: of those that sleep for a use that they have on the nodes
    which they could have gone to, that nothing else will do as of then: on another node they may use less.
    """

    _is_more: bool = False
    #: Who was woken last, and for which use.
    _woken: dict[Item, Use] = field(default_factory=dict)
    _use_of: dict[Item, Use] = field(default_factory=dict)
    _place_of: dict[Item, _Place] = field(default_factory=dict)
    _numbers: int = 0
    elsewhere: dict[Item, Kept | KeptGang] = field(default_factory=dict)
    #: Those in which somebody stands.
    _lines: dict[Use, _Line] = field(default_factory=dict)
    #: What the uses and refusals of the last decision depended on beside what is held: the tree, and sizes of cards.
    _ground: tuple[Tree, Hashable] | None = None
    #: Of what queues have, as of the last decision.
    _version: int = 0
    #: The version that each was told, those told longest ago first.
    _told_of: dict[Item, int] = field(default_factory=dict)

    def __contains__(self, item: Item) -> bool:
        return item in self._use_of

    def __len__(self) -> int:
        return len(self._use_of)

    @property
    def kept(self) -> int:
        """How many places are kept, those of what has left included."""
        return sum(len(line.places) for line in self._lines.values())

    @property
    def have_more(self) -> bool:
        """Whether a queue may take more than were woken last.

        Not if all of these were held back again: who stands behind them would be by the same that is held for others
        (a device that is on its way back, members of a gang that starts).
        """
        return self._is_more and any(self._use_of.get(item) != use for item, use in self._woken.items())

    def put(self, item: Item, rank: Rank, use: Use, elsewhere: Kept | KeptGang | None = None) -> None:
        """Have it sleep until its queue may take this use, or it may go elsewhere. It was told just now."""
        known = self._place_of.get(item)
        if known is None or (known.rank, self._use_of[item]) != (rank, use):
            self._place(item, rank, use)
        self._told_of.pop(item, None)
        self._told_of[item] = self._version
        self.elsewhere.pop(item, None)
        if elsewhere is not None:
            self.elsewhere[item] = elsewhere

    def _place(self, item: Item, rank: Rank, use: Use) -> None:
        self._leave(item)
        self._numbers += 1
        place = self._place_of[item] = _Place(rank, self._numbers, item)
        self._use_of[item] = use
        line = self._lines.setdefault(use, _Line())
        line.waiting += 1
        heappush(line.places, place)
        if len(line.places) > 2 * line.waiting + _FEW:
            line.places = list(filter(self._stands, line.places))
            heapify(line.places)

    def raise_rank(self, item: Item, rank: Rank) -> None:
        """A pod has joined a shape: it may stand further ahead."""
        known = self._place_of.get(item)
        if known is not None and rank < known.rank:
            self._place(item, rank, self._use_of[item])

    def drop(self, item: Item) -> None:
        """It sleeps no more, or not for its queue."""
        self._leave(item)
        self._told_of.pop(item, None)
        self.elsewhere.pop(item, None)

    def _leave(self, item: Item) -> None:
        use = self._use_of.pop(item, None)
        if use is None:
            return
        del self._place_of[item]
        line = self._lines[use]
        line.waiting -= 1
        if not line.waiting:
            del self._lines[use]

    def waiting(self) -> Iterator[tuple[Item, Use, Rank]]:
        """All that sleep, with what they would use and where they stand."""
        return ((item, use, self._place_of[item].rank) for item, use in self._use_of.items())

    def outdated(self, count: int) -> list[Item]:
        """Those that were told longest ago, as far as what queues have has changed since.

        None while a queue may take more of them: those have their turn first.
        """
        if self.have_more:
            return []
        first = islice(self._told_of, LOOKED_AT * count)
        return list(islice((item for item in first if self._told_of[item] != self._version), count))

    def due(self, tree: Tree, cards: Hashable, accounts: Callable[[], Room], *, version: int = 0) -> list[Item]:
        """Take out those that queues may take now; before each decision. ``version``: of what queues have.

        All of them after a queue has changed, or ``cards``, the sizes by which memory of a GPU counts: what each was
        told may be wrong.
        """
        self._version = version
        if self._ground is None or tree is not self._ground[0] or cards != self._ground[1]:
            self._ground, self._is_more = (tree, cards), False
            found = list(self._use_of)
            for item in found:
                self.drop(item)
            return found
        return list(self._first(accounts().room_for)) if self._lines else []

    def may_go_elsewhere(self, unschedulable: Unschedulable, generation: int) -> list[Item]:
        """Those that nodes may take now where they use less than their queue has refused."""
        return [item for item in [*self.elsewhere] if self._may_go_elsewhere(item, unschedulable, generation)]

    def _may_go_elsewhere(self, item: Item, unschedulable: Unschedulable, generation: int) -> bool:
        known = self.elsewhere[item]
        still: Kept | KeptGang | None
        if isinstance(known, KeptGang):
            still = known if unschedulable.is_sure_gang(known, generation) else unschedulable.still_out_gang(known)
        else:
            cls = known.needs.cls
            still = known if unschedulable.is_sure(cls, known, generation) else unschedulable.still_out(cls, known)
        if still is not None:
            self.elsewhere[item] = still
        return still is None

    def _first(self, may_take: Callable[[Use], int]) -> Iterator[Item]:
        self._is_more, self._woken = False, {}
        for use in list(self._lines):
            times = may_take(use)
            for _ in range(max(times, _AT_LEAST) if times else 0):
                if use not in self._lines:
                    break
                item = self._pop(self._lines[use])
                self._woken[item] = use
                yield item
            self._is_more |= times > 0 and use in self._lines

    def _pop(self, line: _Line) -> Item:
        """Take out the first of a line."""
        while not self._stands(place := heappop(line.places)):
            pass
        self.drop(place.item)
        return place.item

    def _stands(self, place: _Place) -> bool:
        return self._place_of.get(place.item) is place


class Off(NamedTuple):
    """Why something is kept off. ``queue``: its own; ``use``: what it would use there next.

    ``reserves``: which keep it off. ``asks``: what it asks, equal where all else is.
    """

    queue: str
    use: Resources
    reserves: tuple[NodeReserve, ...]
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
    """Groups that are kept off reserved nodes (queues/reserved_nodes.py): they would fit there, and nowhere else.

    Each wakes when the reservations change, when its queue may use them after all, when another node got something that
    may help it, or when rules about other pods may have opened another node to it. ``reserves``: as of the last
    decision. ``places``: which pods are where; None: nobody knows.
    """

    ledger: Ledger
    places: Callable[[], PodPlaces] | None = None
    reserves: tuple[NodeReserve, ...] = ()
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

    def due(self, reserves: tuple[NodeReserve, ...], is_starved: Callable[[str, Resources], bool]) -> list[Item]:
        """Those that may be placed now; before each decision. ``is_starved``: of a queue, and a use."""
        if reserves != self.reserves:
            self.reserves = reserves
            return list(self._of)
        return [
            item
            for off, alike in self._alike.items()
            if self._may_enter(off, is_starved) or self._may_fit_elsewhere(off, alike)
            for item in alike.items
        ]

    def _may_enter(self, off: Off, is_starved: Callable[[str, Resources], bool]) -> bool:
        of_others = [reserve for reserve in off.reserves if reserve.queue != off.queue]
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
        nodes = {name for reserve in off.reserves for name in reserve.nodes}
        rows = [row for row in changes.helped_since(alike.sure_at) if not self._is_of(row, nodes)]
        if passing(self.ledger, kept.needs, rows):
            return True
        alike.sure_at = changes.last
        return False

    def _is_of(self, row: int, nodes: set[str]) -> bool:
        node = self.ledger.nodes[row]
        return node is None or node.name in nodes
