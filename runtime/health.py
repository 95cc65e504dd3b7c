"""Whether a replica is alive, and whether it is ready: what kubelet asks, by KAI's paths and port (contract 6.4).

``/healthz`` answers while the event loop turns; that it does not, nothing inside could heal. ``/readyz`` says that the
replica is in step with the cluster and can lead, or leads: an update of its Deployment waits for that. A replica that
waits for the API server is alive and not ready, and says for what it waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio
from aiohttp import web
from anyio.abc import TaskStatus
from typing_extensions import override

from kube.telemetry.loglevel import LogLevel

STARTING: Final = "not in step with the cluster yet"
ENDING: Final = "told to end"
BESIDE_KAI: Final = "stopped while a KAI Scheduler is at work in this cluster"


class Health(TaskStatus[None]):
    """What is answered; given as ``task_status`` to what tells when the replica is in step.

    ``on_started`` is called at that time.
    """

    def __init__(self, on_started: Callable[[], None] = lambda: None) -> None:
        self._on_started = on_started
        #: Why the replica is not ready; empty when it is.
        self._unready = STARTING

    @override
    def started(self, value: None = None) -> None:
        """It is in step."""
        self._unready = ""
        self._on_started()

    def stand_aside(self, why: str) -> None:
        """Be not ready, though alive: it does nothing."""
        self._unready = why

    async def end_with(self, stop: anyio.Event) -> None:
        """Report not ready once the process has been asked to stop."""
        await stop.wait()
        self._unready = ENDING

    def app(self) -> web.Application:
        """Return the routes."""
        app = web.Application(client_max_size=1024)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        LogLevel().add_to(app)
        return app

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _readyz(self, _: web.Request) -> web.Response:
        return web.Response(status=503, text=self._unready) if self._unready else web.Response(text="ok")
