"""Verdicts that are kept: classes and gangs that fitted nowhere, until something changes that may help them.

A class fits if it fits on one node. So a class that fitted nowhere still fits nowhere if no node has changed since in a
way that may help (nodes/ledger.py), or none of those that have changed passes the class's plain sums (hints.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.verdict import Verdict
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.pod_places import PodPlaces
from scheduler.core.nodes.table import Bools
from scheduler.core.scheduling_queue.hints import (
    Columns,
    GangWatch,
    Needs,
    RuleWatch,
    asks_others,
    gang_watch_of,
    has_slots,
    needs_of,
    passing,
    watch_of,
)

GangKey = tuple[str, str]
"""Namespace and name of a PodGroup."""

#: Operations from which on the start of a gang is large.
LARGE: Final = 5_000
_NS_PER_OPERATION: Final = 1_000
#: Failed large starts take one part in this many of the time: those of one namespace, and those of all.
_PARTS_OF_ONE: Final = 5
_PARTS_OF_ALL: Final = 2
#: Pauses are this many times the turns of those that failed before: gangs that were never tried come in between.
_ROUNDS: Final = 2


class _Failed(NamedTuple):
    """A large start that failed: what it cost, and when it may be tried again."""

    cost_ns: int
    until_ns: int


class GangPace:
    """When each gang whose start is large may be tried. Times in nanoseconds, of the clock that decisions are given.

    A gang starts whole or not at all, so one try can't be divided between decisions: 5,000 members take some 200 ms.
    What is bounded is how often a large start may be tried in vain.
    """

    __slots__ = ("_failed", "_of_namespace", "_until_ns")

    def __init__(self) -> None:
        self._failed: dict[GangKey, _Failed] = {}
        #: Namespace -> its last failed start, and when it may try one again.
        self._of_namespace: dict[str, _Failed] = {}
        self._until_ns = 0

    def next_ns(self, key: GangKey) -> int:
        """When a large start of this gang may be tried; 0: at any time."""
        own, namespace = self._failed.get(key), self._of_namespace.get(key[0])
        return max(self._until_ns, own.until_ns if own else 0, namespace.until_ns if namespace else 0)

    @property
    def is_kept(self) -> bool:
        """Whether anything is kept of any gang."""
        return bool(self._failed or self._of_namespace)

    def is_large(self, key: GangKey) -> bool:
        """Whether the last start of this gang failed and was large."""
        return key in self._failed

    def failed(self, key: GangKey, operations: int, now_ns: int) -> None:
        """Note what a start has cost that failed."""
        if operations <= LARGE:
            self._failed.pop(key, None)
            return
        namespace, cost_ns = key[0], operations * _NS_PER_OPERATION
        self._failed[key] = _Failed(cost_ns, 0)
        self._of_namespace[namespace] = _Failed(cost_ns, 0)
        round_ns = _ROUNDS * _PARTS_OF_ALL * sum(failed.cost_ns for failed in self._of_namespace.values())
        own = [failed.cost_ns for (of, _), failed in self._failed.items() if of == namespace]
        pause_ns = _ROUNDS * sum(max(_PARTS_OF_ONE * each_ns, round_ns) for each_ns in own)
        self._failed[key] = _Failed(cost_ns, now_ns + pause_ns)
        self._of_namespace[namespace] = _Failed(cost_ns, now_ns + max(_PARTS_OF_ONE * cost_ns, round_ns))
        self._until_ns = now_ns + _PARTS_OF_ALL * cost_ns

    def keep_only(self, gangs: Collection[GangKey], now_ns: int) -> None:
        """Forget gangs that don't wait any more. A namespace that has none left keeps its pause until it ends."""
        for key in self._failed.keys() - gangs:
            del self._failed[key]
        left = {namespace for namespace, _ in self._failed}
        for namespace in self._of_namespace.keys() - left:
            if self._of_namespace[namespace].until_ns <= now_ns:
                del self._of_namespace[namespace]


#: A PodGroup (namespace, name), or what the gangs of lines ask (gang_signatures.py).
Key = Hashable
#: Of what is kept, this many times as many are looked through for those that are out of date.
LOOKED_AT: Final = 10
_NO_ROWS: Final[frozenset[int]] = frozenset()


@dataclass(frozen=True, slots=True)
class Kept:
    """One class's verdict. ``sure_at``: the last change of the ledger as of which the class fits nowhere for sure.

    ``told_at``: the change that the verdict's counts are of; -1 where the decision had charged pods before.
    ``told_of``: the same of places, for a class with rules about other pods: labels of pods change and no node does.
    ``charged``: rows of those charges. The ledger may have more there, if a charge was on paper only.
    """

    verdict: Verdict
    sure_at: int
    told_at: int
    generation: int
    charged: frozenset[int]
    needs: Needs
    #: What else may help a class with rules about other pods.
    watch: RuleWatch | None = None
    told_of: int = -1


