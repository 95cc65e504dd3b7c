"""What the agent tells whoever counts (runtime/metrics/nodeagent.py)."""

from __future__ import annotations

from nodeagent.core.witness import Outcome


class Observer:
    """Told of what happens. This one does nothing with it."""

    def witnessed(self, outcome: Outcome) -> None:
        """Kubelet has answered about a reservation pod, and what follows is written."""

    def told(self, took_s: float) -> None:
        """A device was told, so long after the agent saw that kubelet had admitted the pod."""

    def unanswered(self) -> None:
        """No answer came from kubelet, or none that can be read."""

    def published(self) -> None:
        """The status of the GpuNode was written."""
