"""The process of ``moorage workloads``."""

from __future__ import annotations

import anyio

from cli import seeding
from cli.livekai import POD_GROUPER
from cli.metrics.grouping import GroupingCounted, show_waiting
from cli.metrics.registry import Registry
from cli.metrics.watches import count_watches
from cli.replicas import Own, run_replica
from cli.settings.workloads import WorkloadsOptions
from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.events import EventRecorder
from kube.lead.replica import Replica
from kube.telemetry.tracing import Tracer
from workloads.app import Workloads
from workloads.settings import WorkloadSettings


async def run(options: WorkloadsOptions, stop: anyio.Event) -> None:
    """Run a replica of the grouping of workloads."""
    rng, clock = seeding.rng(), SystemClock()
    settings = WorkloadSettings(queue=options.default_queue)

    def make(api: Api, events: EventRecorder, registry: Registry, _: Tracer | None) -> Replica:
        workloads = Workloads(api, settings=settings, rng=rng, events=events, observer=GroupingCounted(registry))
        count_watches(registry, workloads.reflectors)
        show_waiting(registry, workloads)
        return workloads

    own = Own("workloads", controller="workloads", clock=clock, rng=rng, also=POD_GROUPER)
    await run_replica(options, stop, own=own, make=make)
