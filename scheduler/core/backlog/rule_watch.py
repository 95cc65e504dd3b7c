"""What may let in a class that rules about other pods keep off nodes: pods that come or go, labels of nodes, taints.

Each part of a rule names the pods whose coming or going matters to it (filters/pod_rule.py). So an event of a pod wakes
those classes only of which a part looks at that pod.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from scheduler.core.filters.pod_rule import Watched
from scheduler.core.model.pod_class import PodClass
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.pod_places import PodPlaces
from scheduler.core.nodes.table import Bools

#: The most comparisons of a pod with selectors that are made for a class; if there are more, it is judged again.
MOST_COMPARED: Final = 500


class RuleWatch(msgspec.Struct, frozen=True):
    """As of when rules were asked. ``seen``: the next change of places; -1: of that nobody can tell.

    ``regrouped``: as the ledger counts it. ``closed``: a byte a row, 0 where rules did not close it; what is
    free on others makes no difference as long as nothing opens them.
    """

    watched: tuple[Watched, ...]
    seen: int
    regrouped: int
    closed: bytes

    def left(self, rows: Iterable[int]) -> list[int]:
        """Those of some rows that rules did not close."""
        return [row for row in rows if row >= len(self.closed) or not self.closed[row]]

    def is_current(self, ledger: Ledger, places: PodPlaces | None) -> bool:
        """Whether nothing has changed since that any rule reads."""
        return places is not None and self.seen == places.number and self.regrouped == ledger.regrouped

    def still_closed(self, ledger: Ledger, places: PodPlaces | None) -> RuleWatch | None:
        """The same as of now, if no node can have been opened since; else None."""
        if places is None or self.seen < 0 or self.regrouped != ledger.regrouped:
            return None
        effort = sum(1 + watched.matcher.effort() for watched in self.watched)
        changes = places.changes_since(self.seen, MOST_COMPARED // max(1, effort))
        if changes is None:
            return None
        for pod, by in changes:
            for watched in self.watched:
                matters = watched.comes if by > 0 else watched.goes
                if matters and watched.matcher.takes(pod, places.labels_of):
                    return None
        return msgspec.structs.replace(self, seen=places.number)


def watch_of(ledger: Ledger, places: PodPlaces | None, cls: PodClass, closed: Bools | None) -> RuleWatch | None:
    """What to watch for a class; None if it asks nothing of other pods.

    ``closed``: the rows that rules close, by pods as ``places`` has them; None: its verdict is of others, placed or
    evicted on paper.
    """
    if not asks_others(cls):
        return None
    parts = (part.watched for _, part in ledger.filters.parts(cls))
    watched = tuple(one for one in parts if one is not None)
    if places is None or closed is None:
        return RuleWatch(watched, -1, ledger.regrouped, b"")
    return RuleWatch(watched, places.number, ledger.regrouped, closed.tobytes())


def asks_others(cls: PodClass) -> bool:
    """Whether rules about other pods may keep a class off nodes."""
    return cls.rules is not None or bool(cls.taken_by)
