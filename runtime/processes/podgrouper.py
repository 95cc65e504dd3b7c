"""The process of ``moorage podgrouper``, and its metrics."""

from __future__ import annotations

import anyio

from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.events import EventRecorder
from kube.lead.replica import Replica
from kube.telemetry.tracing import Tracer
from podgrouper.app import Podgrouper
from podgrouper.core.answers import Code, Why
from podgrouper.settings import WorkloadSettings
from podgrouper.telemetry.events import Emit, GroupingEvent, Outcome, Wrote
from runtime import process
from runtime.kai_beside import POD_GROUPER
from runtime.metrics.declared import GROUPED_PODS, POD_GROUPS_WRITTEN, UNGROUPED
from runtime.metrics.registry import Registry, count_watches
from runtime.replicas import Own, run_replica
from runtime.settings.controllers import PodgrouperOptions


def count_grouping(registry: Registry) -> Emit:
    """Count events of grouping. All series exist from the start, so that a rate sees the first of each."""
    written, pods = registry.counter(POD_GROUPS_WRITTEN), registry.counter(GROUPED_PODS)
    of_write = {what: written.labels(what.value) for what in Wrote}
    outcomes: tuple[Outcome | Why | Code, ...] = (*Outcome, *Why, *Code)
    of_pod = {outcome: pods.labels(outcome.value) for outcome in outcomes}

    def emit(event: GroupingEvent) -> None:
        counter = of_write[event] if isinstance(event, Wrote) else of_pod[event]
        counter.inc()

    return emit


def show_waiting(registry: Registry, podgrouper: Podgrouper) -> None:
    """Read how many workloads wait to be grouped, whenever somebody asks."""
    registry.read_one(UNGROUPED, lambda: float(podgrouper.waiting))


async def run(options: PodgrouperOptions, stop: anyio.Event) -> None:
    """Run a replica of the podgrouper."""
    rng, clock = process.rng(), SystemClock()
    settings = WorkloadSettings(queue=options.default_queue)

    def make(api: Api, events: EventRecorder, registry: Registry, _: Tracer | None) -> Replica:
        podgrouper = Podgrouper(api, settings=settings, rng=rng, events=events, emit=count_grouping(registry))
        count_watches(registry, podgrouper.reflectors)
        show_waiting(registry, podgrouper)
        return podgrouper

    own = Own("podgrouper", controller="podgrouper", clock=clock, rng=rng, also=POD_GROUPER)
    await run_replica(options, stop, own=own, make=make)
