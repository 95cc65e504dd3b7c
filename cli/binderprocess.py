"""The process of ``moorage binder``."""

from __future__ import annotations

import anyio

from binder.app import Binder
from binder.core.reservation_pod import ReservationTemplate
from binder.settings import BinderSettings
from cli import seeding
from cli.metrics.binding import BindingCounted, show_standing
from cli.metrics.registry import Registry
from cli.metrics.watches import count_watches
from cli.replicas import Own, run_replica
from cli.settings.binder import BinderOptions
from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.events import EventRecorder
from kube.lead.replica import Replica
from kube.telemetry.tracing import Tracer


async def run(options: BinderOptions, stop: anyio.Event) -> None:
    """Run a replica of the binder."""
    rng, clock = seeding.rng(), SystemClock()
    template = ReservationTemplate(
        image=options.reservation_image,
        runtime_class=options.reservation_runtime_class,
        priority_class=options.reservation_priority_class,
    )
    settings = BinderSettings(
        reservation=template,
        idle_s=options.idle_s,
        contended_s=options.contended_s,
        cdi=options.cdi_enabled,
        memory_caps=options.memory_caps,
    )

    def make(api: Api, events: EventRecorder, registry: Registry, tracer: Tracer | None) -> Replica:
        observer = BindingCounted(registry)
        binder = Binder(api, settings=settings, clock=clock, rng=rng, events=events, observer=observer, tracer=tracer)
        count_watches(registry, binder.reflectors)
        show_standing(registry, binder.standing)
        return binder

    await run_replica(options, stop, own=Own("binder", controller="binder", clock=clock, rng=rng), make=make)
