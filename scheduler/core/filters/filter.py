"""What a rule about single nodes is: one file with what it asks of a pod, its judgement, its reason and its words."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

from scheduler.core.model.pod_class import Constraints
from scheduler.core.model.records import NodeRecord
from wire.core import Pod


class Filter:
    """One reason why a node may be out for a pod. Without state.

    ``kind``: of the NodeReason, stable, unlike all others. ``words``: what people read after a number of nodes.
    """

    kind: ClassVar[str]
    words: ClassVar[str]

    def read(self, pod: Pod) -> Hashable | None:
        """What a pod asks by its own text, kept for ``asked``; None: nothing. Limits its size itself."""
        del pod
        return None

    def asked(self, constraints: Constraints) -> Any | None:
        """What is asked; None: this filter has nothing to say."""
        return next((asked for kind, asked in constraints.asks if kind == self.kind), None)

    def admits(self, node: NodeRecord, asked: Any) -> bool:
        """Whether a pod that asks this may be on a node."""
        raise NotImplementedError

    def effort(self, asked: Any) -> int:
        """How much there is to look at for one node, in comparisons or so."""
        del asked
        return 0

    def reads(self, node: NodeRecord) -> object:
        """All of a node that the judgement depends on: when it changes, the node is judged again and may wake pods."""
        raise NotImplementedError
