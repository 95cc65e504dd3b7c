"""S5: a pod is bound once, to the node that its attempt chose, in its own node pool, and runs there."""

from __future__ import annotations

from simulator.checks.facts import PodFacts
from simulator.checks.ledgers import NodeFacts
from simulator.checks.limits import Limits
from simulator.checks.pools import Pools
from simulator.checks.violations import Findings
from simulator.nodes.ground_truth import Started


class Bindings:
    """Judges where pods are bound, and where their containers start."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        #: BindRequest UID (the attempt) -> the node that it chose.
        self._chosen: dict[str, str] = {}
        #: Pods (UID) as they were bound last, whose binding a restored API server does not know.
        self._undone: dict[str, PodFacts] = {}

    def chose(self, attempt: str, node: str) -> None:
        """Note what an attempt chose."""
        self._chosen[attempt] = node

    def changed(self, known: PodFacts | None, pod: PodFacts, at_s: float) -> None:
        """Judge a version of a pod. ``known``: the one before it."""
        before = known.node if known is not None else ""
        if known is not None and before and pod.node != before:
            self._findings.add("S5", at_s, f"pod {pod.key} was bound to {before}, then to {pod.node or 'no node'}")
            self._undone[pod.uid] = known
        if pod.node and not before:
            self._judge_attempt(pod, at_s)

    def _judge_attempt(self, pod: PodFacts, at_s: float) -> None:
        chosen = self._chosen.get(pod.attempt, pod.node)
        if chosen != pod.node:
            self._findings.add("S5", at_s, f"pod {pod.key} is bound to {pod.node}, its attempt chose {chosen}")

    def as_bound(self, pod: PodFacts) -> PodFacts:
        """The pod as it was bound last; as it is, if it was not."""
        return pod if pod.node else self._undone.get(pod.uid, pod)

    def started(self, record: Started, pod: PodFacts, *, is_bound: bool) -> None:
        """Judge where a container started. ``is_bound``: ``pod`` is its pod as it is now."""
        if not is_bound:
            self._findings.add("S5", record.at_s, f"pod {pod.key} runs on {record.node}, and is bound to it no more")
        elif record.node != pod.node:
            self._findings.add("S5", record.at_s, f"pod {pod.key} runs on {record.node}, but is bound to {pod.node}")

    def never_bound(self, record: Started) -> None:
        """A container started, and its pod has not been bound until the end."""
        text = f"container {record.container} of {record.pod} ran on {record.node} without having been bound"
        self._findings.add("S5", record.at_s, text)


class PoolNodes:
    """Which pools nodes were in, for S5 where node pools have schedulers each.

    A binding is judged by every pool that the node was in since the decision (its BindRequest, or its gang's plan), or
    shortly before it, as long as the scheduler may have heard of it late. A pod that changed pools in this time is not
    judged. ``limits`` knows when a pod's binding was decided, and when it changed pools last.
    """

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
