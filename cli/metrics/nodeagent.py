"""What the agent of a node does, counted."""

from __future__ import annotations

from collections.abc import Mapping

from typing_extensions import override

from cli.metrics.declared import (
    GPU_NODE_WRITES,
    KUBELET_SILENT,
    MIG_LAYOUTS,
    NODE_GPUS,
    PLUGIN_RIVALS,
    WITNESS_SECONDS,
    WITNESSED,
)
from cli.metrics.registry import Registry
from nodeagent.app import Agent
from nodeagent.core.witness import Outcome
from nodeagent.observing import Observer


class AgentCounted(Observer):
    """Counts what the agent tells. All series are there from the start, so that a rate sees the first of each."""

    def __init__(self, registry: Registry) -> None:
        witnessed = registry.counter(WITNESSED)
        self._outcomes = {outcome: witnessed.labels(outcome.value) for outcome in Outcome}
        self._seconds = registry.histogram(WITNESS_SECONDS)
        self._silent = registry.counter(KUBELET_SILENT)
        self._writes = registry.counter(GPU_NODE_WRITES)

    @override
    def witnessed(self, outcome: Outcome) -> None:
        """Count it."""
        self._outcomes[outcome].inc()

    @override
    def told(self, took_s: float) -> None:
        """Count it."""
        self._seconds.observe(took_s)

    @override
    def unanswered(self) -> None:
        """Count it."""
        self._silent.inc()

    @override
    def published(self) -> None:
        """Count it."""
        self._writes.inc()


def show_cards(registry: Registry, agent: Agent) -> None:
    """Read how many GPUs the driver shows, whenever somebody asks, and which of them others offer."""
    registry.read_one(NODE_GPUS, lambda: float(len(agent.cards.cards)))
    registry.read_one(PLUGIN_RIVALS, lambda: float(agent.plugin.rivals if agent.plugin else 0))
    registry.read(MIG_LAYOUTS, lambda: [((state,), count) for state, count in _layouts(agent).items()])


def _layouts(agent: Agent) -> Mapping[str, int]:
    return {} if agent.plugin is None else agent.plugin.layouts()
