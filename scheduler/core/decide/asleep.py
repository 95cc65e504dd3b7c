"""Verdicts that are kept: classes that fitted nowhere, until something changes that may help them.

A class fits if it fits on one node. So a class that fitted nowhere still fits nowhere if no node has changed since in a
way that may help (changed_nodes.py), or none of those that have changed passes the class's plain sums. The sums are
never too strict: a node that a closer look would refuse may wake the class, one that would take it always does.

Some classes depend on more than single nodes: those that name devices or exclude some, and those whose volumes nodes
limit. Their verdicts hold only as long as nothing at all changes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np

from gpu.request import FractionAsk, SharedAsk
from scheduler.core.decide.gang_pace import GangPace
from scheduler.core.filters.eligibility import OK
from scheduler.core.model.records import PodClass
from scheduler.core.model.verdict import Verdict
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.table import GPUS, IDLE, LEAVING, Bools, Int64s

Key = tuple[str, str]
_NO_ROWS = np.zeros(0, np.int64)


@dataclass(slots=True)
class Kept:
    """One class's verdict. ``sure_at``: the last change of the ledger as of which the class fits nowhere for sure.

    ``told_at``: the change that the verdict's counts are of; -1 where the decision had charged pods before.
    ``charged``: rows of those charges. The ledger may have more there, if a charge was on paper only.
    """

    verdict: Verdict
    sure_at: int
    told_at: int
    generation: int
    charged: Int64s


@dataclass(slots=True)
class KeptGang:
    """A gang's verdict, good for the very same members and an unchanged ledger. ``told_at``: as of a class."""

    verdict: Verdict
    asked: Hashable
    told_at: int
    generation: int


class Asleep:
    """Kept verdicts, those told longest ago first. ``generation`` is the cluster's."""

    __slots__ = ("_classes", "_gangs", "_ledger", "pace")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._classes: dict[PodClass, Kept] = {}
        self._gangs: dict[Key, KeptGang] = {}
        #: How often gangs whose start costs much are tried.
        self.pace = GangPace()

    # --- classes -------------------------------------------------------------------------------------------------
    def put(self, cls: PodClass, verdict: Verdict, *, charged: Iterable[int], generation: int) -> None:
        """Keep the verdict on a class that fitted nowhere, idle reservations included.

        ``charged``: rows on which the decision had charged pods before.
        """
        last, rows = self._ledger.changes.last, np.fromiter(charged, np.int64)
        self._classes.pop(cls, None)
        self._classes[cls] = Kept(verdict, last, -1 if len(rows) else last, generation, rows)

    def get(self, cls: PodClass) -> Kept | None:
        """What is kept of a class."""
        return self._classes.get(cls)

    def wakes(self, cls: PodClass) -> None:
        """Forget a class: it fitted."""
        self._classes.pop(cls, None)

    def oldest(self, count: int) -> set[PodClass]:
        """Classes whose verdicts were told longest ago."""
        return set(islice(self._classes, count))

    def is_sure(self, cls: PodClass, kept: Kept, generation: int) -> bool:
        """Whether the class fits nowhere, as can be told without a look at any node."""
        if len(kept.charged):
            return False
        if _depends_on_all(cls):
            return kept.generation == generation
        return not self._ledger.changes.has_helped_since(kept.sure_at)

    def may_fit(self, cls: PodClass, kept: Kept) -> bool:
        """Whether a class that is not sure may fit now. If it can't, it is sure from here on."""
        changes = self._ledger.changes
        rows = changes.helped_since(kept.sure_at)
        if len(kept.charged):
            rows = np.union1d(rows, kept.charged)
        if _depends_on_all(cls) or _passes(self._ledger, cls, rows).any():
            return True
        kept.sure_at, kept.charged = changes.last, _NO_ROWS
        return False

    # --- gangs ---------------------------------------------------------------------------------------------------
    def put_gang(self, key: Key, verdict: Verdict, *, asked: Hashable, charged: bool, generation: int) -> None:
        """Keep the verdict on a gang that could not start. ``asked``: all that it depends on beside the ledger."""
        last = -1 if charged else self._ledger.changes.last
        self._gangs[key] = KeptGang(verdict, asked, last, generation)

    def get_gang(self, key: Key) -> KeptGang | None:
        """What is kept of a gang."""
        return self._gangs.get(key)

    def is_sure_gang(self, kept: KeptGang, asked: Hashable, generation: int, classes: Iterable[PodClass]) -> bool:
        """Whether the gang can't start, as can be told without trying it."""
        if kept.told_at != self._ledger.changes.last or kept.asked != asked:
            return False
        return kept.generation == generation or not any(map(_depends_on_all, classes))

    @property
    def size(self) -> int:
        """How many verdicts are kept."""
        return len(self._classes) + len(self._gangs)

    # --- both ----------------------------------------------------------------------------------------------------
    def keep_only(self, classes: set[PodClass], gangs: set[Key]) -> None:
        """Forget those that no waiting pod has."""
        for cls in self._classes.keys() - classes:
            del self._classes[cls]
        for key in self._gangs.keys() - gangs:
            del self._gangs[key]


def _depends_on_all(cls: PodClass) -> bool:
    """Whether what a class can use is not said by the ledger alone: by devices that it names, or volumes."""
    return bool(cls.uuids or cls.not_uuids or cls.attached) or any(
        ask.index >= 0 for one in cls.requests() for ask in one.shared
    )


def _passes(ledger: Ledger, cls: PodClass, rows: Int64s) -> Bools:
    """On which rows a class passes the sums: what it needs on any node that takes it."""
    table = ledger.table
    found: Bools = np.zeros(len(rows), np.bool_)
    if len(rows) and all(name in table.resources for name, _ in cls.demand.extended):
        for constraints in cls.all_constraints():
            found |= ledger.eligible(constraints)[rows] == OK
        free, amounts = table.free[:, rows], ledger.amounts(cls.demand, pods=1)
        free[GPUS] += table.extra[IDLE, rows] + table.extra[LEAVING, rows]
        asked = np.flatnonzero(amounts)
        found &= np.logical_and.reduce(free[asked] >= amounts[asked, None], axis=0)
        if not cls.alternatives:
            for ask in cls.request.shared[:1]:
                found &= _takes(ledger, ask, rows) | (free[GPUS] > amounts[GPUS])
    return found


def _takes(ledger: Ledger, ask: SharedAsk, rows: Int64s) -> Bools:
    """On which rows a device that is shared already may take an ask."""
    if ask.profile:
        return np.ones(len(rows), np.bool_)
    table = ledger.table
    if isinstance(ask, FractionAsk):
        fits = table.share_nano[:, rows] >= ask.nano
    else:
        fits = table.share_mib[:, rows] >= ask.mem_mib
    found: Bools = np.logical_or.reduce(fits, axis=0)
    return found
