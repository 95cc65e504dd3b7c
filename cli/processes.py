"""The components' processes: credentials, connections, leadership; run until they end or a signal says stop."""

from __future__ import annotations

import argparse
import random
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from admission.run import run as serve_admission
from admission.server import Endpoint
from admission.settings import HandOver
from admission.settings import Settings as AdmissionSettings
from binder.app import Binder
from binder.core.reservation_pod import ReservationTemplate
from binder.settings import BinderSettings
from kube import config
from kube.api import Api
from kube.clock import SystemClock
from kube.config import Credentials
from kube.events import EventRecorder
from kube.http import HttpTransport
from kube.lease import LeaderElection, incarnation
from kube.retry import Retry
from scheduler.app import Scheduler
from scheduler.core.settings import Settings, Strategy
from scheduler.settings import SchedulerSettings
from wire import names

_LEASE: Final = "moorage-scheduler"
#: Runs a component until it ends; one that sees ``stop`` set finishes what it has begun.
Run = Callable[[argparse.Namespace, anyio.Event], Awaitable[None]]


async def until_told(run: Run, arguments: argparse.Namespace) -> None:
    """Run a component until it ends; the first signal asks it to stop, a second one makes it."""
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:

        async def component() -> None:
            await run(arguments, stop)
            tasks.cancel_scope.cancel()

        tasks.start_soon(component)
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                if stop.is_set():
                    tasks.cancel_scope.cancel()
                stop.set()


async def _stop_on(stop: anyio.Event, scope: anyio.CancelScope) -> None:
    """End a component that has nothing to finish: all its writes can be taken up again by the next one."""
    await stop.wait()
    scope.cancel()


async def _credentials(arguments: argparse.Namespace) -> Credentials:
    if arguments.server:
        token = config.TokenFile(Path(arguments.token_file)) if arguments.token_file else None
        return Credentials(server=arguments.server, ca_file=arguments.ca_file, authorization=token)
    if arguments.kubeconfig:
        return await config.from_kubeconfig(path=arguments.kubeconfig, context=arguments.context)
    return config.in_cluster()


@asynccontextmanager
async def _transport(arguments: argparse.Namespace, component: str) -> AsyncIterator[HttpTransport]:
    async with HttpTransport(await _credentials(arguments), user_agent=f"moorage-{component}") as transport:
        yield transport


def _rng() -> random.Random:
    """Randomness of a real process: seeded from the system, passed in from here on."""
    return random.Random(secrets.randbits(128))  # noqa: S311 - jitter and ids, no secrets


async def run_scheduler(arguments: argparse.Namespace, stop: anyio.Event) -> None:
    """Run the scheduler; as leader only, unless told that there is one replica."""
    rng, clock = _rng(), SystemClock()
    decisions = Settings(gpu_strategy=Strategy(arguments.gpu_strategy), cpu_strategy=Strategy(arguments.cpu_strategy))
    identity = incarnation("moorage-scheduler", rng)
    async with _transport(arguments, "scheduler") as transport, anyio.create_task_group() as tasks:
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
        tasks.start_soon(_stop_on, stop, tasks.cancel_scope)
        scheduler = Scheduler(api, settings=SchedulerSettings(decisions=decisions), clock=clock, rng=rng, events=events)
        # A leader that lost its lease ends: its commits under way are of unknown outcome, a fresh start is not.
        await (election.one_term(scheduler.run) if elects else scheduler.run())
        tasks.cancel_scope.cancel()


async def run_binder(arguments: argparse.Namespace, stop: anyio.Event) -> None:
    """Run the binder. Several may run: books are kept by compare-and-set alone."""
    rng, clock = _rng(), SystemClock()
    template = ReservationTemplate(image=arguments.reservation_image, runtime_class=arguments.reservation_runtime_class)
    settings = BinderSettings(reservation=template, idle_s=arguments.idle_s)
    async with _transport(arguments, "binder") as transport, anyio.create_task_group() as tasks:
        api = Api(transport, retry=Retry(rng))
        instance = incarnation("moorage-binder", rng)
        events = EventRecorder(api, clock=clock, controller="binder", instance=instance)
        tasks.start_soon(events.run)
        tasks.start_soon(_stop_on, stop, tasks.cancel_scope)
        await Binder(api, settings=settings, clock=clock, rng=rng, events=events).run()


async def run_admission(arguments: argparse.Namespace, stop: anyio.Event) -> None:
    """Serve the webhooks."""
    rng = _rng()
    endpoint = Endpoint(certificate=arguments.certificate, key=arguments.key, host=arguments.host, port=arguments.port)
    async with _transport(arguments, "admission") as transport:
        await serve_admission(
            Api(transport, retry=Retry(rng)),
            settings=AdmissionSettings(hand_over=HandOver(arguments.hand_over)),
            endpoint=endpoint,
            rng=rng,
            stop=stop,
        )


RUN: Final[Mapping[str, Run]] = {"scheduler": run_scheduler, "binder": run_binder, "admission": run_admission}
