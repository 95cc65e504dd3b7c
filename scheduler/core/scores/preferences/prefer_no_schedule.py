"""Taints PreferNoSchedule that the pod does not tolerate: the fewer a node has, the better (TaintToleration)."""

from __future__ import annotations

from collections.abc import Hashable

from scheduler.core.filters.taints import PREFER_NO_SCHEDULE, tolerates
from scheduler.core.model.pod_class import PodClass, Weights
from scheduler.core.model.records import NodeRecord
from scheduler.core.scores.preferences.preference import MOST, Fixed, Seen, of_largest
from wire.core import Toleration


class PreferNoSchedule:
    """Where no node has such a taint, nothing is looked at."""

    name = "prefer-no-schedule"
    depends_on_pods = False

    def weight(self, weights: Weights) -> int:
        """As set."""
        return weights.prefer_no_schedule

    def scorer(self, cls: PodClass, seen: Seen) -> Fixed | None:
        """The best for nodes without one."""
        if not seen.has_soft_taints:
            return None
        asked = tuple(each for each in cls.constraints.tolerations if each.effect in {"", PREFER_NO_SCHEDULE})
        return Fixed(1, lambda fits: MOST - of_largest(seen.numbers(_UNTOLERATED, asked), fits))


class _Untolerated:
    """How many such taints a node has."""

    kind = "untolerated"

    def reads(self, node: NodeRecord, asked: tuple[Toleration, ...]) -> Hashable:
        """The taints."""
        del asked
        return node.taints

    def number(self, node: NodeRecord, asked: tuple[Toleration, ...]) -> int:
        """Count them."""
        soft = (taint for taint in node.taints if taint.effect == PREFER_NO_SCHEDULE)
        return sum(not tolerates(asked, taint) for taint in soft)

    def effort(self, asked: tuple[Toleration, ...]) -> int:
        """Nodes mostly have the same taints."""
        return 1 + len(asked) // 10


_UNTOLERATED = _Untolerated()
