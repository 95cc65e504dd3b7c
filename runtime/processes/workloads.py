"""The process of ``moorage workloads``.

PodGroups that were written and pods that were looked at, counted; and how many workloads wait, read when asked.
"""

from __future__ import annotations

import anyio
from typing_extensions import override

from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.events import EventRecorder
from kube.lead.replica import Replica
from kube.telemetry.tracing import Tracer
from podgrouper.app import Workloads
from podgrouper.core.answers import Code, Why
from podgrouper.settings import WorkloadSettings
from podgrouper.telemetry.observer import Observer, Outcome, Wrote
from runtime import process
from runtime.kai_beside import POD_GROUPER
from runtime.metrics.declared import GROUPED_PODS, POD_GROUPS_WRITTEN, UNGROUPED
from runtime.metrics.registry import Registry
from runtime.metrics.requests import count_watches
from runtime.replicas import Own, run_replica
from runtime.settings.workloads import WorkloadsOptions


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


async def run(options: WorkloadsOptions, stop: anyio.Event) -> None:
    """Run a replica of the grouping of workloads."""
    rng, clock = process.rng(), SystemClock()
    settings = WorkloadSettings(queue=options.default_queue)

    def make(api: Api, events: EventRecorder, registry: Registry, _: Tracer | None) -> Replica:
        workloads = Workloads(api, settings=settings, rng=rng, events=events, observer=GroupingCounted(registry))
        count_watches(registry, workloads.reflectors)
        show_waiting(registry, workloads)
        return workloads

    own = Own("workloads", controller="workloads", clock=clock, rng=rng, also=POD_GROUPER)
    await run_replica(options, stop, own=own, make=make)
