"""S11: a malformed ask is never bound, and its pod's status says what is wrong, as a refusal does."""

from __future__ import annotations

from dataclasses import dataclass

from simulator import facts
from simulator.checks import counting, telling
from simulator.facts import Json, PodFacts
from simulator.violations import Findings
from wire import names


@dataclass(slots=True)
class Asking:
    """Judges what becomes of asks that can't be carried out."""

    findings: Findings

    def bound(self, pod: PodFacts, at_s: float) -> None:
        """A pod was just bound: a malformed ask never becomes a default."""
        wrong = facts.problem(pod) if pod.is_ours else None
        if wrong is not None:
            self.findings.add("S11", at_s, f"pod {pod.key} was bound with {wrong[0]}={wrong[1]!r}")

    def waits(self, pod: PodFacts, at_s: float) -> None:
        """A pod waits at rest: it names what is wrong with its ask."""
        told = telling.unnamed(pod, pod.verdict.message if pod.verdict else "")
        if told:
            self.findings.add("S11", at_s, f"pod {pod.key}: {told}")

    def refused(self, raw: Json, message: str, at_s: float) -> None:
        """A user's pod was refused by our webhooks: for a malformed ask, which the message names.

        Or because it asks for whole GPUs of a node that no scheduler has looked at (docs/security.md).
        """
        metadata = {"uid": "", "name": "", **raw["metadata"]}
        pod = facts.pod({**raw, "metadata": metadata})
        told = telling.unnamed(pod, message)
        if facts.problem(pod) is None and not _brings_its_node(pod, message):
            told = f"nothing is wrong with it, and the answer is {message!r}"
        if told:
            self.findings.add("S11", at_s, f"pod {pod.key} was refused: {told}")


def _brings_its_node(pod: PodFacts, message: str) -> bool:
    """Whether a pod that asks for whole GPUs names its node, and its status says so."""
    return (
        bool(pod.node) and counting.demand(pod, names.GPU_RESOURCE) > 0 and f"spec.nodeName is '{pod.node}'" in message
    )
