"""Whether nodes other than those that are chosen hold a group, as far as counting tells.

Mostly they do not, and to count is much cheaper than to take the group off. What it leaves is on nodes that it does
not return to. Where rules on labels decide, nothing is counted, as they may change when it goes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from scheduler.core.model.pod_class import PodClass
from scheduler.core.room.kept_slots import KeptSlots
from scheduler.core.room.units import Resident
from scheduler.core.snapshot.statement import Statement


@dataclass(slots=True)
class Elsewhere:
    """``slots``: of that statement. ``chosen``: names of nodes that take no group."""

    statement: Statement
    slots: KeptSlots
    chosen: set[str] = field(default_factory=set)
    #: Successors of each group, by class.
    _asked: dict[Resident, dict[PodClass, int]] = field(default_factory=dict)

    def choose(self, node: str) -> None:
        """No group comes to this node."""
        self.chosen.add(node)

    def leave(self, node: str) -> None:
        """Groups may come to it again."""
        self.chosen.discard(node)

    def choose_none(self) -> None:
        """Groups may come to all nodes."""
        self.chosen.clear()

    def may_hold(self, unit: Resident) -> bool:
        """Whether other nodes than those that are chosen, and than its own, hold as many pods of each class."""
        names = self.chosen.union(pod.node for pod in unit.pods)
        off = [position for position in map(self.statement.position_of.get, names) if position is not None]
        return all(self.slots.besides(cls, off) >= count for cls, count in self._asked_of(unit).items())

    def _asked_of(self, unit: Resident) -> dict[PodClass, int]:
        known = self._asked.get(unit)
        if known is None:
            classes = (pod.moves_as for pod in unit.pods)
            known = self._asked[unit] = Counter(cls for cls in classes if cls is not None and cls.rules is None)
        return known
