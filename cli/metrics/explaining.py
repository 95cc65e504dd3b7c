"""Questions to a scheduler that explains, counted by their outcome, and the slices of its time that they take."""

from __future__ import annotations

from typing_extensions import override

from cli.explaining.observing import Observer, Outcome
from cli.metrics.declared import EXPLAIN_SECONDS, EXPLAIN_SLICE_SECONDS
from cli.metrics.registry import Registry


class ExplainCounted(Observer):
    """Counts what the service tells. All series are there from the start, so that a rate sees the first of each."""

    def __init__(self, registry: Registry) -> None:
        seconds = registry.histogram(EXPLAIN_SECONDS)
        self._seconds = {outcome: seconds.labels(outcome.value) for outcome in Outcome}
        self._slices = registry.histogram(EXPLAIN_SLICE_SECONDS)

    @override
    def asked(self, outcome: Outcome, seconds: float) -> None:
        """Count it."""
        self._seconds[outcome].observe(seconds)

    @override
    def sliced(self, seconds: float) -> None:
        """Count it."""
        self._slices.observe(seconds)
