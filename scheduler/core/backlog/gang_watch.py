"""What the start of a gang reads whose members have rules about other pods, so that it is tried again only after that.

No change has a direction that can't help such a gang: a node that lost its room may send the first member elsewhere,
where all fit. What a start reads are the nodes on which a member passes the plain sums, and the pods that a rule or a
preference looks at. While these are as they were, it fails again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec
import numpy as np

from scheduler.core.backlog.rule_watch import MOST_COMPARED
from scheduler.core.backlog.sums import Needs, needs_of, passing
from scheduler.core.filters.pod_rule import Matcher
from scheduler.core.filters.pod_terms import Drawing, TakenByAll, without_key
from scheduler.core.model.pod_class import PodClass
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.pod_places import PodPlaces

#: A gang of more classes is tried again after every change: each class costs a look at all nodes.
_MOST_CLASSES: Final = 32


class GangWatch(msgspec.Struct, frozen=True):
    """As of when a gang was tried. ``seen``: the next change of places; ``sure_at``: the ledger's last one.

    ``regrouped``: as the ledger counts it. ``matchers``: pods that rules and preferences of its members look at; None:
    all pods, as for soft spread. ``usable``: a byte a row, 1 where a member passed the sums. ``needs``: of each class.
    """

    matchers: tuple[Matcher, ...] | None
    needs: tuple[Needs, ...]
    seen: int
    regrouped: int
    sure_at: int
    usable: bytes

    def is_current(self, ledger: Ledger, places: PodPlaces | None) -> bool:
        """Whether no node and no pod has changed since."""
        is_as_seen = places is not None and self.seen == places.number and self.regrouped == ledger.regrouped
        return is_as_seen and self.sure_at == ledger.changes.last

    def still_same(self, ledger: Ledger, places: PodPlaces | None) -> GangWatch | None:
        """The same as of now, if nothing has changed since that a start reads; else None."""
        if places is None or self.regrouped != ledger.regrouped or self._are_pods_others(places):
            return None
        rows = ledger.changes.changed_since(self.sure_at)
        if any(row < len(self.usable) and self.usable[row] for row in rows) or _are_usable(ledger, self.needs, rows):
            return None
        usable = self.usable.ljust(len(ledger.nodes), b"\0")
        last = ledger.changes.last
        return msgspec.structs.replace(self, seen=places.number, sure_at=last, usable=usable)

    def _are_pods_others(self, places: PodPlaces) -> bool:
        """Whether pods came or went that are looked at."""
        if self.matchers is None:
            return self.seen != places.number
        effort = sum(1 + matcher.effort() for matcher in self.matchers)
        changes = places.changes_since(self.seen, MOST_COMPARED // max(1, effort))
        labels_of = places.labels_of
        return changes is None or any(one.takes(pod, labels_of) for pod, _ in changes for one in self.matchers)


def gang_watch_of(ledger: Ledger, places: PodPlaces | None, classes: Collection[PodClass]) -> GangWatch | None:
    """What to watch for a gang that was tried as the ledger has it; None if that takes more than is worth it."""
    if places is None or len(classes) > _MOST_CLASSES:
        return None
    needs = tuple(needs_of(ledger, cls) for cls in classes)
    rows = range(len(ledger.nodes))
    usable = np.zeros(len(rows), np.uint8)
    for each in needs:
        usable[[*passing(ledger, each, rows)]] = 1
    return GangWatch(
        _looked_at(ledger, classes),
        needs,
        places.number,
        ledger.regrouped,
        ledger.changes.last,
        usable.tobytes(),
    )


def _looked_at(ledger: Ledger, classes: Collection[PodClass]) -> tuple[Matcher, ...] | None:
    """The pods that rules look at, or that rank nodes: they may send a member to another node. None: all."""
    found: list[Matcher] = []
    for cls in classes:
        if cls.prefers is not None and cls.prefers.spread:
            return None
        parts = (part.watched for _, part in ledger.filters.parts(cls))
        found += (watched.matcher for watched in parts if watched is not None)
        terms = () if cls.prefers is None else cls.prefers.pod_terms
        found += (TakenByAll((without_key(one.term),), unknown=False) for one in terms)
        found += map(Drawing, cls.drawn_by)
    return tuple(dict.fromkeys(found))


def _are_usable(ledger: Ledger, needs: Iterable[Needs], rows: Sequence[int]) -> bool:
    resources = len(ledger.table.resources)
    as_of_today = (each if each.resources == resources else needs_of(ledger, each.cls) for each in needs)
    return any(passing(ledger, each, rows) for each in as_of_today)
