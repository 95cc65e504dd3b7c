"""What a decision knows of classes of pods: those that fit nowhere, and those for which nothing makes room.

Pods of one class are judged once: after one of them fitted nowhere the others don't either, as long as the decision
only charges, unless they look for others, of which some were placed since. An eviction on paper ends that: what was
learned before one that stands is forgotten (``Statement.evictions``). To lift the charge of an intent does not end it:
its holders are placed at once or it is put back, before all turns, or it is lifted after them (holders.py,
revising.py). A class that fitted nowhere is not judged again by later decisions until something changes that may help
it (backlog/asleep.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from scheduler.core.backlog.asleep import Kept
from scheduler.core.backlog.notes import Notes
from scheduler.core.backlog.sums import Columns
from scheduler.core.decide import costs
from scheduler.core.decide.allowance import Allowance, Limits
from scheduler.core.decide.placer import Placer
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.verdict import Verdict
from scheduler.core.snapshot.statement import Statement

T = TypeVar("T")
#: When a search for devices that was cut short goes on, if nothing happens before.
SEARCHED_ON_NS: Final = 1_000_000_000


class Known(NamedTuple):
    """How much was known at one time."""

    hopeless: int
    roomless: int
    forgotten: int


@dataclass(slots=True)
class KnownClasses:
    """One decision's. ``placer``: of its working copy; None as long as nothing was tried.

    Nothing here refers to what holds it: a cycle would keep the working copy, some MiB, until garbage is looked for.
    """

    snapshot: Snapshot
    limits: Limits
    allowance: Allowance
    notes: Notes
    placer: Placer | None = None
    #: Classes of which a pod was placed.
    fitting: set[PodClass] = field(default_factory=set)
    #: Classes whose verdicts are of this decision.
    judged: set[PodClass] = field(default_factory=set)
    #: At which move of the working copy a class fitted nowhere (snapshot/pod_counts.py).
    _moved_at: dict[PodClass, int] = field(default_factory=dict)
    #: What judging again for the counts has cost.
    _recounting: int = 0
    _hopeless: dict[PodClass, Verdict] = field(default_factory=dict)
    _roomless: dict[PodClass, None] = field(default_factory=dict)
    #: How many evictions stood when both were read last, and how often one of them ended what they say.
    _evictions: int = 0
    _forgotten: int = 0

    @property
    def hopeless(self) -> dict[PodClass, Verdict]:
        """Classes that fit nowhere now."""
        self._forget_what_evictions_ended()
        return self._hopeless

    @property
    def roomless(self) -> dict[PodClass, None]:
        """Classes for which no idle reservations would make room either."""
        self._forget_what_evictions_ended()
        return self._roomless

    def _forget_what_evictions_ended(self) -> None:
        standing = self._standing_evictions
        if standing > self._evictions:
            self._forget()
        self._evictions = standing

    def _forget(self) -> None:
        self._hopeless.clear()
        self._roomless.clear()
        self._forgotten += 1

    @property
    def _standing_evictions(self) -> int:
        statement = self._statement()
        return 0 if statement is None else statement.evictions

    # --- asking --------------------------------------------------------------------------------------------------
    def verdict(self, cls: PodClass, namespace: str) -> Verdict | None:
        """The verdict on a class of which it is known that it fits nowhere, and that nothing makes room for it."""
        if cls in self.hopeless and cls in self.roomless:
            return self.hopeless[cls]
        kept = None if self._standing_evictions else self.notes.kept(cls)
        if kept is None or cls in self.judged or not self.allowance.has_left(namespace):
            return None
        if self._may_fit(cls, kept, namespace):
            return None
        if cls in self.snapshot.recounts.classes and self._recounting < self.limits.retelling:
            self._recounting += costs.of_judging(self.snapshot, cls)
            return None
        self.hopeless[cls] = kept.verdict
        self.roomless[cls] = None
        return kept.verdict

    def _may_fit(self, cls: PodClass, kept: Kept, namespace: str) -> bool:
        asleep = self.snapshot.backlog.asleep
        if asleep.is_sure(cls, kept, self.snapshot.generation):
            return False
        self.allowance.spend(namespace, costs.COMPARING)
        still = asleep.still_out(cls, kept, self._tried())
        if still is not None:
            self.notes.failed(cls, still, is_told=False)
        return still is None

    def _tried(self) -> Columns | None:
        """What is left after all that was charged so far; None while nothing was tried."""
        statement, nodes = self._statement(), self.snapshot.ledger.nodes
        if statement is None:
            return None

        def column_of(row: int) -> int | None:
            node = nodes[row]
            return None if node is None else statement.position_of[node.name]

        return Columns(statement.table, column_of)

    def may_have_opened(self, cls: PodClass) -> bool:
        """Whether pods that were placed since may let in a class that fitted nowhere."""
        statement = self._statement()
        may_open = cls.rules is not None and cls.rules.may_open
        return may_open and statement is not None and self._moved_at.get(cls, 0) != statement.counts.moved

    # --- learning ------------------------------------------------------------------------------------------------
    def fits(self, cls: PodClass) -> None:
        """A pod of a class was placed."""
        self.fitting.add(cls)
        self.notes.fits(cls)

    def failed(self, cls: PodClass, verdict: Verdict) -> None:
        """A pod of a class fits nowhere."""
        self.hopeless[cls] = verdict
        statement = self._statement()
        self._moved_at[cls] = 0 if statement is None else statement.counts.moved

    def has_no_room(self, cls: PodClass) -> None:
        """Nothing makes room for a class either: keep the verdict on it until something changes that may help it."""
        self.roomless[cls] = None
        verdict = self.hopeless.get(cls)
        if verdict is not None:
            self.judged.add(cls)
            self.notes.failed(cls, self.as_of_now(cls, verdict), is_told=True)

    def as_of_now(self, cls: PodClass, verdict: Verdict) -> Kept:
        """A verdict on a class, as it can be kept: it holds for what nodes have now."""
        asleep, placer = self.snapshot.backlog.asleep, self.placer
        charged = set[int]() if placer is None else placer.statement.charged()
        closed = None if placer is None else placer.closed_by_rules(cls)
        return asleep.kept(cls, verdict, charged=charged, generation=self.snapshot.generation, closed=closed)

    def is_cut_short(self, cls: PodClass) -> bool:
        """Whether the search for devices for a class ended before all nodes were looked at: it goes on later."""
        statement = self._statement()
        if statement is None or not (cls.devices or cls.backed):
            return False
        return any(statement.allocating.is_cut_short(way.devices) for way in cls.ways() if way.devices)

    def _statement(self) -> Statement | None:
        return None if self.placer is None else self.placer.statement

    # --- taking back ---------------------------------------------------------------------------------------------
    def checkpoint(self) -> Known:
        """A point to come back to."""
        return Known(len(self.hopeless), len(self.roomless), self._forgotten)

    def rollback(self, mark: Known) -> None:
        """Forget what was learned on top of charges that are taken back."""
        if self._forgotten != mark.forgotten:
            self._forget()
        _cut(self._hopeless, mark.hopeless)
        _cut(self._roomless, mark.roomless)


def _cut(known: dict[PodClass, T], length: int) -> None:
    """Take back what was noted last, until so much is left as there was before."""
    while len(known) > length:
        known.popitem()
