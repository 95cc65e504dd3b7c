"""Who of those that wait would have a turn after a change of nodes: those that the backlog would wake.

It compares what waits with the nodes that got something (backlog/asleep.py), by sums that are never too strict. So one
may have a turn that fits nowhere, and as the first of its queue it changes which queue is due. Of a gang as many
members have to find a place as found none before.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.core.backlog.asleep import depends_on_all
from scheduler.core.backlog.rule_watch import asks_others
from scheduler.core.backlog.sums import has_slots, needs_of, passing
from scheduler.core.decide import costs
from scheduler.core.decide.placer import Placer
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.records import PodRecord
from scheduler.core.model.steps import Steps


class Waking:
    """One change: ``before`` it nobody who waits would start."""

    def __init__(self, before: Snapshot, changed: Snapshot, now_ns: int) -> None:
        self._before, self._changed, self._now_ns = before, changed, now_ns
        self._placer = Placer(before)
        is_same = before.ledger is changed.ledger
        #: Rows of the nodes that got something.
        self._rows: Sequence[int] = () if is_same else changed.ledger.changes.helped_since(0)

    def wakes_alone(self, pod: PodRecord) -> bool:
        """Whether a pod alone is woken."""
        if not self._rows:
            return False
        cls = self._changed.judged(pod, self._now_ns).cls
        return _depends_on_more(cls) or bool(self._passing(cls))

    def waking_gang(self, members: Sequence[PodRecord], needed: Sequence[PodRecord]) -> Steps[bool]:
        """Whether a gang is woken, in steps. ``needed``: of its members that wait, those with which it starts.

        () if it has started, and waits for more of them.
        """
        if not self._rows:
            return False
        classes = {self._changed.judged(pod, self._now_ns).cls for pod in members}
        if not needed:
            return any(_depends_on_more(cls) or self._passing(cls) for cls in classes)
        cls = next(iter(classes))
        if len(classes) > 1 or cls.alternatives or cls.places or _depends_on_more(cls):
            return True  # nobody can tell which node helps it
        rows = self._passing(cls)
        if not rows or cls.request.is_shared:
            return bool(rows)
        needs = needs_of(self._changed.ledger, cls)
        if has_slots(self._changed.ledger, needs, rows, len(needed)):
            return True
        lacking = yield from self._lacking(needed)
        return has_slots(self._changed.ledger, needs, rows, lacking)

    def _passing(self, cls: PodClass) -> Sequence[int]:
        """Of the nodes that got something those on which a class passes."""
        ledger = self._changed.ledger
        return passing(ledger, needs_of(ledger, cls), self._rows)

    def _lacking(self, needed: Sequence[PodRecord]) -> Steps[int]:
        """How many of these found no place before the change."""
        mark, placed = self._placer.statement.checkpoint(), 0
        for pod in needed:
            if self._placer.place(self._before.judged(pod, self._now_ns)) is None:
                break  # the others request the same
            placed += 1
            yield costs.PLACING
        self._placer.statement.rollback(mark)
        return max(1, len(needed) - placed)


def _depends_on_more(cls: PodClass) -> bool:
    """Whether sums of nodes don't say what may help a class."""
    return depends_on_all(cls) or asks_others(cls)
