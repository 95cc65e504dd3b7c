"""Whether nodes other than those that are chosen hold a group, as far as counting tells.

Mostly they do not, and to count is much cheaper than to take the group off. What it leaves is on nodes that it does
not return to. Where rules on labels decide, nothing is counted, as they may change when it goes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from scheduler.core.model.pod_class import PodClass
from scheduler.core.room.slots import slots
from scheduler.core.room.units import Resident
from scheduler.core.snapshot.statement import Statement

#: More pods than that on one node are not told apart, so that sums stay small.
_AS_MANY: Final = 1 << 20


@dataclass(slots=True)
class Elsewhere:
    """``chosen``: names of nodes that take no group. The caller says when the statement has changed."""

    statement: Statement
    chosen: set[str] = field(default_factory=set)
    #: What each node holds of a class, by position, and what all but the chosen ones do, as long as neither changes.
    _held: dict[PodClass, list[int]] = field(default_factory=dict)
    _sum: dict[PodClass, int] = field(default_factory=dict)
    #: Successors of each group, by class.
    _asked: dict[Resident, dict[PodClass, int]] = field(default_factory=dict)

    def has_changed(self) -> None:
        """Forget what nodes hold: something was charged or taken back."""
        self._held.clear()
        self._sum.clear()

    def choose(self, node: str) -> None:
        """No group comes to this node."""
        self.chosen.add(node)
        self._sum.clear()

    def leave(self, node: str) -> None:
        """Groups may come to it again."""
        self.chosen.discard(node)
        self._sum.clear()

    def choose_none(self) -> None:
        """Groups may come to all nodes."""
        self.chosen.clear()
        self._sum.clear()

    def may_hold(self, unit: Resident) -> bool:
        """Whether other nodes than those that are chosen, and than its own, hold as many pods of each class."""
        own = [*map(self.statement.position_of.get, {pod.node for pod in unit.pods} - self.chosen)]
        for cls, count in self._asked_of(unit).items():
            there = self._elsewhere(cls)
            held = self._held[cls]
            if there - sum(held[position] for position in own if position is not None) < count:
                return False
        return True

    def _asked_of(self, unit: Resident) -> dict[PodClass, int]:
        known = self._asked.get(unit)
        if known is None:
            classes = (pod.moves_as for pod in unit.pods)
            known = self._asked[unit] = Counter(cls for cls in classes if cls is not None and cls.rules is None)
        return known

    def _elsewhere(self, cls: PodClass) -> int:
        """What all nodes hold of a class but those that are chosen."""
        known = self._sum.get(cls)
        if known is None:
            if cls not in self._held:
                self._held[cls] = np.minimum(slots(self.statement, cls), _AS_MANY).tolist()
            held, off = self._held[cls], map(self.statement.position_of.get, self.chosen)
            known = self._sum[cls] = sum(held) - sum(held[position] for position in off if position is not None)
        return known
