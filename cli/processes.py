"""The components' processes, with what each is given: connections, leadership, settings, randomness."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Final

import anyio

from admission.run import run as serve_admission
from admission.server import Endpoint
from admission.settings import HandOver
from admission.settings import Settings as AdmissionSettings
from binder.app import Binder
from binder.core.reservation_pod import ReservationTemplate
from binder.settings import BinderSettings
from cli import connections
from kube.api import Api
from kube.clock import SystemClock
from kube.events import EventRecorder
from kube.lease import LeaderElection, incarnation
from kube.retry import Retry
from scheduler.app import Scheduler
from scheduler.core.settings import Settings, Strategy
from scheduler.settings import SchedulerSettings
from wire import names

_LEASE: Final = "moorage-scheduler"


async def run_scheduler(arguments: argparse.Namespace, stop: anyio.Event) -> None:
    """Run the scheduler; as leader only, unless told that there is one replica."""
    rng, clock = connections.rng(), SystemClock()
    decisions = Settings(gpu_strategy=Strategy(arguments.gpu_strategy), cpu_strategy=Strategy(arguments.cpu_strategy))
    identity = incarnation("moorage-scheduler", rng)
    async with connections.transport(arguments, "scheduler") as transport, anyio.create_task_group() as tasks:
        retry = Retry(rng)
        unbounded = Api(transport, retry=retry)
        election = LeaderElection(
            unbounded,
            namespace=names.SYSTEM_NAMESPACE,
            name=_LEASE,
            identity=identity,
            clock=clock,
            rng=rng,
        )
        elects = not arguments.no_leader_election
        api = Api(transport, retry=retry, write_until=(lambda: election.held_until) if elects else None)
        # Neither the election nor events may wait for the election.
        events = EventRecorder(unbounded, clock=clock, controller=names.SCHEDULER_NAME, instance=identity)
        tasks.start_soon(events.run)
        tasks.start_soon(connections.stop_on, stop, tasks.cancel_scope)
        scheduler = Scheduler(api, settings=SchedulerSettings(decisions=decisions), clock=clock, rng=rng, events=events)
        # A leader that lost its lease ends: its commits under way are of unknown outcome, a fresh start is not.
        await (election.one_term(scheduler.run) if elects else scheduler.run())
        tasks.cancel_scope.cancel()


async def run_binder(arguments: argparse.Namespace, stop: anyio.Event) -> None:
    """Run the binder. Several may run: books are kept by compare-and-set alone."""
    rng, clock = connections.rng(), SystemClock()
    template = ReservationTemplate(image=arguments.reservation_image, runtime_class=arguments.reservation_runtime_class)
    settings = BinderSettings(reservation=template, idle_s=arguments.idle_s)
    async with connections.transport(arguments, "binder") as transport, anyio.create_task_group() as tasks:
        api = Api(transport, retry=Retry(rng))
        instance = incarnation("moorage-binder", rng)
        events = EventRecorder(api, clock=clock, controller="binder", instance=instance)
        tasks.start_soon(events.run)
        tasks.start_soon(connections.stop_on, stop, tasks.cancel_scope)
        await Binder(api, settings=settings, clock=clock, rng=rng, events=events).run()


async def run_admission(arguments: argparse.Namespace, stop: anyio.Event) -> None:
    """Serve the webhooks."""
    rng = connections.rng()
    endpoint = Endpoint(certificate=arguments.certificate, key=arguments.key, host=arguments.host, port=arguments.port)
    async with connections.transport(arguments, "admission") as transport:
        await serve_admission(
            Api(transport, retry=Retry(rng)),
            settings=AdmissionSettings(hand_over=HandOver(arguments.hand_over)),
            endpoint=endpoint,
            rng=rng,
            stop=stop,
        )


RUN: Final[Mapping[str, connections.Run]] = {
    "scheduler": run_scheduler,
    "binder": run_binder,
    "admission": run_admission,
}
