"""The page over HTTP: what it says equals what the API server has, to whom it says it, and how. In real time."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
import pytest

from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.resources import NODES, PODS
from kube.client.retry import Retry
from simulator.apiserver.server import MemoryApiServer
from tests.conftest import AnyioBackend
from tests.ui.page.reviews import RIGHTS, USERS, Reviewer
from tests.ui.page.serving import Served, served
from ui.inspect.reader import read_cluster
from ui.inspect.survey import survey
from ui.page.auth import TokenReviewAccess
from ui.page.objects import Objects
from ui.page.server import HEADERS, PageLimits
from ui.page.values import EventLine
from ui.page.watch import Following
from wire import names

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def anyio_backend() -> AnyioBackend:
    return ("asyncio", {})


def plain_node(name: str, gpus: int = 2) -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", names.GPU_RESOURCE: str(gpus)}
    ready = {"type": "Ready", "status": "True"}
    labels = {names.NODE_GPU_MEMORY: "1024"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    return {"metadata": {"name": name, "labels": labels}, "status": status}


def plain_pod(name: str, node: str = "") -> dict[str, Any]:
    container = {"name": "main", "image": "i", "resources": {"limits": {names.GPU_RESOURCE: "1"}}}
    spec = {"schedulerName": names.SCHEDULER_NAME, "containers": [container], **({"nodeName": node} if node else {})}
    return {"metadata": {"name": name}, "spec": spec}


class Cluster:
    """An API server with two nodes and a pod of each of two teams."""

    def __init__(self) -> None:
        self.server = MemoryApiServer(clock=SystemClock(), rng=random.Random(1), auto_namespaces=True)
        self.api = Api(self.server.transport("user"), retry=Retry(random.Random(2)))
        self.transport = self.server.transport("page")

    async def fill(self) -> None:
        for name in ("n1", "n2"):
            await self.api.create(NODES, plain_node(name))
        for team in ("a", "b"):
            await self.api.create(PODS, plain_pod(f"of-{team}", "n1"), namespace=f"team-{team}")


@asynccontextmanager
async def page(**how: Any) -> AsyncIterator[tuple[Cluster, Served]]:
    cluster = Cluster()
    async with anyio.create_task_group() as tasks:
        await tasks.start(cluster.server.run)
        await cluster.fill()
        async with served(cluster.transport, **how) as made:
            yield cluster, made
        tasks.cancel_scope.cancel()


async def asked(client: aiohttp.ClientSession, path: str, token: str = "", **headers: str) -> tuple[int, Any]:
    shown = {"Authorization": f"Bearer {token}"} if token else {}
    async with client.get(path, headers={**shown, **headers}) as answer:
        text = await answer.text()
        return answer.status, json.loads(text) if answer.content_type == "application/json" else text


async def test_the_state_is_compressed_only_on_request() -> None:
    async with page() as (_, made):
        for header, coding in (("gzip", "gzip"), ("identity", None), ("gzip;q=0", None)):
            async with made.client.get("/api/state", headers={"Accept-Encoding": header}) as answer:
                assert answer.headers.get("Content-Encoding") == coding
                assert answer.headers["Vary"] == "Accept-Encoding"
                assert (await answer.json())["changes"]["nodes"]


class Reader:
    """Reads server-sent events, and puts changes of nodes and pods in as the page does."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.id: str = state["id"]
        self.nodes: dict[str, Any] = {}
        self.pods: dict[str, Any] = {}
        self.events: list[str] = []
        self._put(state["changes"])

    def _put(self, changes: dict[str, Any]) -> None:
        self.nodes |= {node["name"]: node for node in changes.get("nodes", ())}
        self.pods |= {pod["uid"]: pod for pod in changes.get("pods", ())}
        for name in changes.get("goneNodes", ()):
            self.nodes.pop(name, None)
        for uid in changes.get("gonePods", ()):
            self.pods.pop(uid, None)

    async def read(self, client: aiohttp.ClientSession, done: Any, *, by_header: bool = False) -> None:
        """Read until ``done(self)`` is true."""
        path = "/api/changes" if by_header else f"/api/changes?after={self.id}"
        headers = {"Last-Event-ID": self.id} if by_header else {}
        with anyio.fail_after(LIMIT_S):
            async with client.get(path, headers=headers) as answer:
                assert answer.content_type == "text/event-stream"
                while not done(self):
                    self._take((await answer.content.readuntil(b"\n\n")).decode())

    def _take(self, event: str) -> None:
        fields = dict(line.split(": ", 1) for line in event.strip().split("\n"))
        self.events.append(fields["event"])
        if fields["event"] == "changes":
            self.id = fields["id"]
            self._put(json.loads(fields["data"]))


