"""What a set of victims costs: compared by the highest priority in it, the work that is lost, pods, and UIDs.

A pod's loss is its weight times its run time, a second at least: of two that began just now the smaller costs less. Its
weight is its dominant claim, as nano of a GPU: the largest part that it has of any dimension of the cluster, times the
GPUs of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from scheduler.core.model.quota import UNITS, Resources
from scheduler.core.room.units import Resident

#: Each unit has run for so long, as far as its loss goes.
LEAST_S: Final = 1


class Cost(NamedTuple):
    """Less is better. ``loss``: nano of a GPU times seconds."""

    priority: int
    loss: int
    pods: int
    uids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pricing:
    """``total``: what queues divide. ``wall_s``: now."""

    total: Resources
    wall_s: int

    def loss(self, victim: Resident) -> int:
        """What is lost with one unit. A pod whose start nobody knows counts as one that has just begun."""
        return self.weight_nano(victim.amounts) * max(LEAST_S, self.wall_s - (victim.started_s or self.wall_s))

    def weight_nano(self, amounts: Resources) -> int:
        """The dominant claim as nano of a GPU; where there is none, of the cluster."""
        gpus = self.total.gpu_nano or UNITS[-1]
        return max(amount * gpus // has if has > 0 else 0 for amount, has in zip(amounts, self.total, strict=True))

    def cost(self, victims: Iterable[Resident]) -> Cost:
        """What a set costs."""
        victims = list(victims)
        uids = sorted(pod.uid for victim in victims for pod in victim.pods)
        priority = max((victim.priority for victim in victims), default=-(1 << 63))
        return Cost(priority, sum(map(self.loss, victims)), len(uids), tuple(uids))