class KeptGang(msgspec.Struct, frozen=True):
    """The verdict on a gang that could not start, good for the very same members. ``sure_at``, ``charged``: as above.

    ``asked``: all that it depends on beside the nodes. ``depends_on_all``: a member's class does, as above.

    ``needs``: of each of its members, if all are of one class that asks one thing: then what fits of them in all is
    what fits on each node, in any order of placing. Of others nobody can tell which change helps them: their
    verdict holds as long as no node changes. ``lacks``: how many more of such members have to find a place than did
    when it was tried; 1 if that is not known. ``more``: rows that got something since, as of ``sure_at`` not enough.

    ``watch``: of one whose members have rules about other pods, what its start reads.
    """

    verdict: Verdict
    asked: Hashable
    depends_on_all: bool
    sure_at: int
    generation: int
    charged: frozenset[int]
    needs: Needs | None
    lacks: int = 1
    more: frozenset[int] = _NO_ROWS
    watch: GangWatch | None = None


class Unschedulable:
    """Kept verdicts, those told longest ago first. ``generation`` is the cluster's."""

    __slots__ = ("_classes", "_gangs", "_ledger", "_places", "_woken", "pace", "woken_in_vain", "woken_to_fit")

    def __init__(self, ledger: Ledger, places: Callable[[], PodPlaces] | None = None) -> None:
        self._ledger = ledger
        self._places = places
        #: Classes that a change woke, until they are judged; how many of those fitted, and how many did not.
        self._woken: set[PodClass] = set()
        self.woken_to_fit = self.woken_in_vain = 0
        self._classes: dict[PodClass, Kept] = {}
        self._gangs: dict[Key, KeptGang] = {}
        #: How often gangs whose start costs much are tried.
        self.pace = GangPace()

    # --- classes -------------------------------------------------------------------------------------------------
    def kept(
        self,
        cls: PodClass,
        verdict: Verdict,
        *,
        charged: Iterable[int],
        generation: int,
        closed: Bools | None = None,
    ) -> Kept:
        """The verdict on a class that fitted nowhere, idle reservations included, as it can be kept.

        ``charged``: rows on which the decision had charged pods before. ``closed``: rows that rules about other pods
        close, if it had moved no pod.
        """
        last, rows = self._ledger.changes.last, frozenset(charged)
        places = self._seen_places()
        watch = watch_of(self._ledger, places, cls, None if rows else closed)
        told_at, told_of = -1 if rows else last, -1 if places is None else places.number
        return Kept(verdict, last, told_at, generation, rows, needs_of(self._ledger, cls), watch, told_of)

    def _seen_places(self) -> PodPlaces | None:
        return None if self._places is None else self._places()

    def put(self, cls: PodClass, kept: Kept) -> None:
        """Keep a verdict, which is reported now."""
        if cls in self._woken:
            self._woken.discard(cls)
            self.woken_in_vain += 1
        self._classes.pop(cls, None)
        self._classes[cls] = kept

    def is_surer(self, cls: PodClass, kept: Kept) -> None:
        """Keep what a comparison has made of a verdict (``still_out``)."""
        self._classes[cls] = kept

    def get(self, cls: PodClass) -> Kept | None:
        """What is kept of a class."""
        return self._classes.get(cls)

    def wakes(self, cls: PodClass) -> None:
        """Forget a class: it fitted."""
        if cls in self._woken:
            self._woken.discard(cls)
            self.woken_to_fit += 1
        self._classes.pop(cls, None)

    def is_woken(self, cls: PodClass) -> None:
        """A class is judged again."""
        self._woken.add(cls)

    def oldest(self, count: int) -> list[PodClass]:
        """Classes whose verdicts were told longest ago, as far as their counts may have changed since."""
        first = islice(self._classes.items(), LOOKED_AT * count)
        return list(islice((cls for cls, kept in first if not self.is_counted(kept)), count))

    def is_counted(self, kept: Kept | None) -> bool:
        """Whether no verdict is kept whose counts may have changed."""
        if kept is None:
            return True
        places = None if kept.watch is None else self._seen_places()
        return kept.told_at == self._ledger.changes.last and (places is None or kept.told_of == places.number)

    def is_sure(self, cls: PodClass, kept: Kept, generation: int) -> bool:
        """Whether the class fits nowhere, as can be told without a look at any node."""
        if kept.charged:
            return False
        if depends_on_all(cls):
            return kept.generation == generation
        if kept.watch is not None and not kept.watch.is_current(self._ledger, self._seen_places()):
            return False
        return not self._ledger.changes.has_helped_since(kept.sure_at)

    def still_out(self, cls: PodClass, kept: Kept, tried: Columns | None = None) -> Kept | None:
        """Compare a class that is not sure with the nodes: its verdict, sure from here on; None if it may fit now.

        ``tried``: what this decision has left so far. A class that fits nowhere only because of that is not sure, and
        what it was told is still right.
        """
        if depends_on_all(cls):
            return None
        watch = None
        if kept.watch is not None and (watch := self._still_closed(kept, kept.watch)) is None:
            return None
        needs = self._as_of_today(kept.needs)
        rows = self._to_look_at(kept)
        found = passing(self._ledger, needs, rows if watch is None else watch.left(rows))
        if found and (tried is None or passing(self._ledger, needs, found, tried)):
            return None
        return replace(kept, sure_at=self._ledger.changes.last, charged=frozenset(found), needs=needs, watch=watch)

    def _still_closed(self, kept: Kept, watch: RuleWatch) -> RuleWatch | None:
        return None if kept.charged else watch.still_closed(self._ledger, self._seen_places())

    def _as_of_today(self, needs: Needs) -> Needs:
        """The same, where a resource has come that no node had before."""
        is_known = needs.resources == len(self._ledger.table.resources)
        return needs if is_known else needs_of(self._ledger, needs.cls)

    def _to_look_at(self, kept: Kept | KeptGang) -> Sequence[int]:
        """Rows on which what did not fit may fit now."""
        rows = self._ledger.changes.helped_since(kept.sure_at)
        known = kept.charged | kept.more if isinstance(kept, KeptGang) else kept.charged
        return sorted(known.union(rows)) if known else rows

    def is_light(self, cls: PodClass, kept: Kept) -> bool:
        """Whether a class may stop being sure without any node having got more."""
        return bool(kept.charged) or depends_on_all(cls) or kept.watch is not None

    # --- gangs ---------------------------------------------------------------------------------------------------
    def kept_gang(
        self,
        verdict: Verdict,
        *,
        asked: Hashable,
        classes: Iterable[PodClass],
        charged: Iterable[int],
        generation: int,
        lacks: int = 1,
    ) -> KeptGang:
        """The verdict on a gang that could not start, as it can be kept. ``charged``: as for classes.

        ``lacks``: how many of its members found no place, where all others that it needs did.
        """
        found = set(classes)
        asks_one = len(found) == 1 and not any(cls.alternatives or cls.places or cls.backed for cls in found)
        is_countable = asks_one and not any(cls.request.is_shared for cls in found)
        rows, is_apart = frozenset(charged), any(map(depends_on_all, found))
        has_rules = any(map(asks_others, found))
        is_watched = has_rules and not (rows or is_apart)
        watch = gang_watch_of(self._ledger, self._seen_places(), found) if is_watched else None
        return KeptGang(
            verdict,
            asked,
            depends_on_all=is_apart or (has_rules and watch is None),
            sure_at=self._ledger.changes.last,
            generation=generation,
            charged=rows,
            needs=needs_of(self._ledger, found.pop()) if asks_one and not has_rules else None,
            lacks=lacks if is_countable else 1,
            watch=watch,
        )

    def put_gang(self, key: Key, kept: KeptGang) -> None:
        """Keep the verdict on a gang."""
        self._gangs[key] = kept

    def get_gang(self, key: Key) -> KeptGang | None:
        """What is kept of a gang."""
        return self._gangs.get(key)

    def is_sure_gang(self, kept: KeptGang, generation: int) -> bool:
        """Whether the gang can't start, as can be told without trying it."""
        if kept.charged:
            return False
        if kept.depends_on_all:
            return kept.generation == generation
        if kept.watch is not None:
            return kept.watch.is_current(self._ledger, self._seen_places())
        if kept.needs is None:
            return kept.sure_at == self._ledger.changes.last
        return not self._ledger.changes.has_helped_since(kept.sure_at)

    def still_out_gang(self, kept: KeptGang) -> KeptGang | None:
        """Compare a gang that is not sure with the nodes, as ``still_out``; None if it may start now."""
        if kept.watch is not None:
            watch = kept.watch.still_same(self._ledger, self._seen_places())
            last = self._ledger.changes.last
            return None if watch is None else msgspec.structs.replace(kept, sure_at=last, watch=watch)
        if kept.needs is None or kept.depends_on_all:
            return None
        needs = self._as_of_today(kept.needs)
        found = passing(self._ledger, needs, self._to_look_at(kept))
        if has_slots(self._ledger, needs, found, kept.lacks):
            return None
        last = self._ledger.changes.last
        return msgspec.structs.replace(kept, sure_at=last, charged=_NO_ROWS, needs=needs, more=frozenset(found))

    def is_light_gang(self, kept: KeptGang) -> bool:
        """Whether a gang's verdict may end without any node having got more."""
        return bool(kept.charged) or kept.needs is None or kept.depends_on_all

    @property
    def size(self) -> int:
        """How many verdicts are kept."""
        return len(self._classes) + len(self._gangs)

    # --- both ----------------------------------------------------------------------------------------------------
    def keep_only(self, classes: set[PodClass], gangs: Set[Key]) -> None:
        """Forget those that no waiting pod has."""
        for cls in self._classes.keys() - classes:
            del self._classes[cls]
        self._woken &= classes
        for key in self._gangs.keys() - gangs:
            del self._gangs[key]


def depends_on_all(cls: PodClass) -> bool:
    """Whether what a class can use is not said by the ledger and other pods: but by devices that it names, volumes."""
    return bool(cls.uuids or cls.not_uuids or cls.attached or cls.unbound or cls.devices or cls.backed) or any(
        ask.index >= 0 for one in cls.requests() for ask in one.shared
    )