async def inspected(cluster: Cluster) -> dict[str, list[tuple[str, int, list[str]]]]:
    """The devices of nodes, as ``moorage inspect`` has them."""
    found = survey(await read_cluster(cluster.api))
    return {
        node.name: [(d.kind.value, d.used_nano, [t.name for t in d.tenants]) for d in node.devices]
        for node in found.nodes
    }


def shown(nodes: dict[str, Any]) -> dict[str, list[tuple[str, int, list[str]]]]:
    return {
        name: [
            (d["kind"], d.get("usedNano", 0), [t["name"] for t in d.get("tenants", ())])
            for d in node.get("devices", ())
        ]
        for name, node in nodes.items()
    }


# --- what it says -------------------------------------------------------------------------------------------------


async def test_the_state_is_what_inspect_reads() -> None:
    async with page() as (cluster, made):
        _, state = await asked(made.client, "/api/state")
        assert shown(Reader(state).nodes) == await inspected(cluster)
        assert {pod["name"] for pod in state["changes"]["pods"]} == {"of-a", "of-b"}


@pytest.mark.parametrize("by_header", [False, True])
async def test_changes_add_up_to_what_inspect_reads_also_after_a_broken_connection(by_header: bool) -> None:
    async with page() as (cluster, made):
        _, state = await asked(made.client, "/api/state")
        reader = Reader(state)
        for number in range(5):
            await cluster.api.create(PODS, plain_pod(f"p{number}"), namespace="team-a")
        await reader.read(made.client, lambda r: len(r.pods) == 7)
        # The connection is gone. A reader who comes back with what he knew gets what happened meanwhile.
        await cluster.api.delete(PODS, "of-b", namespace="team-b", grace_s=0)
        await cluster.api.create(NODES, plain_node("n3", gpus=1))
        await cluster.api.delete(NODES, "n2")
        await reader.read(
            made.client, lambda r: len(r.pods) == 6 and r.nodes.keys() == {"n1", "n3"}, by_header=by_header
        )
        assert "reset" not in reader.events
        assert shown(reader.nodes) == await inspected(cluster)


async def test_who_knows_another_run_is_told_to_read_it_all_anew() -> None:
    async with page() as (_, made), made.client.get("/api/changes?after=other-3") as answer:
        assert await answer.text() == "event: reset\ndata: {}\n\n"


async def test_a_broken_watch_of_ours_is_taken_up_again() -> None:
    async with page() as (cluster, made):
        _, state = await asked(made.client, "/api/state")
        cluster.server.cut_watches()
        await cluster.api.create(PODS, plain_pod("late"), namespace="team-a")
        await Reader(state).read(made.client, lambda r: any(pod["name"] == "late" for pod in r.pods.values()))


async def test_a_burst_is_told_in_few_pieces() -> None:
    async with page(every_s=0.5) as (cluster, made):
        _, state = await asked(made.client, "/api/state")
        for number in range(50):
            await cluster.api.create(PODS, plain_pod(f"p{number}"), namespace="team-a")
        reader = Reader(state)
        await reader.read(made.client, lambda r: len(r.pods) == 52)
        assert reader.events.count("changes") < 25


async def test_one_pod_is_told_with_its_path() -> None:
    async with page() as (_, made):
        status, path = await asked(made.client, "/api/pods/team-a/of-a")
        assert (status, path["pod"]["node"]) == (200, "n1")
        assert [stage["name"] for stage in path["stages"]][:2] == ["created", "bound"]
        assert (await asked(made.client, "/api/pods/team-a/nobody"))[0] == 404


async def test_before_the_cluster_is_read_nothing_is_said_of_it() -> None:
    async with page(in_step=False) as (_, made):
        for path in ("/api/state", "/api/changes", "/api/pods/team-a/of-a"):
            status, told = await asked(made.client, path)
            assert (status, told["error"]) == (503, "not in step with the cluster yet: the cluster is being read")
        assert (await asked(made.client, "/"))[0] == 200


