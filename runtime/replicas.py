"""One replica of a component that elects its leader: what it is given, and its part among the others."""

from __future__ import annotations

import logging
import random
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import anyio

from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.fence import WriteFence
from kube.client.retry import Retry, until_answered
from kube.events import EventRecorder
from kube.lead.lease import LeaderElection, LeaseSettings, incarnation
from kube.lead.replica import Replica, Rivals, take_part
from kube.serving import serve
from kube.telemetry.tracing import Tracer
from runtime import connections
from runtime.health import BESIDE_KAI, Health
from runtime.kai_beside import EVERY_S, NOTHING_ELSE, Also, BesideKai, Found, look_for_kai, sentence
from runtime.metrics.declared import KAI_AT_WORK, LEADER
from runtime.metrics.registry import CountedTransport, Registry, measured_lag, show
from runtime.process import lasting, listening
from runtime.settings.common import Replica as Options
from runtime.text import BadInput
from runtime.tracing import tracer as tracing
from wire import names

log = logging.getLogger(__name__)

#: A renewal must not wait until one of the work's requests has its answer. A second one, for when the first hangs.
_CONNECTIONS_OF_THE_ELECTION: Final = 2
#: What was recorded last is written for so long before the process ends.
_LAST_EVENTS_S: Final = 2.0
#: Makes the component; what it counts goes into the registry, what it traces to the tracer.
Make = Callable[[Api, EventRecorder, Registry, Tracer | None], Replica]


@dataclass(frozen=True, slots=True)
class Own:
    """What a replica has of its own. ``controller`` signs its events; ``also``: what of KAI's is in its way as well.

    ``kai_every_s``: how often it looks for a KAI. ``lease``: of those who elect a leader; "": the component's.
    """

    component: str
    controller: str
    clock: Clock
    rng: random.Random
    also: Also = NOTHING_ELSE
    kai_every_s: float = EVERY_S
    lease: str = ""


async def run_replica(options: Options, stop: anyio.Event, *, own: Own, make: Make) -> None:
    """Run a replica until told to stop."""
    with lasting() as keep_what_is_there:
        await _run(options, stop, own=own, make=make, health=Health(keep_what_is_there))


async def _run(options: Options, stop: anyio.Event, *, own: Own, make: Make, health: Health) -> None:
    identity = incarnation(socket.gethostname(), own.rng)
    registry = Registry()
    listener = listening("--health-probe-bind-address", options.health_probe_bind_address)
    shown = listening("--metrics-bind-address", options.metrics_bind_address)
    opened = connections.transport(options, own.component, replica=identity)
    set_apart = connections.transport(
        options, own.component, replica=identity, connections=_CONNECTIONS_OF_THE_ELECTION
    )
    traced = tracing.tracer(options, own.component, registry=registry, clock=own.clock)
    async with opened as bare, set_apart as apart, traced as tracer, anyio.create_task_group() as tasks:
        transport = CountedTransport(bare, registry)
        retry = Retry(own.rng)
        tasks.start_soon(show, registry, shown)
        if listener is not None:
            tasks.start_soon(serve, health.app(), listener)
            tasks.start_soon(health.end_with, stop)
        # Neither the election nor events may wait for the election.
        unfenced = Api(transport, retry=retry)
        await _alone(unfenced, stop, own.also)
        # The recorder itself tries again, and has to see what was turned away to write less at once.
        once = Api(transport, retry=Retry(own.rng, tries=1))
        events = EventRecorder(once, clock=own.clock, controller=own.controller, instance=identity)
        tasks.start_soon(events.run)
        is_elected, others = not options.no_leader_election, anyio.CancelScope()
        # Without election writes don't end with the lease.
        punctual = Api(transport.beside(apart), retry=retry)
        beside = BesideKai(
            unfenced,
            events,
            lease=_lease_name(own),
            choice=options.if_kai_starts,
            also=own.also,
            every_s=own.kai_every_s,
        )
        registry.read_one(KAI_AT_WORK, lambda: float(beside.is_there))
        election = _election(options, punctual, own, identity=identity, fence=None if is_elected else WriteFence())
        if not is_elected:
            # It works while another holds the lease, too. It takes part so that it sees others, and they see it.
            election.on_rival = Rivals(events)
            tasks.start_soon(_seeing_others, election, others)
        registry.read_one(LEADER, lambda: float(not is_elected or election.is_leading))
        api = Api(transport, retry=retry, fence=election.fence, lag=measured_lag(registry))
        replica = make(api, events, registry, tracer)
        elected = election if is_elected else None
        to_stop = anyio.Event()
        tasks.start_soon(beside.run)
        tasks.start_soon(_when_set, stop, to_stop.set)
        tasks.start_soon(_when_set, beside.noticed, to_stop.set)
        await take_part(replica, election=elected, fence=election.fence, stop=to_stop, task_status=health)
        if beside.noticed.is_set():
            # A reader of the lease has to see that nobody works.
            others.cancel()
            health.stand_aside(BESIDE_KAI)
            await _unless(stop, beside.until_gone)
        with anyio.move_on_after(_LAST_EVENTS_S):
            await events.written()
        tasks.cancel_scope.cancel()


async def _seeing_others(election: LeaderElection, until: anyio.CancelScope) -> None:
    with until:
        await election.run(anyio.sleep_forever)


async def _when_set(event: anyio.Event, then: Callable[[], None]) -> None:
    await event.wait()
    then()


async def _unless(stop: anyio.Event, wait: Callable[[], Awaitable[None]]) -> None:
    """Wait, or return early when told to stop."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_when_set, stop, tasks.cancel_scope.cancel)
        await wait()
        tasks.cancel_scope.cancel()


async def _alone(api: Api, stop: anyio.Event, also: Also) -> None:
    """Raise BadInput while a KAI Scheduler is at work, and name what may be one; return early when told to stop."""
    found = Found()

    async def look() -> None:
        nonlocal found
        found = await until_answered(lambda: look_for_kai(api, also))

    await _unless(stop, look)
    if found.at_work:
        raise BadInput(sentence(found.at_work))
    if found.elsewhere:
        log.warning("this looks like a KAI Scheduler: %s; if it is, stop it: two can't share pods", found.elsewhere)


def _election(options: Options, api: Api, own: Own, *, identity: str, fence: WriteFence | None) -> LeaderElection:
    return LeaderElection(
        api,
        namespace=names.SYSTEM_NAMESPACE,
        name=_lease_name(own),
        identity=identity,
        clock=own.clock,
        rng=own.rng,
        settings=_lease_settings(options),
        fence=fence,
    )


def _lease_name(own: Own) -> str:
    return own.lease or f"moorage-{own.component}"


def _lease_settings(options: Options) -> LeaseSettings:
    try:
        return LeaseSettings(
            duration_s=options.lease_duration_s,
            renew_deadline_s=options.lease_renew_deadline_s,
            retry_s=options.lease_renew_s,
            poll_s=options.lease_poll_s,
        )
    except ValueError as error:
        flags = "--lease-duration-s, --lease-renew-deadline-s, --lease-renew-s, --lease-poll-s"
        raise BadInput(f"{flags}: {error}") from error
