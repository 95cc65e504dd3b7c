"""The process of ``moorage binder``."""

from __future__ import annotations

import argparse

import anyio

from binder.app import Binder
from binder.core.reservation_pod import ReservationTemplate
from binder.settings import BinderSettings
from cli import connections
from cli.replicas import Own, run_replica
from kube.api import Api
from kube.clock import SystemClock
from kube.events import EventRecorder
from kube.replica import Replica


async def run(arguments: argparse.Namespace, stop: anyio.Event) -> None:
    """Run a replica of the binder."""
    rng, clock = connections.rng(), SystemClock()
    template = ReservationTemplate(
        image=arguments.reservation_image,
        runtime_class=arguments.reservation_runtime_class,
        priority_class=arguments.reservation_priority_class,
    )
    settings = BinderSettings(
        reservation=template,
        idle_s=arguments.idle_s,
        contended_s=arguments.contended_s,
        cdi=arguments.cdi_enabled,
    )

    def make(api: Api, events: EventRecorder) -> Replica:
        return Binder(api, settings=settings, clock=clock, rng=rng, events=events)

    await run_replica(arguments, stop, own=Own("binder", controller="binder", clock=clock, rng=rng), make=make)