async def test_what_is_read_and_not_drawn_yet_is_not_shown_as_a_cluster_without_anything() -> None:
    async with page(drawn=False) as (_, made):
        assert (await asked(made.client, "/api/state"))[0] == 503
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.publishing.run)
            await made.publishing.begun.wait()
            status, state = await asked(made.client, "/api/state")
            tasks.cancel_scope.cancel()
        assert status == 200
        assert state["changes"]["pods"]


async def test_what_cannot_be_read_is_told() -> None:
    """No BindRequests are known here: that is no gap. PodGroups that may not be read are one."""
    cluster = Cluster()
    following = Following(cluster.api, Objects(), rng=random.Random(0))
    assert following.troubles() == ()
    following._wanted[1].trouble = "you may not"
    assert following.troubles() == ("podgroups: you may not",)
    following._wanted[1].is_unknown = True
    assert following.troubles() == ()


# --- to whom ------------------------------------------------------------------------------------------------------


async def test_without_a_token_there_is_the_page_and_nothing_in_it() -> None:
    access = TokenReviewAccess(Reviewer(USERS, RIGHTS).api())
    async with page(access=access, hosts=None) as (_, made):
        for path in ("/api/state", "/api/changes", "/api/pods/team-a/of-a", "/api/explain/team-a/of-a"):
            async with made.client.get(path) as answer:
                assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
                assert "of-a" not in await answer.text()
        assert (await asked(made.client, "/app.js"))[0] == 200


async def test_a_reader_is_told_of_his_namespaces_and_of_others_no_name() -> None:
    access = TokenReviewAccess(Reviewer(USERS, RIGHTS).api())
    async with page(access=access, hosts=None) as (_, made):
        status, state = await asked(made.client, "/api/state", "token-ann")
        assert (status, state["isPartlyHidden"]) == (200, True)
        text = json.dumps(state)
        assert "of-a" in text
        assert "of-b" not in text
        assert "team-b" not in text
        assert [d["usedNano"] for d in state["changes"]["nodes"][0]["devices"]] == [10**9, 10**9]
        assert (await asked(made.client, "/api/pods/team-a/of-a", "token-ann"))[0] == 200
        assert (await asked(made.client, "/api/pods/team-b/of-b", "token-ann"))[0] == 404
        assert (await asked(made.client, "/api/explain/team-b/of-b", "token-ann"))[0] == 404
        status, found = await asked(made.client, "/api/explain/team-a/of-a", "token-ann")
        assert (status, found["by"]) == (200, "this page, from what it has read")
        assert "of-b" not in json.dumps(found)


async def test_a_stream_ends_when_its_reader_may_see_something_else() -> None:
    server = Reviewer(USERS, RIGHTS)
    access = TokenReviewAccess(server.api(), holds_s=0.5)
    async with page(access=access, hosts=None) as (_, made):
        _, state = await asked(made.client, "/api/state", "token-ann")
        headers = {"Authorization": "Bearer token-ann"}
        async with made.client.get(f"/api/changes?after={state['id']}", headers=headers) as answer:
            await answer.content.readuntil(b"\n\n")
            server.rights["ann"] = frozenset()
            with anyio.fail_after(LIMIT_S):
                assert (await answer.content.read()).endswith(b"event: reset\ndata: {}\n\n")


async def test_where_nobody_can_be_asked_nothing_is_told() -> None:
    server = Reviewer(USERS, RIGHTS)
    server.is_broken = True
    async with page(access=TokenReviewAccess(server.api()), hosts=None) as (_, made):
        status, told = await asked(made.client, "/api/state", "token-admin")
        assert (status, told["error"]) == (503, "the API server can't be asked what you may see")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:1234", 200),
        ("localhost:8484", 200),
        ("localhost", 200),
        ("[::1]:1", 200),
        ("evil.example", 421),
        ("evil.example:8484", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost:8484.evil.example", 421),
    ],
)
async def test_on_loopback_it_is_asked_for_by_its_own_name(host: str, status: int) -> None:
    """A site whose name leads to this machine (DNS rebinding) sends its own name."""
    async with page() as (_, made):
        for path in ("/", "/api/state"):
            assert (await asked(made.client, path, Host=host))[0] == status


# --- how ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
async def test_there_is_nothing_but_get(method: str) -> None:
    async with page() as (_, made):
        for path in ("/", "/app.js", "/api/state", "/api/changes", "/api/pods/team-a/of-a"):
            async with made.client.request(method, path) as answer:
                assert answer.status == 405


