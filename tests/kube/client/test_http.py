from __future__ import annotations

import asyncio
import json
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from aiohttp import web
from trustme import CA

from kube.client import config, errors
from kube.client.api import Api
from kube.client.http import HttpTransport
from kube.client.http_reads import HttpReads
from kube.client.resources import CONFIG_MAP_NAMES, PODS, Resource
from kube.client.retry import Retry
from kube.client.transport import ERROR_BYTES, LINE_BYTES, Response

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    app = web.Application(client_max_size=1 << 24)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        port = runner.addresses[0][1]
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def connected(handler: Handler) -> AsyncIterator[HttpTransport]:
    async with serving(handler) as url, HttpTransport(config.plain(url)) as transport:
        yield transport


def watch_of(*chunks: bytes, cut: bool = False, then: float = 0.0) -> Handler:
    """A handler that streams the chunks, waits, and ends in order or by cutting the connection."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        await asyncio.sleep(then)
        if cut:
            assert request.transport is not None
            request.transport.abort()
        return response

    return handler


async def read_all(transport: HttpTransport) -> list[bytes]:
    async with transport.stream("/api/v1/pods", query={"watch": "true"}, timeout_s=60.0) as (head, lines):
        assert head.status == 200
        return [line async for line in lines]


# --- requests -----------------------------------------------------------------------------------------------------
async def test_a_request_arrives_as_it_was_made_and_so_does_its_answer() -> None:
    async def echo(request: web.Request) -> web.StreamResponse:
        assert request.headers["Accept-Encoding"] == "identity"
        seen = [request.method, request.path_qs, request.headers["Content-Type"], await request.text()]
        return web.json_response(seen, status=201, headers={"Retry-After": "3"})

    async with connected(echo) as transport:
        response = await transport.request(
            "PATCH",
            "/api/v1/namespaces/a/pods/b",
            query={"timeout": "10s", "labelSelector": "a in (b,c),!d"},
            body=b'{"x":1}',
            content_type="application/merge-patch+json",
            timeout_s=60.0,
        )
    assert response.status == 201
    assert response.headers["retry-after"] == "3"
    method, path, content_type, body = json.loads(response.body)
    assert (method, content_type, body) == ("PATCH", "application/merge-patch+json", '{"x":1}')
    assert path.startswith("/api/v1/namespaces/a/pods/b?timeout=10s&labelSelector=a")


async def test_a_proxy_that_only_the_environment_names_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    # Nobody listens there.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.json_response({})

    async with connected(answer) as transport:
        assert (await transport.request("GET", "/x", query={}, timeout_s=60.0)).status == 200


async def test_a_redirect_is_not_followed() -> None:
    async def redirect(_request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("http://192.0.2.1/")

    async with connected(redirect) as transport:
        assert (await transport.request("GET", "/x", query={}, timeout_s=60.0)).status == 302
        async with transport.stream("/x", query={"watch": "1"}, timeout_s=60.0) as (head, _):
            assert head.status == 302


async def test_a_write_whose_deadline_passed_while_the_process_was_stopped_is_not_sent() -> None:
    arrived, stops_s = [], iter([0.0, 0.4, 0.0])

    async def note(request: web.Request) -> web.StreamResponse:
        arrived.append(await request.text())
        return web.Response()

    async def authorization() -> str:
        # Asked for last before the bytes leave. Blocks the loop, so no timer has fired when it goes on.
        time.sleep(next(stops_s))  # noqa: ASYNC251 - the block is the case
        return "Bearer x"

    async with (
        serving(note) as url,
        HttpTransport(config.Credentials(server=url, authorization=authorization)) as transport,
    ):
        await transport.request("POST", "/x", query={}, body=b"before", timeout_s=60.0)
        with pytest.raises(errors.Unreachable):
            await transport.request("POST", "/x", query={}, body=b"late", timeout_s=0.2)
        await transport.request("POST", "/x", query={}, body=b"after", timeout_s=60.0)
    assert arrived == ["before", "after"]


@pytest.mark.thorough
async def test_a_call_that_is_given_up_leaves_nothing_in_the_kernel_to_be_delivered_later() -> None:
    ended: list[str] = []

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        try:
            ended.append("closed" if not await reader.read() else "more came")
        except ConnectionResetError:
            ended.append("reset")
        writer.close()

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with HttpTransport(config.plain(f"http://127.0.0.1:{port}")) as transport:
            with pytest.raises(errors.Timeout):
                await transport.request("POST", "/x", query={}, body=b"{}", timeout_s=1.0)
            with anyio.fail_after(60):
                while not ended:  # noqa: ASYNC110 - told by plain data
                    await anyio.sleep(0.01)
    assert ended == ["reset"]


@pytest.mark.parametrize("form", ["with its length", "chunked", "without an end"])
async def test_a_body_above_its_limit_is_not_read_and_its_connection_is_closed(form: str) -> None:
    sent = {"bytes": 0}
    ended = anyio.Event()

    async def flood(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if form == "with its length":
            response.content_length = 1 << 30
        await response.prepare(request)
        try:
            for _ in range(1 << 10 if form != "without an end" else 1 << 20):
                await response.write(b"x" * (1 << 20))
                sent["bytes"] += 1 << 20
        except ConnectionError:
            pass
        ended.set()
        return response

    async with connected(flood) as transport:
        with pytest.raises(errors.TooLarge, match="GET /x: the answer is longer than 2000000 bytes"):
            await transport.request("GET", "/x", query={}, timeout_s=60.0, most_bytes=2_000_000)
        with anyio.fail_after(60):
            await ended.wait()
    assert sent["bytes"] < 64 << 20


@pytest.mark.parametrize("is_chunked", [True, False])
async def test_a_body_as_long_as_its_limit_is_read(*, is_chunked: bool) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        response = web.Response(body=b"x" * 200_000)
        if is_chunked:
            response.enable_chunked_encoding()
        return response

    async with connected(answer) as transport:
        response = await transport.request("GET", "/x", query={}, timeout_s=60.0, most_bytes=200_000)
    assert len(response.body) == 200_000


@pytest.mark.parametrize("is_chunked", [True, False])
async def test_a_long_refusal_is_cut_and_says_what_it_is(*, is_chunked: bool) -> None:
    async def refuse(_request: web.Request) -> web.StreamResponse:
        response = web.Response(status=409, body=b"x" * 10_000_000)
        if is_chunked:
            response.enable_chunked_encoding()
        return response

    async with connected(refuse) as transport:
        response = await transport.request("GET", "/x", query={}, timeout_s=60.0)
        assert (response.status, len(response.body)) == (409, ERROR_BYTES)
        async with transport.stream("/x", query={}, timeout_s=60.0) as (head, _):
            assert (head.status, len(head.body)) == (409, ERROR_BYTES)


@pytest.mark.parametrize(
    "name", ["x?watch=true", "a#b", "two words", "ä", "...", "a&b=c;d", "a+b", "~", "(a)", "[a]", "a:b@c"]
)
async def test_the_path_of_any_name_arrives_byte_for_byte(name: str) -> None:
    seen: list[str] = []

    async def note(request: web.Request) -> web.StreamResponse:
        seen.append(request.raw_path)
        return web.json_response({})

    path = PODS.path("ns", name)
    async with (
        serving(note) as url,
        HttpTransport(config.plain(url)) as transport,
        HttpReads(config.plain(url), user_agent="moorage-test") as reads,
    ):
        await transport.request("GET", path, query={}, timeout_s=60.0)
        await reads.request("GET", path, query={}, timeout_s=60.0)
        async with transport.stream(path, query={}, timeout_s=60.0) as (head, _):
            assert head.status == 200
    assert seen == [path] * 3


@pytest.mark.parametrize("path", ["/a/../b", "/a/./b", "/..", "/a?watch=true", "/a#b", "/a b", "/ä", "a", "", "/a%2"])
async def test_a_path_that_says_more_than_where_is_not_sent(path: str) -> None:
    async def note(_request: web.Request) -> web.StreamResponse:
        raise AssertionError("nothing was to be sent")

    async with (
        serving(note) as url,
        HttpTransport(config.plain(url)) as transport,
        HttpReads(config.plain(url), user_agent="moorage-test") as reads,
    ):
        for each in (transport, reads):
            with pytest.raises(ValueError, match="not a path of quoted segments"):
                await each.request("GET", path, query={}, timeout_s=60.0)
        with pytest.raises(ValueError, match="not a path of quoted segments"):
            async with transport.stream(path, query={}, timeout_s=60.0):
                pass


async def test_a_slow_head_ends_in_a_timeout() -> None:
    async def slow(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    async with connected(slow) as transport:
        with pytest.raises(errors.Timeout):
            await transport.request("GET", "/x", query={}, timeout_s=0.1)
        with pytest.raises(errors.Timeout):
            async with transport.stream("/x", query={}, timeout_s=0.1):
                pass


async def test_a_body_that_never_ends_ends_in_a_timeout() -> None:
    async with connected(watch_of(b"{", then=30.0)) as transport:
        with pytest.raises(errors.Timeout):
            await transport.request("GET", "/x", query={}, timeout_s=0.1)


async def test_nobody_there_is_unreachable(free_tcp_port: int) -> None:
    async with HttpTransport(config.plain(f"http://127.0.0.1:{free_tcp_port}")) as transport:
        with pytest.raises(errors.Unreachable):
            await transport.request("GET", "/x", query={}, timeout_s=60.0)
        with pytest.raises(errors.Unreachable):
            async with transport.stream("/x", query={}, timeout_s=60.0):
                pass


async def test_a_connection_cut_before_the_answer_is_unreachable_and_the_write_is_sent_once() -> None:
    seen: list[str] = []

    async def cut(request: web.Request) -> web.StreamResponse:
        seen.append(await request.text())
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with connected(cut) as transport:
        with pytest.raises(errors.Unreachable):
            await transport.request("POST", "/x", query={}, body=b"{}", timeout_s=60.0)
    assert seen == ["{}"]


async def test_a_cancelled_request_gives_its_connection_back() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path == "/slow":
            await asyncio.sleep(30)
        return web.Response(text="ok")

    async with serving(handler) as url, HttpTransport(config.plain(url), connections=1) as transport:
        for _ in range(3):
            with anyio.move_on_after(0.05):
                await transport.request("GET", "/slow", query={}, timeout_s=60.0)
        assert (await transport.request("GET", "/quick", query={}, timeout_s=60.0)).body == b"ok"


async def test_use_outside_its_context_is_refused() -> None:
    with pytest.raises(RuntimeError, match="outside"):
        await HttpTransport(config.plain("http://127.0.0.1:1")).request("GET", "/x", query={}, timeout_s=1.0)


# --- watches ------------------------------------------------------------------------------------------------------
async def test_lines_come_whole_however_they_are_cut() -> None:
    async with connected(watch_of(b"one\ntw", b"o\n\nth", b"re", b"e\n")) as transport:
        assert await read_all(transport) == [b"one", b"two", b"three"]


async def test_a_line_of_many_megabytes_is_a_line() -> None:
    long = b"x" * LINE_BYTES
    async with connected(watch_of(b"short\n", long + b"\nshort\n")) as transport:
        assert await read_all(transport) == [b"short", long, b"short"]


@pytest.mark.parametrize("end", [b"", b"\n"])
async def test_a_line_above_its_limit_ends_the_watch_and_its_connection(end: bytes) -> None:
    long = b"x" * (LINE_BYTES + 1)
    async with connected(watch_of(b"short\n", long + end, then=30.0)) as transport:
        lines: list[bytes] = []
        with pytest.raises(errors.TooLarge, match="WATCH /x: the answer is longer than 16778240 bytes"):
            async with transport.stream("/x", query={}, timeout_s=60.0) as (_, came):
                lines += [line async for line in came]
    assert len(lines) <= 1


async def test_a_cut_connection_is_unreachable_after_the_lines_that_came() -> None:
    async with (
        connected(watch_of(b"one\n", cut=True, then=0.1)) as transport,
        transport.stream("/x", query={}, timeout_s=60.0) as (_, lines),
    ):
        assert await anext(lines) == b"one"
        with pytest.raises(errors.Unreachable):
            await anext(lines)


async def test_a_stream_that_ends_inside_a_line_is_broken() -> None:
    async with connected(watch_of(b'one\n{"type": "ADD')) as transport:
        with pytest.raises(errors.Unreachable, match="inside a line"):
            await read_all(transport)


async def test_a_refused_watch_is_its_whole_answer() -> None:
    async def gone(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"reason": "Expired"}, status=410)

    async with connected(gone) as transport, transport.stream("/x", query={}, timeout_s=60.0) as (head, lines):
        assert (head.status, head.body) == (410, b'{"reason": "Expired"}')
        assert [line async for line in lines] == []


async def test_a_watch_left_early_gives_its_connection_back() -> None:
    handler = watch_of(b"one\n", b"two\n", then=30.0)
    async with serving(handler) as url, HttpTransport(config.plain(url), connections=1) as transport:
        for _ in range(3):
            async with transport.stream("/x", query={}, timeout_s=60.0) as (_, lines):
                assert await anext(lines) == b"one"


# --- identity -----------------------------------------------------------------------------------------------------
async def test_the_token_is_sent_and_asked_for_each_time() -> None:
    tokens = iter(["Bearer one", "Bearer two"])

    async def authorization() -> str:
        return next(tokens)

    async def who(request: web.Request) -> web.StreamResponse:
        return web.Response(text=request.headers["Authorization"])

    async with serving(who) as url:
        credentials = config.Credentials(server=url, authorization=authorization)
        async with HttpTransport(credentials) as transport:
            said = [(await transport.request("GET", "/", query={}, timeout_s=60.0)).body for _ in range(2)]
    assert said == [b"Bearer one", b"Bearer two"]


async def test_one_connection_carries_several_identities() -> None:
    def bearer(token: str) -> config.Authorization:
        async def authorization() -> str:
            return f"Bearer {token}"

        return authorization

    async def who(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        port = request.transport.get_extra_info("peername")[1]
        return web.Response(text=f"{request.headers['Authorization']} from {port}")

    async with serving(who) as url, HttpTransport(config.plain(url, token="own")) as transport:
        carriers = (transport, transport.under(bearer("a")), transport.under(bearer("b")), transport)
        said = [(await each.request("GET", "/", query={}, timeout_s=60.0)).body.decode() for each in carriers]
    assert [line.split(" from ")[0] for line in said] == ["Bearer own", "Bearer a", "Bearer b", "Bearer own"]
    assert len({line.split(" from ")[1] for line in said}) == 1


def test_a_client_certificate_leaves_no_room_for_another_identity() -> None:
    transport = HttpTransport(config.Credentials(server="https://127.0.0.1:1", client_cert_file="admin.crt"))
    with pytest.raises(ValueError, match="one identity"):
        transport.under(config.TokenFile(Path("token")))


def _certificate(folder: Path) -> tuple[Path, Path, Path]:
    """Files: an authority, its certificate for api.test (as a server and as a client), and the private key."""
    files = folder / "ca.crt", folder / "tls.crt", folder / "tls.key"
    authority = CA()
    issued = authority.issue_cert("api.test", common_name="api.test")
    for file, pem in zip(files, (authority.cert_pem, issued.cert_chain_pems[0], issued.private_key_pem), strict=True):
        pem.write_to_path(file)
    return files


@pytest.mark.parametrize("path", ["ca named", "ca unknown"])
async def test_the_server_is_checked_against_the_clusters_ca(path: str, tmp_path: Path) -> None:
    authority, certificate, key = _certificate(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)

    async def hello(_request: web.Request) -> web.StreamResponse:
        return web.Response(text="hello")

    async with serving(hello, tls=tls) as url:
        ca_file = str(authority) if path == "ca named" else ""
        credentials = config.Credentials(server=url, ca_file=ca_file, tls_server_name="api.test")
        async with HttpTransport(credentials) as transport:
            if ca_file:
                answer: Response = await transport.request("GET", "/", query={}, timeout_s=60.0)
                assert answer.body == b"hello"
            else:
                with pytest.raises(errors.Unreachable, match="certificate verify failed"):
                    await transport.request("GET", "/", query={}, timeout_s=60.0)


@pytest.mark.parametrize("shown", ["files", "data", ""])
async def test_a_client_certificate_is_shown_to_the_server(shown: str, tmp_path: Path) -> None:
    authority, certificate, key = _certificate(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority))
    tls.load_cert_chain(certificate, key)
    tls.verify_mode = ssl.CERT_REQUIRED

    async def who(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        return web.json_response(request.transport.get_extra_info("peercert")["subject"])

    async with serving(who, tls=tls) as url:
        credentials = config.Credentials(
            server=url,
            ca_file="" if shown == "data" else str(authority),
            client_cert_file=str(certificate) if shown == "files" else "",
            client_key_file=str(key),
            ca_data=authority.read_bytes() if shown == "data" else b"",
            client_cert_data=certificate.read_bytes() if shown == "data" else b"",
            client_key_data=key.read_bytes() if shown == "data" else b"",
            tls_server_name="api.test",
        )
        async with HttpTransport(credentials) as transport:
            if shown:
                answer = await transport.request("GET", "/", query={}, timeout_s=60.0)
                assert json.loads(answer.body)[-1] == [["commonName", "api.test"]]
            else:
                with pytest.raises(errors.Unreachable):
                    await transport.request("GET", "/", query={}, timeout_s=60.0)


async def test_each_request_says_as_whom_it_is_made() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response(request.headers.getall("Impersonate-Group"))

    async with serving(handler) as url:
        groups = (("Impersonate-Group", "dev"), ("Impersonate-Group", "ops"))
        async with HttpTransport(config.Credentials(server=url, headers=groups)) as transport:
            answer = await transport.request("GET", "/", query={}, timeout_s=5.0)
    assert json.loads(answer.body) == ["dev", "ops"]


async def test_of_kinds_of_which_names_are_read_the_server_is_asked_for_metadata_alone() -> None:
    asked: list[tuple[str, str]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(("watch" if "watch" in request.query else "list", request.headers["Accept"]))
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})

    async with connected(handler) as transport:
        api = Api(transport, retry=Retry(random.Random(1)))
        kinds: tuple[Resource[Any], ...] = (PODS, CONFIG_MAP_NAMES)
        for resource in kinds:
            await api.list(resource)
            async with api.stream(resource, {}):
                pass
    kind = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
    plain = "application/json"
    assert asked == [("list", plain), ("watch", plain), ("list", kind.format("List")), ("watch", kind.format(""))]


# --- with the calls above it --------------------------------------------------------------------------------------
