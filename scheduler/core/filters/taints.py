"""Nodes that take nobody new: those that are not ready, and those with taints that a pod does not tolerate.

The cordon is such a taint (core/v1 Taint and Toleration).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from typing_extensions import override

from scheduler.core.filters.filter import Filter
from scheduler.core.model.pod_class import Constraints
from scheduler.core.model.records import NodeRecord
from wire import names
from wire.core import Taint, Toleration


class Readiness(Filter):
    """The node's condition Ready."""

    kind = "not-ready"
    words = "node(s) were not ready"

    @override
    def asked(self, constraints: Constraints) -> bool:
        """Every pod asks it."""
        del constraints
        return True

    @override
    def admits(self, node: NodeRecord, asked: bool) -> bool:
        """Whether kubelet is there."""
        return node.is_ready is asked

    @override
    def reads(self, node: NodeRecord) -> object:
        """The condition."""
        return node.is_ready


#: The effect of a taint that bars nobody.
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
_BARRING: Final = {"NoSchedule", "NoExecute"}
_CORDON: Final = Taint(key=names.UNSCHEDULABLE_TAINT, effect="NoSchedule")

Tolerations = tuple[Toleration, ...]


class Cordon(Filter):
    """Nodes that are closed for new pods."""

    kind = "cordoned"
    words = "node(s) were unschedulable"

    @override
    def asked(self, constraints: Constraints) -> Tolerations:
        """What the pod tolerates."""
        return constraints.tolerations

    @override
    def admits(self, node: NodeRecord, asked: Tolerations) -> bool:
        """Whether the node is open, or its taint tolerated."""
        return not node.is_cordoned or tolerates(asked, _CORDON)

    @override
    def reads(self, node: NodeRecord) -> object:
        """Whether it is closed."""
        return node.is_cordoned


class Taints(Filter):
    """Taints NoSchedule and NoExecute that a pod does not tolerate."""

    kind = "taint"
    words = "node(s) had untolerated taint(s)"

    @override
    def asked(self, constraints: Constraints) -> Tolerations:
        """What the pod tolerates."""
        return constraints.tolerations

    @override
    def admits(self, node: NodeRecord, asked: Tolerations) -> bool:
        """Whether each taint that bars is tolerated."""
        for taint in node.taints:  # noqa: SIM110 - asked for each node; a generator takes twice as long
            if taint.effect in _BARRING and not tolerates(asked, taint):
                return False
        return True

    @override
    def effort(self, asked: Tolerations) -> int:
        """Each toleration is compared."""
        return len(asked)

    @override
    def reads(self, node: NodeRecord) -> object:
        """The taints."""
        return tuple(node.taints)


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether one of the tolerations matches the taint (core/v1 Toleration)."""
    return any(_matches(toleration, taint) for toleration in tolerations)


def _matches(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.operator in {"", "Equal"} and toleration.value == taint.value