@pytest.mark.parametrize(
    "path", ["/index.html", "/../settings.py", "/%2e%2e/settings.py", "/static/app.js", "/api", "/app.js/x", "/metrics"]
)
async def test_there_is_nothing_else(path: str) -> None:
    async with page() as (_, made), made.client.get(path, allow_redirects=False) as answer:
        assert answer.status == 404


@pytest.mark.parametrize(
    "path", ["/", "/app.js", "/page.css", "/icon.svg", "/api/state", "/api/changes?after=x", "/no"]
)
async def test_every_answer_has_the_headers_of_a_careful_page(path: str) -> None:
    async with page() as (_, made), made.client.get(path) as answer:
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS


async def test_too_many_streams_are_turned_away() -> None:
    async with page(limits=PageLimits(streams=1)) as (_, made):
        _, state = await asked(made.client, "/api/state")
        path = f"/api/changes?after={state['id']}"
        async with made.client.get(path) as first:
            await first.content.readuntil(b"\n\n")
            assert (await asked(made.client, path))[0] == 503


async def test_an_open_stream_ends_with_the_page_and_is_not_broken_off() -> None:
    async with aiohttp.ClientSession() as client, anyio.create_task_group() as tasks:
        ended = anyio.Event()

        async def read(address: str) -> None:
            async with client.get(f"{address}/api/changes?after=epoch-1") as answer:
                await answer.content.readuntil(b"\n\n")
                close.set()
                await answer.read()
            ended.set()

        close = anyio.Event()
        async with page() as (_, made):
            tasks.start_soon(read, made.address)
            await close.wait()
        with anyio.fail_after(LIMIT_S):
            await ended.wait()


async def test_one_user_does_not_take_the_streams_of_others() -> None:
    access = TokenReviewAccess(Reviewer(USERS, RIGHTS).api())
    async with page(access=access, hosts=None, limits=PageLimits(streams_of_one=1)) as (_, made):
        _, state = await asked(made.client, "/api/state", "token-ann")
        path = f"/api/changes?after={state['id']}"
        async with made.client.get(path, headers={"Authorization": "Bearer token-ann"}) as first:
            await first.content.readuntil(b"\n\n")
            assert (await asked(made.client, path, "token-ann"))[0] == 503
            async with made.client.get(path, headers={"Authorization": "Bearer token-admin"}) as other:
                assert other.status == 200


async def test_one_user_does_not_take_all_answers() -> None:
    access = TokenReviewAccess(Reviewer(USERS, RIGHTS).api())
    rng = random.Random(0)
    async with page(access=access, hosts=None, limits=PageLimits(streams_of_one=1)) as (_, made):
        for event in range(500):
            note = rng.randbytes(16_000).hex()  # half of it is left when it is packed
            made.publishing.objects.put_event(EventLine(key=f"{event}", namespace="n", pod="p", note=note))
        await made.publishing.wait_beyond(made.publishing.frames.revision)
        with socket.socket() as idle:
            idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            idle.connect(("127.0.0.1", int(made.address.rpartition(":")[2])))
            idle.sendall(b"GET /api/state HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token-admin\r\n\r\n")
            with anyio.fail_after(LIMIT_S):
                while (await asked(made.client, "/api/state", "token-admin"))[0] != 503:
                    continue
            assert (await asked(made.client, "/api/state", "token-ann"))[0] == 200
        with anyio.fail_after(LIMIT_S):
            while (await asked(made.client, "/api/state", "token-admin"))[0] != 200:
                continue


async def is_open(client: aiohttp.ClientSession) -> bool:
    """Whether there is room for one stream more."""
    async with client.get("/api/changes?after=other") as answer:
        return answer.status == 200


async def test_who_does_not_read_makes_room_for_others() -> None:
    async with page(limits=PageLimits(streams=1, unread_s=0.2)) as (_, made):
        _, state = await asked(made.client, "/api/state")
        path = f"/api/changes?after={state['id']}"
        with socket.socket() as idle:
            idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            idle.connect(("127.0.0.1", int(made.address.rpartition(":")[2])))
            idle.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            with anyio.fail_after(LIMIT_S):
                while await is_open(made.client):
                    continue
                while not await is_open(made.client):
                    for event in range(500):
                        note = f"{anyio.current_time()}".ljust(1000, "x")
                        made.publishing.objects.put_event(EventLine(key=f"{event}", namespace="n", pod="p", note=note))
                    await anyio.sleep(0.05)
