"""Which nodes are worth emptying for a need, as far as counting tells.

A need for whole GPUs comes no nearer while no node gains a place for one of its pods. On a node with pods that stay,
such a place may be out of reach even with all others moved off it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpu.share import NANO_PER_DEVICE
from scheduler.core.model.pod_class import PodClass
from scheduler.core.nodes.table import Int64s
from scheduler.core.room import bounds
from scheduler.core.room.movers import Movers
from scheduler.core.room.need import Need
from scheduler.core.room.slots import may_be
from scheduler.core.room.trial import Trial
from scheduler.core.room.units import Resident


@dataclass(slots=True)
class Vacating:
    """Of one need. ``says_all``: nodes do not hold it for want of places, so counting tells what is worth moving."""

    need: Need
    trial: Trial
    movers: Movers
    says_all: bool = field(init=False)
    wanted: bounds.Least = field(init=False)
    #: Places before anything is moved, by class: of each node.
    _before: dict[PodClass, Int64s] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.wanted = bounds.least(self.need, self.trial)
        self.says_all = not self.reaches()
        if self.says_all:
            self._before = {cls: self.movers.slots.of(cls).copy() for cls in self.wanted.pods}

    def reaches(self) -> bool:
        """Whether nodes hold the need as things are on paper, as far as counting tells."""
        return bounds.reach(self.trial, self.wanted, self.movers.slots)

    def places(self) -> int:
        """Places that nodes have for the pods of the need: each node as many of a class as are asked in all at most."""
        held = self.movers.slots.of
        return sum(int(np.minimum(held(cls), count).sum()) for cls, count in self.wanted.pods.items())

    def worth(self) -> Sequence[tuple[str, Sequence[Resident]]]:
        """Nodes that may gain a place if all is moved off them that may be, as ``Movers.by_node`` has them.

        None at all if that is not enough.
        """
        if not self.says_all:
            return self.movers.by_node()
        gains = np.zeros(len(self.trial.statement.nodes), np.bool_)
        for cls, count in self.wanted.pods.items():
            most = self._most(cls)
            if most is None:
                return self.movers.by_node()
            if int(np.minimum(most, count).sum()) < count:
                return ()
            gains |= most > self._before[cls]
        return self.movers.by_node(gains)

    def may_gain(self, node: str, staying: Collection[Resident]) -> bool:
        """Whether a node may gain a place though these stay there."""
        if not self.says_all:
            return True
        position = self.trial.statement.position_of[node]
        stays_nano = sum(self.movers.nano_on(node, unit) for unit in staying)
        left_nano = int(self.movers.most_nano[position]) - stays_nano
        return any(
            not cls.demand.gpus or left_nano // (cls.demand.gpus * NANO_PER_DEVICE) > int(before[position])
            for cls, before in self._before.items()
        )

    def _most(self, cls: PodClass) -> Int64s | None:
        """The most pods of a class that nodes hold once all is off that may be moved; None where nothing is said."""
        ways = cls.ways()
        if len(ways) > 1 or not cls.demand.gpus:
            return None
        there = may_be(self.trial.statement, ways[0])
        most: Int64s = np.where(there, self.movers.most_nano // (cls.demand.gpus * NANO_PER_DEVICE), 0)
        return np.maximum(most, self._before[cls])
