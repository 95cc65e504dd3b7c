"""S5: a pod is bound once, to the node that its attempt chose, and runs there; for node pools see pool_nodes.py."""

from __future__ import annotations

from simulator.facts import PodFacts
from simulator.violations import Findings
from simulator.witness import Started


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
