"""S5 where node pools have schedulers each: a pod is bound on a node of its own pool.

Who binds decides on what is known by then. So a binding is judged by every pool that the node was in since the
decision (its BindRequest, or its gang's plan), or for so long before as who decides may hear of it late. A pod
that changed pools in this time is not judged.
"""

from __future__ import annotations

from simulator.checks.counting import NodeFacts
from simulator.checks.limits import Limits
from simulator.checks.pools import Pools
from simulator.facts import PodFacts
from simulator.violations import Findings


class PoolNodes:
    """Which pools nodes were in. ``limits`` knows when a pod's binding was decided, and when it changed pools last."""

    def __init__(self, findings: Findings, pools: Pools, limits: Limits) -> None:
        self._findings, self._pools, self._limits = findings, pools, limits
        self._now: dict[str, str] = {}
        #: Node -> the pools that it left, each with the time.
        self._left: dict[str, list[tuple[float, str]]] = {}

    def node(self, node: NodeFacts, at_s: float) -> None:
        """Take a version of a node. One that is deleted is in its pool until it comes back in another."""
        before = self._now.get(node.name)
        self._now[node.name] = node.pool
        if before is not None and before != node.pool:
            self._left.setdefault(node.name, []).append((at_s, before))

    def bound(self, pod: PodFacts, node: str, at_s: float) -> None:
        """Judge a binding on ``node``. ``pod``: as it was before, since a Binding brings the label of its scheduler."""
        if not self._pools.is_divided or not pod.is_ours or pod.is_reservation or node not in self._now:
            return
        since_s = self._limits.decided_since_s(pod, at_s)
        if self._limits.was_moved(pod.uid, since_s):
            return
        pool = self._pools.of(pod)
        pools = [self._now[node], *(left for until_s, left in self._left.get(node, ()) if until_s >= since_s)]
        if pool not in pools:
            text = f"pod {pod.key} of {_named(pool)} was bound to {node}, which is in {_named(pools[0])}"
            self._findings.add("S5", at_s, text)


def _named(pool: str) -> str:
    return f"pool {pool}" if pool else "the pool without a label"
