"""The read-only inspect API that tools of Aliyun's gpushare ask, served from the scheduler's cache (docs/inspect.md).

Off unless an administrator gives an address. It tells nodes, devices, and names and shares of the pods on them, to
every client that can reach that address. What it costs is bounded: an answer is made at most once a second, takes at
most a twentieth of the time and turns with the scheduler's work, and few requests are served at a time.
"""

from __future__ import annotations

import logging
import socket
from typing import Final

import anyio
import anyio.lowlevel
import msgspec
from aiohttp import web
from anyio.abc import TaskStatus

from kube.lead.replica import Replica
from kube.serving import serve
from scheduler.core.cluster import Cluster
from scheduler.core.report.node_view import Answer, NodeUse, node_use
from scheduler.settings import InspectSettings

_log: Final = logging.getLogger(__name__)

PATH: Final = "/gpushare-scheduler/inspect"
#: Requests that are served or wait at one time; further ones are turned away.
_MOST_REQUESTS: Final = 16
#: Nodes that are shown before other tasks get a turn (some ms).
_NODES_PER_TURN: Final = 32
#: Nobody has anything to send.
_LARGEST_BODY_BYTES: Final = 1024
#: An answer is used this many times as long as it took to make (0.2 ms a node).
_USED_FOR: Final = 20


class Inspecting:
    """Answers from ``cluster`` once ``is_in_step``; before that, it says that it can't yet."""

    def __init__(self, cluster: Cluster, settings: InspectSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._requests = 0
        self._making = anyio.Lock()
        #: The last answer, and until when it is used.
        self._made: tuple[float, bytes] | None = None
        self.is_in_step = False

    async def run(self, listener: socket.socket, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve on a listening socket until cancelled."""
        _log.info("the inspect API listens on %s", listener.getsockname())
        await serve(self.app(), listener, task_status=task_status)

    def app(self) -> web.Application:
        """Return the routes: GET and nothing else."""
        app = web.Application(client_max_size=_LARGEST_BODY_BYTES)
        app.router.add_get(PATH, self._all, allow_head=False)
        app.router.add_get(f"{PATH}/{{node}}", self._one, allow_head=False)
        return app

    async def _all(self, _: web.Request) -> web.Response:
        if (refused := self._refused()) is not None:
            return refused
        self._requests += 1
        try:
            return _json(await self._answer())
        finally:
            self._requests -= 1

    async def _one(self, request: web.Request) -> web.Response:
        if (refused := self._refused()) is not None:
            return refused
        name = request.match_info["node"]
        use = self._use(name)
        if use is None:
            return _error(404, "there is no such node with GPUs")
        return _json(msgspec.json.encode(Answer((use,))))

    def _refused(self) -> web.Response | None:
        if not self.is_in_step:
            return _error(503, "the scheduler has not read the cluster yet")
        if self._requests >= _MOST_REQUESTS:
            return _error(503, "too many requests at one time")
        return None

    async def _answer(self) -> bytes:
        """The answer about all nodes, as fresh as the settings say, or as is worth its cost."""
        async with self._making:
            began = anyio.current_time()
            if self._made is not None and began < self._made[0]:
                return self._made[1]
            nodes: list[NodeUse] = []
            for number, name in enumerate(self._cluster.node_names(), 1):
                use = self._use(name)
                if use is not None:
                    nodes.append(use)
                if number % _NODES_PER_TURN == 0:
                    await anyio.lowlevel.checkpoint()
            made = msgspec.json.encode(Answer(tuple(nodes)))
            took_s = anyio.current_time() - began
            self._made = (began + used_for_s(took_s, self._settings.fresh_s), made)
            return made

    def _use(self, name: str) -> NodeUse | None:
        """A node with GPUs; None for another one, and for one that is not there (any more)."""
        view = self._cluster.view(name)
        if view is None or not (view.gpus or view.devices):
            return None
        return node_use(view, unit_mib=self._settings.unit_mib)


def used_for_s(took_s: float, fresh_s: float) -> float:
    """How long an answer is used that took so long to make."""
    return max(fresh_s, took_s * _USED_FOR)


class Inspected:
    """A replica of the scheduler that also answers, whether it leads or not."""

    def __init__(self, replica: Replica, inspecting: Inspecting, listener: socket.socket) -> None:
        self._replica = replica
        self._inspecting = inspecting
        self._listener = listener

    async def follow(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Follow, and answer."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._inspecting.run, self._listener)
            await tasks.start(self._replica.follow)
            self._inspecting.is_in_step = True
            task_status.started()

    async def lead(self, *, anew: bool = True) -> None:
        """Work until cancelled."""
        await self._replica.lead(anew=anew)

    async def finish(self) -> None:
        """Begin nothing more; return when what was begun is done."""
        await self._replica.finish()


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _error(status: int, text: str) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(Answer((), text)), content_type="application/json")
