"""The components' processes, with what each is given: connections, leadership, settings, randomness."""

from __future__ import annotations

import argparse
import random
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from cli.refusing import BadInput
from kube.api import Api
from kube.clock import Clock, SystemClock
from kube.events import EventRecorder
from kube.fence import WriteFence
from kube.lease import LeaderElection, LeaseSettings, incarnation
from kube.replica import Replica, take_part
from kube.retry import Retry
from scheduler.app import Scheduler
from scheduler.core.settings import Settings, Strategy
from scheduler.settings import SchedulerSettings
from wire import names


async def run_scheduler(arguments: argparse.Namespace, stop: anyio.Event) -> None:
    """Run a replica of the scheduler."""
    rng, clock = connections.rng(), SystemClock()
    decisions = Settings(gpu_strategy=Strategy(arguments.gpu_strategy), cpu_strategy=Strategy(arguments.cpu_strategy))
    settings = SchedulerSettings(decisions=decisions)

    def make(api: Api, events: EventRecorder) -> Replica:
        return Scheduler(api, settings=settings, clock=clock, rng=rng, events=events)

    own = _Own("scheduler", controller=names.SCHEDULER_NAME, clock=clock, rng=rng)
    await _run_replica(arguments, stop, own=own, make=make)


async def run_binder(arguments: argparse.Namespace, stop: anyio.Event) -> None:
    """Run a replica of the binder."""
    rng, clock = connections.rng(), SystemClock()
    template = ReservationTemplate(image=arguments.reservation_image, runtime_class=arguments.reservation_runtime_class)
    settings = BinderSettings(reservation=template, idle_s=arguments.idle_s)

    def make(api: Api, events: EventRecorder) -> Replica:
        return Binder(api, settings=settings, clock=clock, rng=rng, events=events)

    await _run_replica(arguments, stop, own=_Own("binder", controller="binder", clock=clock, rng=rng), make=make)


@dataclass(frozen=True, slots=True)
class _Own:
    """What a replica has of its own. ``controller`` signs its events."""

    component: str
    controller: str
    clock: Clock
    rng: random.Random


async def _run_replica(
    arguments: argparse.Namespace, stop: anyio.Event, *, own: _Own, make: Callable[[Api, EventRecorder], Replica]
) -> None:
    identity = incarnation(socket.gethostname(), own.rng)
    async with connections.transport(arguments, own.component) as transport, anyio.create_task_group() as tasks:
        retry = Retry(own.rng)
        # Neither the election nor events may wait for the election.
        unfenced = Api(transport, retry=retry)
        election = None if arguments.no_leader_election else _election(arguments, unfenced, own, identity)
        fence = election.fence if election else WriteFence()
        events = EventRecorder(unfenced, clock=own.clock, controller=own.controller, instance=identity)
        tasks.start_soon(events.run)
        replica = make(Api(transport, retry=retry, fence=fence), events)
        await take_part(replica, election=election, fence=fence, stop=stop)
        tasks.cancel_scope.cancel()


def _election(arguments: argparse.Namespace, api: Api, own: _Own, identity: str) -> LeaderElection:
    return LeaderElection(
        api,
        namespace=names.SYSTEM_NAMESPACE,
        name=f"moorage-{own.component}",
        identity=identity,
        clock=own.clock,
        rng=own.rng,
        settings=_lease_settings(arguments),
    )


def _lease_settings(arguments: argparse.Namespace) -> LeaseSettings:
    try:
        return LeaseSettings(
            duration_s=arguments.lease_duration_s,
            renew_deadline_s=arguments.lease_renew_deadline_s,
            retry_s=arguments.lease_renew_s,
            poll_s=arguments.lease_poll_s,
        )
    except ValueError as error:
        raise BadInput(f"--lease-...-s: {error}") from error


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
