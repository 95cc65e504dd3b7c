"""The command asks the scheduler with the user's token, and reads the cluster where there is no answer."""

from __future__ import annotations

import argparse
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest
from aiohttp import web

from cli.main import main
from kube.client.config import Credentials, plain
from kube.client.http_reads import HttpReads
from kube.serving import serve
from runtime.client import Reached
from runtime.text import BadInput
from tests.conftest import AnyioBackend
from tests.ui.explain.test_answering import whole
from ui.explain.explanation import TOKEN_HEADER, NoAnswer, NotServed, Whole, ask
from ui.explain.views import Asked

ANSWER = msgspec.json.encode(whole(Asked(kind="pod", namespace="team-a", name="p")))


@pytest.fixture(scope="module")
def anyio_backend() -> AnyioBackend:
    return ("asyncio", {})


class ApiServer:
    """Answers anything, and keeps what it was asked."""

    def __init__(self, status: int, body: bytes) -> None:
        self.answer = status, body
        self.asked: list[web.Request] = []

    async def get(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        status, body = self.answer
        return web.Response(status=status, body=body)

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_get("/{path:.*}", self.get)
        listener = socket.create_server(("127.0.0.1", 0))
        async with anyio.create_task_group() as tasks:
            await tasks.start(serve, app, listener)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            tasks.cancel_scope.cancel()


async def asked(credentials: Credentials, *what_if: str, name: str = "p") -> Whole:
    arguments = argparse.Namespace(what="pod", names=[name], what_if=list(what_if))
    # What the command reads itself goes by another transport.
    async with HttpReads(plain(credentials.server), user_agent="test") as transport:
        return await ask(Reached(transport, credentials, None), arguments, "team-a")


async def test_the_token_goes_along_twice_as_the_proxy_keeps_one() -> None:
    server = ApiServer(200, ANSWER)
    async with server.served() as url:
        found = await asked(plain(url, token="secret"), "members=1", "queue=b")
    assert found.group.name == "p"
    (request,) = server.asked
    proxied = "/api/v1/namespaces/kai-scheduler/services/https:moorage-scheduler:explain/proxy"
    assert request.path == f"{proxied}/explain/pod/team-a/p"
    assert request.query["what-if"] == "members=1\nqueue=b"
    assert [request.headers[name] for name in ("Authorization", TOKEN_HEADER)] == ["Bearer secret"] * 2


async def test_a_name_leads_nowhere_else() -> None:
    server = ApiServer(200, ANSWER)
    async with server.served() as url:
        await asked(plain(url, token="secret"), name="../../x?y")
    assert server.asked[0].raw_path.endswith("/explain/pod/team-a/..%2F..%2Fx%3Fy")


def status(message: str) -> bytes:
    return msgspec.json.encode({"kind": "Status", "message": message})


@pytest.mark.parametrize(
    ("code", "body", "why"),
    [
        (403, status("services is forbidden"), "HTTP 403: services is forbidden"),
        (503, b'{"error": "too many questions at one time"}', "HTTP 503: too many questions"),
        (502, b"<html>", "HTTP 502 in a form of another version"),
        (200, b"{}", "HTTP 200 in a form of another version"),
    ],
)
async def test_where_the_scheduler_does_not_answer_that_is_said(code: int, body: bytes, why: str) -> None:
    async with ApiServer(code, body).served() as url:
        with pytest.raises(NoAnswer) as failed:
            await asked(plain(url, token="secret"))
    assert str(failed.value).startswith(why)
    assert not isinstance(failed.value, NotServed)


@pytest.mark.parametrize("changed", [{}, {"authorization": None}, {"headers": (("Impersonate-User", "ann"),)}])
async def test_a_cluster_without_the_service_is_told_from_one_that_fails(changed: dict[str, Any]) -> None:
    async with ApiServer(404, status('services "moorage-scheduler" not found')).served() as url:
        with pytest.raises(NotServed):
            await asked(msgspec.structs.replace(plain(url, token="secret"), **changed))


@pytest.mark.parametrize("code", [400, 404])
async def test_what_the_scheduler_refuses_is_bad_input(code: int) -> None:
    async with ApiServer(code, b'{"error": "there is no pod p"}').served() as url:
        with pytest.raises(BadInput, match="there is no pod p"):
            await asked(plain(url, token="secret"))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"authorization": None}, "it needs a bearer token"),
        ({"headers": (("Impersonate-User", "ann"),)}, "--as can't be passed on"),
        ({"server": "http://127.0.0.1:1"}, "GET /api/v1/namespaces/kai-scheduler/services"),
        ({"proxy": "http://127.0.0.1:1"}, "requests through a proxy"),
    ],
)
async def test_who_can_not_ask_is_told_why(changed: dict[str, Any], why: str) -> None:
    server = ApiServer(200, ANSWER)
    async with server.served() as url:
        with pytest.raises(NoAnswer) as failed:
            await asked(msgspec.structs.replace(plain(url, token="secret"), **changed))
    assert str(failed.value).startswith(why)
    assert not isinstance(failed.value, NotServed)
    assert not [request for request in server.asked if "/proxy/" in request.path]


@pytest.mark.parametrize(("code", "lines"), [(404, 1), (403, 2)])
async def test_the_command_is_silent_only_where_there_is_nobody_to_ask(
    code: int, lines: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last line is about the cluster itself, which can't be read here."""
    token = tmp_path / "token"
    token.write_text("secret", encoding="utf-8")
    async with ApiServer(code, status("no")).served() as url:
        words = ["explain", "pod", "p", "--server", url, "--token-file", str(token)]
        assert await anyio.to_thread.run_sync(main, words) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == lines
    assert sum("the scheduler gave no answer (HTTP 403: no)" in each for each in said) == lines - 1
