"""A replica of the scheduler that also explains, over TLS, whether it leads or not.

The certificate is made at each start and nobody trusts it: the API server's service proxy verifies none. TLS keeps
tokens from those who listen on the way; who answers is decided by who may change the Service and its endpoints.
"""

from __future__ import annotations

import logging
import socket
import ssl
from typing import Final

import anyio
from anyio.abc import TaskStatus

from admission.accepting import Entrance, Limits
from admission.certificates.tls import load, server_context
from admission.certs import YEAR_S, serving_certificate
from cli.explaining.answering import MOST_QUESTIONS, Answering
from cli.explaining.budget import Budget
from cli.explaining.idle import idle_holders
from cli.explaining.judging import Idle, Judging
from cli.explaining.observing import Observer
from cli.explaining.rights import Rights
from cli.explaining.views import HolderView
from kube.client.api import Api
from kube.lead.replica import Replica
from kube.serving import running
from scheduler.app import Scheduler
from scheduler.watch.node_agents import NodeUses

_log: Final = logging.getLogger(__name__)

#: Connections that wait or are asked on; the API server keeps some open.
LIMITS: Final = Limits(connections=4 * MOST_QUESTIONS)
#: A certificate lives longer than any process.
_LIFETIME_S: Final = 10 * YEAR_S
_NAME: Final = "moorage-scheduler"


def certified(now_ns: int) -> ssl.SSLContext:
    """Return a context with a new certificate."""
    made = serving_certificate(dns_names=[_NAME], now_ns=now_ns, lifetime_s=_LIFETIME_S)
    context = server_context()
    load(context, made.certificate, made.key)
    return context


def explained(
    replica: Replica,
    scheduler: Scheduler,
    *,
    api: Api,
    listener: socket.socket,
    context: ssl.SSLContext | None,
    observer: Observer | None = None,
) -> Explained:
    """Return a replica that explains from a scheduler's state at a listening socket."""
    judging = Judging(
        scheduler.cache.cluster,
        clock=api.clock,
        is_leading=lambda: scheduler.standing.is_leading,
        budget=Budget(observer=observer),
        idle=None if scheduler.uses is None else _idle(scheduler, scheduler.uses),
    )
    return Explained(replica, Answering(judging.explain, Rights(api.unfenced()), observer), listener, context)


def _idle(scheduler: Scheduler, uses: NodeUses) -> Idle:
    def found(now_ns: int, namespace: str) -> tuple[HolderView, ...]:
        held = scheduler.cache.reservations.values() if uses.reports else ()
        return idle_holders(held, uses.use_on, now_ns=now_ns, namespace=namespace)

    return found


class Explained:
    """A replica and what it answers at a listening socket. ``context``: None serves without TLS."""

    def __init__(
        self, replica: Replica, answering: Answering, listener: socket.socket, context: ssl.SSLContext | None
    ) -> None:
        self._replica = replica
        self._answering = answering
        self._listener = listener
        self._context = context

    async def follow(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Follow, and answer."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._serve)
            await tasks.start(self._replica.follow)
            self._answering.is_in_step = True
            task_status.started()

    async def _serve(self) -> None:
        _log.info("explanations are served at %s", self._listener.getsockname())
        async with running(self._answering.app()) as server:
            await Entrance(
                self._listener,
                lambda: self._context,
                server,
                limits=LIMITS,
                is_asking=self._answering.is_answering,
            ).run()

    async def lead(self, *, anew: bool = True) -> None:
        """Work until cancelled."""
        await self._replica.lead(anew=anew)

    async def finish(self) -> None:
        """Begin nothing more; return when what was begun is done."""
        await self._replica.finish()
