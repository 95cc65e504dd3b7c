"""The process of ``moorage scheduler``."""

from __future__ import annotations

import argparse

import anyio

from cli import connections
from cli.inspect import UNITS_MIB
from cli.listening import listening
from cli.replicas import Own, run_replica
from kube.api import Api
from kube.clock import SystemClock
from kube.events import EventRecorder
from kube.replica import Replica
from scheduler.app import Scheduler
from scheduler.core.settings import Settings, Strategy
from scheduler.inspecting import Inspected, Inspecting
from scheduler.settings import InspectSettings, ScalingSettings, SchedulerSettings
from wire import names


def settings(arguments: argparse.Namespace) -> SchedulerSettings:
    """Return what a command line says of the scheduler."""
    decisions = Settings(
        gpu_strategy=Strategy(arguments.gpu_strategy),
        cpu_strategy=Strategy(arguments.cpu_strategy),
        require_enforcement=arguments.require_enforcement,
    )
    scaling = ScalingSettings(image=arguments.scaling_pod_image, memory_nano=arguments.gpu_memory_to_fraction_ratio)
    return SchedulerSettings(
        decisions=decisions,
        broken_gang_s=arguments.default_staleness_grace_period,
        scaling=scaling if arguments.cluster_autoscaling else None,
        cdi=arguments.cdi_enabled,
    )


def inspect_settings(arguments: argparse.Namespace) -> InspectSettings:
    """Return what a command line says of the inspect API."""
    return InspectSettings(unit_mib=UNITS_MIB[arguments.inspect_memory_unit])


async def run(arguments: argparse.Namespace, stop: anyio.Event) -> None:
    """Run a replica of the scheduler."""
    rng, clock = connections.rng(), SystemClock()
    listener = listening("--inspect-address", arguments.inspect_address)

    def make(api: Api, events: EventRecorder) -> Replica:
        scheduler = Scheduler(api, settings=settings(arguments), clock=clock, rng=rng, events=events)
        if listener is None:
            return scheduler
        inspecting = Inspecting(scheduler.cache.cluster, inspect_settings(arguments))
        return Inspected(scheduler, inspecting, listener)

    own = Own("scheduler", controller=names.SCHEDULER_NAME, clock=clock, rng=rng)
    await run_replica(arguments, stop, own=own, make=make)
