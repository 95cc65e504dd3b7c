"""A replica of a component on a server that hangs where it is told to."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from aiohttp import web
from anyio.abc import TaskStatus
from typing_extensions import override

from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.http import CONNECTIONS
from kube.client.resources import PODS
from kube.events import EventRecorder
from runtime.replicas import Own, run_replica
from runtime.settings.common import Replica as Options
from wire.core import ObjectReference

KAI = {
    "metadata": {"name": "binder", "namespace": "kai-scheduler", "uid": "u", "labels": {"app": "binder"}},
    "spec": {"containers": [{"name": "binder", "image": "kai-scheduler/binder:v0.14"}]},
    "status": {"phase": "Running"},
}


@dataclass(slots=True)
class Server:
    """Knows one Lease and no pods. Whoever asks for a single pod waits forever."""

    spec: dict[str, Any] | None = None
    version: int = 0
    asked: int = 0
    hanging: anyio.Event = field(default_factory=anyio.Event)
    #: Renewals while all connections of the work hang.
    renewals: int = 0
    renewed: anyio.Event = field(default_factory=anyio.Event)
    #: A KAI that comes once somebody holds the lease, and when it was given back.
    has_kai: bool = False
    given_back: anyio.Event = field(default_factory=anyio.Event)
    events: int = 0

    async def answer(self, request: web.Request) -> web.Response:
        if "/leases" in request.path:
            return await self._lease(request)
        if request.path.endswith("/pods"):
            is_there = self.has_kai and self.spec is not None and "kai-scheduler" in request.path
            items = [KAI] if is_there else []
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})
        if request.path.endswith("/events"):
            await anyio.sleep(0.02)
            self.events += 1
            return web.json_response({"metadata": {"name": "e"}}, status=201)
        self.asked += 1
        if self.asked >= CONNECTIONS:
            self.hanging.set()
        await anyio.sleep_forever()
        raise AssertionError

    async def _lease(self, request: web.Request) -> web.Response:
        if request.path.endswith("/leases") and request.method == "GET":
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})
        name = request.path.rpartition("/leases")[2]
        if request.method == "GET" and (self.spec is None or "moorage" not in name):
            gone = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
            return web.json_response(gone, status=404)
        if request.method != "GET":
            told = msgspec.json.decode(await request.read())["spec"]
            self.spec = {name: value for name, value in {**(self.spec or {}), **told}.items() if value is not None}
            self.version += 1
            if told.get("holderIdentity", "somebody") is None:
                self.given_back.set()
            self.renewals += self.hanging.is_set()
            if self.renewals >= 3:
                self.renewed.set()
        metadata = {"name": "moorage-scheduler", "resourceVersion": str(self.version)}
        return web.json_response({"metadata": metadata, "spec": self.spec})


@dataclass(slots=True)
class Busy:
    """A component with more to ask than there are connections."""

    api: Api

    async def follow(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await anyio.sleep_forever()

    async def lead(self, *, anew: bool = True) -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(2 * CONNECTIONS):
                tasks.start_soon(self._ask, f"p{number}")

    async def _ask(self, name: str) -> None:
        await self.api.get(PODS, name, namespace="default")

    async def finish(self) -> None:
        return


class Idle:
    """A component that leads and asks nothing."""

    async def follow(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await anyio.sleep_forever()

    async def lead(self, *, anew: bool = True) -> None:
        await anyio.sleep_forever()

    async def finish(self) -> None:
        return


@dataclass(slots=True)
class Telling(Idle):
    """A component that reports much right before it is told to stop."""

    events: EventRecorder
    stop: anyio.Event

    @override
    async def lead(self, *, anew: bool = True) -> None:
        for number in range(100):
            regarding = ObjectReference(kind="Pod", name=f"p{number}", namespace="ns")
            self.events.record(regarding, reason="Scheduled", action="Binding", note="bound", is_final=True)
        self.stop.set()
        await anyio.sleep_forever()


@asynccontextmanager
async def serving(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_a_leader_renews_its_lease_while_every_connection_of_its_work_hangs(tmp_path: Path) -> None:
    server, stop = Server(), anyio.Event()
    token = tmp_path / "token"
    token.write_text("t")
    own = Own("scheduler", "kai-scheduler", SystemClock(), random.Random(1))
    async with serving(server.answer) as url, anyio.create_task_group() as tasks:
        # Who comes waits for one lease before it leads.
        short: dict[str, Any] = {"lease_duration_s": 3, "lease_renew_deadline_s": 2.5, "lease_renew_s": 0.1}
        options = Options(server=url, token_file=str(token), **short)

        async def run() -> None:
            await run_replica(options, stop, own=own, make=lambda api, *_: Busy(api))

        tasks.start_soon(run)
        with anyio.fail_after(120):
            await server.hanging.wait()
            await server.renewed.wait()
        stop.set()


@pytest.mark.parametrize("no_leader_election", [False, True])
async def test_beside_a_kai_that_starts_nobody_holds_the_lease(tmp_path: Path, no_leader_election: bool) -> None:
    server, stop = Server(has_kai=True), anyio.Event()
    token = tmp_path / "token"
    token.write_text("t")
    own = Own("scheduler", "kai-scheduler", SystemClock(), random.Random(1), kai_every_s=0.2)
    async with serving(server.answer) as url, anyio.create_task_group() as tasks:
        options = Options(server=url, token_file=str(token), no_leader_election=no_leader_election)

        async def run() -> None:
            await run_replica(options, stop, own=own, make=lambda *_: Idle())

        tasks.start_soon(run)
        with anyio.fail_after(120):
            await server.given_back.wait()
        assert server.spec is not None
        assert "holderIdentity" not in server.spec
        stop.set()


async def test_what_was_reported_last_is_written_before_the_process_ends(tmp_path: Path) -> None:
    server, stop = Server(), anyio.Event()
    token = tmp_path / "token"
    token.write_text("t")
    own = Own("scheduler", "kai-scheduler", SystemClock(), random.Random(1))
    async with serving(server.answer) as url:
        options = Options(server=url, token_file=str(token), no_leader_election=True)
        with anyio.fail_after(120):
            await run_replica(options, stop, own=own, make=lambda _, events, *__: Telling(events, stop))
    assert server.events == 100
