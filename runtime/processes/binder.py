"""The process of ``moorage binder``, and its metrics: how attempts end and how long they take, and how things stand."""

from __future__ import annotations

from typing import Final

import anyio

from binder.app import Binder
from binder.core.reservation_pod import ReservationTemplate
from binder.report.status import BinderState
from binder.settings import BinderSettings
from binder.telemetry.tracing import (
    ActionCarried,
    AttemptEnded,
    BinderEvent,
    DevicesLearned,
    Stage,
    stage_of,
)
from gpu.attempts import Cause
from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.events import EventRecorder
from kube.lead.replica import Replica
from kube.telemetry.tracing import Tracer
from runtime import process
from runtime.metrics.declared import BIND_SECONDS, BIND_STAGE_SECONDS, BINDS, DRIFT, GROUPS, RESERVATIONS, TENANTS
from runtime.metrics.registry import Registry, count_watches
from runtime.replicas import Own, run_replica
from runtime.settings.controllers import BinderOptions

_BOUND: Final = "bound"
_FAILED: Final = "failed"


class BinderMetrics:
    """Counts events of the binder. All series exist from the start, so that a rate sees the first of each."""

    def __init__(self, registry: Registry) -> None:
        binds, seconds = registry.counter(BINDS), registry.histogram(BIND_SECONDS)
        stages = registry.histogram(BIND_STAGE_SECONDS)
        self._bound, self._bound_s = binds.labels(_BOUND), seconds.labels(_BOUND)
        self._failed, self._failed_s = {cause: binds.labels(cause.value) for cause in Cause}, seconds.labels(_FAILED)
        self._stages = {stage: stages.labels(stage.value) for stage in Stage}

    def take(self, event: BinderEvent) -> None:
        """Count an event."""
        match event:
            case ActionCarried(action=action, began_s=began_s, ended_s=ended_s):
                self._stages[stage_of(action)].observe(ended_s - began_s)
            case DevicesLearned(seconds=seconds):
                self._stages[Stage.LEARN].observe(seconds)
            case AttemptEnded(failure=failure, took_s=took_s):
                (self._bound if failure is None else self._failed[failure.cause]).inc()
                (self._bound_s if failure is None else self._failed_s).observe(took_s)


def show_state(registry: Registry, state: BinderState) -> None:
    """Read shared GPUs, their reservations and what books are wrong about, whenever somebody asks."""
    registry.read_one(GROUPS, state.groups)
    registry.read_one(TENANTS, state.tenants)
    registry.read(RESERVATIONS, lambda: [((state.value,), count) for state, count in state.reservations().items()])
    registry.read(DRIFT, lambda: [((kind.value,), count) for kind, count in state.drift().items()])


async def run(options: BinderOptions, stop: anyio.Event) -> None:
    """Run a replica of the binder."""
    rng, clock = process.rng(), SystemClock()
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
        emit = BinderMetrics(registry).take
        binder = Binder(api, settings=settings, clock=clock, rng=rng, events=events, emit=emit, tracer=tracer)
        count_watches(registry, binder.reflectors)
        show_state(registry, binder.state)
        return binder

    await run_replica(options, stop, own=Own("binder", controller="binder", clock=clock, rng=rng), make=make)
