"""How many of the pods of a gang the domains of a tree take: class by class, in sums, and which of them are alike.

Both are upper bounds: a domain that they leave out takes not all of the pods, however they are placed. KAI takes the
largest pod of a gang for all of them, and so leaves out domains that would do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from scheduler.core.backlog.asleep import depends_on_all
from scheduler.core.decide.place_bounds import PlaceBound
from scheduler.core.decide.placer import Placer
from scheduler.core.decide.pod_slots import pod_slots
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import DomainRoom
from scheduler.core.nodes.table import CPU, LEFT_MILLI, Int64s
from scheduler.core.snapshot.node_mask import NodeMask
from scheduler.core.topology.topologies import ROOT, Domain, Slots

#: Classes of which bounds are counted; those that ask most come first.
_CLASSES_COUNTED: Final = 16
_BEST: Final = 3


def size(pod: PodRecord) -> tuple[int, ...]:
    """Members that ask most come first."""
    demand, shares = pod.cls.demand, len(pod.cls.request.shared)
    return -demand.gpus, -shares, -demand.cpu_milli, -demand.mem_mib


class DomainRooms:
    """How many of some pods the domains of a tree take, class by class and in sums."""

    __slots__ = ("_alike", "_bound", "_counts", "_instead", "_measure", "_needed", "_per_class", "_placer", "_sums")

    def __init__(
        self,
        placer: Placer,
        bound: PlaceBound,
        needed: Sequence[PodRecord],
        mask: NodeMask,
        *,
        with_idle: bool,
        instead: Sequence[PodRecord] = (),
    ) -> None:
        """``instead``: where others may start in the place of these, all of them."""
        self._placer, self._bound, self._needed = placer, bound, needed
        counts = Counter(pod.cls for pod in sorted(needed, key=size))
        self._counts = dict(list(counts.items())[:_CLASSES_COUNTED])
        per_node = {cls: pod_slots(placer, cls, mask, with_idle=with_idle) for cls in self._counts}
        self._per_class = {cls: Slots(bound.tree, slots) for cls, slots in per_node.items()}
        self._alike = [*per_node.values()]
        others = dict.fromkeys(pod.cls for pod in instead)
        self._instead = self._of_any(others, mask, with_idle=with_idle) if others else None
        is_one = len(counts) == 1
        self._sums = [] if is_one else self._of_sums(per_node, with_idle=with_idle)
        self._measure = self._per_class[next(iter(counts))] if is_one else self._tightness(per_node)

    def _of_any(self, classes: Iterable[PodClass], mask: NodeMask, *, with_idle: bool) -> Slots:
        """How many pods of any of these classes the domains take; of too many classes none is counted."""
        found, placer = np.ones(len(self._bound.tree.order), np.int64), self._placer
        for number, cls in enumerate(classes):
            if number >= _CLASSES_COUNTED:
                return Slots(self._bound.tree, np.ones_like(found))
            slots = pod_slots(placer, cls, mask, with_idle=with_idle)
            self._alike.append(slots)
            found = slots if not number else found + slots
        return Slots(self._bound.tree, found)

    def _of_sums(self, per_node: Mapping[PodClass, Int64s], *, with_idle: bool) -> list[tuple[Slots, int]]:
        """What the nodes have free that any of them may be on, and what all of them ask: CPU, memory and the like."""
        if len(self._counts) >= _CLASSES_COUNTED or with_idle:
            return []
        statement = self._placer.statement
        usable = np.logical_or.reduce([slots > 0 for slots in per_node.values()])
        asked: Counter[int] = Counter()
        for cls, count in self._counts.items():
            for row, amount in statement.amounts(cls.demand):
                asked[row] += amount * count
        free = statement.table.free
        is_plain = all(not (cls.alternatives or cls.backed) for cls in self._counts)
        return [
            (Slots(self._bound.tree, np.where(usable, np.maximum(free[row], 0), 0)), amount)
            for row, amount in asked.items()
            if is_plain
        ]

    def _tightness(self, per_node: Mapping[PodClass, Int64s]) -> Slots:
        """How large a domain counts for unequal pods: by GPUs that are free, or by CPU where none asks them."""
        table = self._placer.statement.table
        usable = np.logical_or.reduce([slots > 0 for slots in per_node.values()])
        asks_gpus = any(cls.demand.gpus or cls.request.is_shared for cls in self._counts)
        free = table.extra[LEFT_MILLI] if asks_gpus else table.free[CPU]
        return Slots(self._bound.tree, np.where(usable, np.maximum(free, 0), 0))

    def fitting(self, level: int) -> Iterator[Domain]:
        """Domains of a level that may take them, the tightest first; where others may do, those that take one."""
        starts, ends = self._bound.tree.levels[level]
        if self._instead is not None:
            fits = self._instead.of_level(level) > 0
        else:
            fits = np.ones(len(starts), np.bool_)
            for cls, count in self._counts.items():
                fits &= self._per_class[cls].of_level(level) >= count
            for sums, amount in self._sums:
                fits &= sums.of_level(level) >= amount
        room = self._measure.of_level(level)
        found = np.flatnonzero(fits)
        tight = (Domain(level, int(starts[at]), int(ends[at])) for at in found[np.argsort(room[found], kind="stable")])
        return self._beside_running(tight, level)

    def _beside_running(self, found: Iterator[Domain], level: int) -> Iterator[Domain]:
        """Where some pods run already: only the domains that hold some of them, those with most of them first."""
        bound = self._bound
        if level == ROOT or not bound.running or (bound.required and not bound.held_by(bound.required)):
            return found
        fitting = {*found}
        return (domain for domain in bound.held_by(level) if domain in fitting)

    def alike(self, domain: Domain) -> Hashable:
        """Equal for domains that take the same pods: what their nodes have, in any order."""
        if any(cls.rules is not None or depends_on_all(cls) for cls in self._counts):
            return domain
        table, order = self._placer.statement.table, self._bound.tree.order[domain.start : domain.end]
        columns = np.concatenate(
            [
                table.free[:, order],
                np.sort(table.share_nano[:, order], axis=0),
                np.sort(table.share_mib[:, order], axis=0),
                table.extra[:, order],
                *(slots[order][None] for slots in self._alike),
            ]
        )
        return domain.level, columns[:, np.lexsort(columns)].tobytes()

    def best(self) -> tuple[DomainRoom, ...]:
        """The domains of the required level with the most room for the pods that find the least."""
        level, least = self._bound.required, None
        for cls, count in self._counts.items():
            part = self._per_class[cls].of_level(level) * len(self._needed) // count
            least = part if least is None else np.minimum(least, part)
        if least is None:
            return ()
        domains = self._bound.tree.domains(level)
        order = np.argsort(-least, kind="stable")[:_BEST].tolist()
        return tuple(
            DomainRoom(self._bound.tree.name(domains[at]), min(int(least[at]), len(self._needed))) for at in order
        )
