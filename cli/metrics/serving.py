"""Where a process shows what it counts: ``/metrics``, as Prometheus and OpenMetrics have it.

Everybody who reaches the address may read it: numbers, names of queues, and names of kinds: of reasons,
resources and products of GPUs; no names of pods, users, namespaces or nodes, and no secrets. The agent of a node beside
a warden is the exception: it names pods with shares (cli/metrics/tenants.py).
"""

from __future__ import annotations

import socket
from typing import Final

import anyio
from aiohttp import web
from prometheus_client.aiohttp import make_aiohttp_handler

from cli.metrics.loop import measure_loop
from cli.metrics.registry import Registry
from kube.serving import serve

PATH: Final = "/metrics"
#: Nobody has anything to send.
_LARGEST_BODY_BYTES: Final = 1024


async def show(registry: Registry, listener: socket.socket | None) -> None:
    """Serve on a listening socket until cancelled; on none, do nothing."""
    if listener is None:
        return
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(measure_loop, registry)
        tasks.start_soon(serve, app(registry), listener)


def app(registry: Registry) -> web.Application:
    """Return the route: GET and nothing else."""
    made = web.Application(client_max_size=_LARGEST_BODY_BYTES)
    made.router.add_get(PATH, make_aiohttp_handler(registry.collectors), allow_head=False)
    return made
