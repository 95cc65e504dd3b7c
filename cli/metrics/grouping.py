"""PodGroups that were written and pods that were looked at, counted; and how many workloads wait, read when asked."""

from __future__ import annotations

from typing_extensions import override

from cli.metrics.declared import GROUPED_PODS, POD_GROUPS_WRITTEN, UNGROUPED
from cli.metrics.registry import Registry
from workloads.app import Workloads
from workloads.core.values import Code, Why
from workloads.telemetry.observing import Observer, Outcome, Wrote


class GroupingCounted(Observer):
    """Counts what grouping tells. All series are there from the start, so that a rate sees the first of each."""

    def __init__(self, registry: Registry) -> None:
        written, pods = registry.counter(POD_GROUPS_WRITTEN), registry.counter(GROUPED_PODS)
        self._written = {what: written.labels(what.value) for what in Wrote}
        outcomes: tuple[Outcome | Why | Code, ...] = (*Outcome, *Why, *Code)
        self._pods = {outcome: pods.labels(outcome.value) for outcome in outcomes}

    @override
    def wrote(self, what: Wrote) -> None:
        """Count it."""
        self._written[what].inc()

    @override
    def ended(self, outcome: Outcome | Why | Code) -> None:
        """Count it."""
        self._pods[outcome].inc()


def show_waiting(registry: Registry, workloads: Workloads) -> None:
    """Read how many workloads wait to be grouped, whenever somebody asks."""
    registry.read_one(UNGROUPED, lambda: float(workloads.waiting))
