"""The components as processes: ``moorage scheduler``, ``moorage binder``, ``moorage admission``.

Each talks to the API server under its own identity: the pod's service account, a kubeconfig, or an address with a
token file (``--server``, ``--ca-file``, ``--token-file``).
"""

from __future__ import annotations

import argparse
import logging
import random
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from admission.namespaces import NamespaceGuards
from admission.review import PodAdmission
from admission.server import Endpoint, WebhookServer
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
from kube.reflector import Reflector
from kube.resources import NAMESPACES
from kube.retry import Retry
from scheduler.app import Scheduler
from scheduler.core.settings import Settings, Strategy
from scheduler.settings import SchedulerSettings
from wire import names

_LEASE: Final = "moorage-scheduler"


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the components' sub-commands."""
    scheduler = _component(commands, "scheduler", "decide where pods go", run_scheduler)
    scheduler.add_argument("--no-leader-election", action="store_true", help="for a single replica")
    for resource in ("gpu", "cpu"):
        scheduler.add_argument(
            f"--{resource}-strategy", choices=[s.value for s in Strategy], default=Strategy.BINPACK.value
        )
    binder = _component(commands, "binder", "reserve devices and bind", run_binder)
    binder.add_argument("--reservation-image", default=ReservationTemplate().image)
    binder.add_argument("--reservation-runtime-class", default="", help="runtime class of reservation pods")
    binder.add_argument(
        "--idle-s", type=float, default=BinderSettings().idle_s, help="keep an idle reservation so long"
    )
    binder.add_argument("--pod-bound-condition", action="store_true", help="write KAI's PodBound=True (one more write)")
    admission = _component(commands, "admission", "serve the webhooks", run_admission)
    admission.add_argument("--port", type=int, default=9443)
    admission.add_argument("--host", default="0.0.0.0")  # noqa: S104 - a webhook is reached by the pod's address
    admission.add_argument("--certificate", type=Path, required=True, metavar="PEM")
    admission.add_argument("--key", type=Path, required=True, metavar="PEM")
    admission.add_argument("--hand-over", choices=[h.value for h in HandOver], default=HandOver.ANNOTATIONS.value)


def _component(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    what: str,
    run: Callable[[argparse.Namespace], Awaitable[None]],
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=what, description=f"Moorage's {name}: {what}.")
    parser.set_defaults(run=lambda arguments: _start(run, arguments))
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help="default: the pod's service account")
    parser.add_argument("--context", default="", help="context of the kubeconfig")
    parser.add_argument("--server", default="", metavar="URL", help="API server, with --ca-file and --token-file")
    parser.add_argument("--ca-file", default="", metavar="PEM")
    parser.add_argument("--token-file", default="", metavar="FILE")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser


def _start(run: Callable[[argparse.Namespace], Awaitable[None]], arguments: argparse.Namespace) -> int:
    logging.basicConfig(
        level=arguments.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    anyio.run(_until_told, run, arguments)
    return 0


async def _until_told(run: Callable[[argparse.Namespace], Awaitable[None]], arguments: argparse.Namespace) -> None:
    """Run a component until it ends or a signal says stop."""
    async with anyio.create_task_group() as tasks:

        async def component() -> None:
            await run(arguments)
            tasks.cancel_scope.cancel()

        tasks.start_soon(component)
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                tasks.cancel_scope.cancel()
                return


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


async def run_scheduler(arguments: argparse.Namespace) -> None:
    """Run the scheduler; as leader only, unless told that there is one replica."""
    rng, clock = _rng(), SystemClock()
    decisions = Settings(gpu_strategy=Strategy(arguments.gpu_strategy), cpu_strategy=Strategy(arguments.cpu_strategy))
    identity = incarnation("moorage-scheduler", rng)
    async with _transport(arguments, "scheduler") as transport, anyio.create_task_group() as tasks:
        retry = Retry(rng)
        election = LeaderElection(
            Api(transport, retry=retry),
            namespace=names.SYSTEM_NAMESPACE,
            name=_LEASE,
            identity=identity,
            clock=clock,
            rng=rng,
        )
        elects = not arguments.no_leader_election
        api = Api(transport, retry=retry, write_until=(lambda: election.held_until) if elects else None)
        events = EventRecorder(api, clock=clock, controller=names.SCHEDULER_NAME, instance=identity)
        tasks.start_soon(events.run)
        scheduler = Scheduler(api, settings=SchedulerSettings(decisions=decisions), clock=clock, rng=rng, events=events)
        # A leader that lost its lease ends: its commits under way are of unknown outcome, a fresh start is not.
        await (election.one_term(scheduler.run) if elects else scheduler.run())
        tasks.cancel_scope.cancel()


async def run_binder(arguments: argparse.Namespace) -> None:
    """Run the binder. Several may run: books are kept by compare-and-set alone."""
    rng, clock = _rng(), SystemClock()
    template = ReservationTemplate(image=arguments.reservation_image, runtime_class=arguments.reservation_runtime_class)
    settings = BinderSettings(
        reservation=template, idle_s=arguments.idle_s, pod_bound_condition=arguments.pod_bound_condition
    )
    async with _transport(arguments, "binder") as transport, anyio.create_task_group() as tasks:
        api = Api(transport, retry=Retry(rng))
        instance = incarnation("moorage-binder", rng)
        events = EventRecorder(api, clock=clock, controller="binder", instance=instance)
        tasks.start_soon(events.run)
        await Binder(api, settings=settings, clock=clock, rng=rng, events=events).run()


async def run_admission(arguments: argparse.Namespace) -> None:
    """Serve the webhooks; ready when the namespaces' settings are known."""
    rng = _rng()
    async with _transport(arguments, "admission") as transport, anyio.create_task_group() as tasks:
        guards = NamespaceGuards(AdmissionSettings().guard)
        settings = AdmissionSettings(hand_over=HandOver(arguments.hand_over))
        admission = PodAdmission(settings, rng=rng, guard_of=guards)
        endpoint = Endpoint(
            certificate=arguments.certificate, key=arguments.key, host=arguments.host, port=arguments.port
        )
        synced = anyio.Event()
        server = WebhookServer(admission, endpoint, is_ready=synced.is_set)
        await tasks.start(server.run)
        await tasks.start(Reflector(Api(transport, retry=Retry(rng)), NAMESPACES, guards, rng=rng).run)
        synced.set()
