from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import unquote

import anyio
import pytest
from aiohttp import web
from trustme import CA

from kube.client import config, errors
from kube.client.http import HttpTransport
from kube.client.http_reads import HttpReads
from kube.client.transport import ERROR_BYTES, Response

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def answering(*answers: Sequence[bytes]) -> AsyncIterator[tuple[str, list[int]]]:
    """A server whose Nth connection gives the Nth answers, one a request, and ends. Also: requests seen by each."""
    seen: list[int] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        at = len(seen)
        seen.append(0)
        for each in answers[at]:
            try:
                await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            seen[at] += 1
            writer.write(each)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", seen


def reads(credentials: config.Credentials) -> HttpReads:
    return HttpReads(credentials, user_agent="moorage-test")


async def got(transport: HttpReads | HttpTransport, path: str = "/x", timeout_s: float = 60.0) -> Response:
    return await transport.request("GET", path, query={}, timeout_s=timeout_s)


# --- requests and answers -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/api/v1/pods", {}),
        ("/api/v1/namespaces/a/pods/b", {"labelSelector": "a in (b,c),!d=e&f", "limit": "500", "continue": "a+/="}),
        ("/api/v1/nodes/two%20words", {"fieldSelector": "spec.nodeName=ä"}),
    ],
)
async def test_a_request_arrives_as_the_other_transport_makes_it(path: str, query: dict[str, str]) -> None:
    async def echo(request: web.Request) -> web.StreamResponse:
        headers = {name: value for name, value in sorted(request.headers.items()) if name != "Host"}
        return web.json_response([request.method, request.path, dict(request.query), headers])

    async with serving(echo) as url:
        credentials = config.Credentials(server=f"{url}/behind", headers=(("Impersonate-User", "jane"),))
        async with reads(credentials) as ours, HttpTransport(credentials, user_agent="moorage-test") as other:
            said = [
                json.loads((await each.request("GET", path, query=query, timeout_s=60.0)).body)
                for each in (ours, other)
            ]
    assert said[0] == said[1]
    assert said[0][1] == f"/behind{unquote(path)}"
    assert said[0][3]["Impersonate-User"] == "jane"


@pytest.mark.parametrize("status", [200, 204, 302, 304, 403, 410, 500])
@pytest.mark.parametrize("is_chunked", [True, False], ids=["chunked", "with its length"])
async def test_an_answer_is_what_the_other_transport_makes_of_it(status: int, *, is_chunked: bool) -> None:
    length = 3_000_000 if status < 300 else ERROR_BYTES
    body = b"" if status in {204, 304} else b"x" * length

    async def answer(_request: web.Request) -> web.StreamResponse:
        response = web.Response(status=status, body=body, headers={"Retry-After": "3", "Date": "then"})
        if is_chunked and body:
            response.enable_chunked_encoding()
        return response

    async with serving(answer) as url, reads(config.plain(url)) as ours, HttpTransport(config.plain(url)) as other:
        assert await got(ours) == await got(other)
        assert (await got(ours)).body == body


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-LENGTH:  2 \r\n\r\nok", b"ok"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil it ends", b"until it ends"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\nTrailer: c\r\n\r\n", b"ok"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n",
         b"0123456789"),
    ],
)  # fmt: skip
async def test_every_form_of_an_answer_is_read(answer: bytes, body: bytes) -> None:
    async with answering([answer]) as (url, _), reads(config.plain(url)) as transport:
        response = await got(transport)
    assert (response.status, response.body) == (200, body)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "closed the connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "bytes read"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", "2 bytes read on a total of 3"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\nok", "length of -3"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nok", "many"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok", "'gzip'; allowed is chunked"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nlonger\r\n0\r\n\r\n", "longer than"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", "0 bytes read"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "does not answer in HTTP/1: 'SSH"),
        (b"HTTP/1.1 OK\r\n\r\n", "does not answer in HTTP/1"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"x" * (1 << 21), "imit"),
    ],
)
async def test_no_whole_answer_is_unreachable(answer: bytes, said: str) -> None:
    async with answering([answer]) as (url, _), reads(config.plain(url)) as transport:
        with pytest.raises(errors.Unreachable, match=said):
            await got(transport)


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 1001\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n200\r\n" + b"x" * 0x200 + b"\r\nFFFFFFFF\r\n",
        b"\r\n",
    ],
    ids=["with its length", "chunked", "until it ends"],
)
async def test_a_body_above_its_limit_is_not_read_and_its_connection_is_not_kept(head: bytes) -> None:
    answers = [[b"HTTP/1.1 200 OK\r\n" + head + b"x" * 1001], [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"]]
    async with answering(*answers) as (url, seen), reads(config.plain(url)) as transport:
        with pytest.raises(errors.TooLarge, match="GET /x: the answer is longer than 1000 bytes"):
            await transport.request("GET", "/x", query={}, timeout_s=60.0, most_bytes=1000)
        assert (await got(transport)).body == b"ok"
    assert seen == [1, 1]


@pytest.mark.parametrize("head", [b"Content-Length: 70000\r\n\r\n", b"\r\n"])
async def test_a_long_refusal_is_cut_and_says_what_it_is(head: bytes) -> None:
    async with (
        answering([b"HTTP/1.1 403 Forbidden\r\n" + head + b"x" * 70_000]) as (url, _),
        reads(config.plain(url)) as transport,
    ):
        response = await got(transport)
    assert (response.status, len(response.body)) == (403, ERROR_BYTES)


@pytest.mark.parametrize("server", ["ftp://127.0.0.1", "127.0.0.1:6443", "http://127.0.0.1:port", "http://"])
async def test_what_is_no_address_is_unreachable(server: str) -> None:
    async with reads(config.plain(server)) as transport:
        with pytest.raises(errors.Unreachable):
            await got(transport)


async def test_nobody_there_is_unreachable(free_tcp_port: int) -> None:
    async with reads(config.plain(f"http://127.0.0.1:{free_tcp_port}")) as transport:
        with pytest.raises(errors.Unreachable, match=r"GET /x: .*Connect"):
            await got(transport)


@pytest.mark.parametrize("begun", [b"", b"{"], ids=["no head", "no end"])
async def test_a_slow_answer_ends_in_a_timeout_and_its_connection_is_not_used_again(begun: bytes) -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        if request.path != "/slow":
            return web.Response(text="ok")
        response = web.StreamResponse()
        if begun:
            await response.prepare(request)
            await response.write(begun)
        await asyncio.sleep(30)
        return response

    async with serving(slow) as url, reads(config.plain(url)) as transport:
        with pytest.raises(errors.Timeout):
            await got(transport, "/slow", timeout_s=0.1)
        assert (await got(transport)).body == b"ok"


# --- connections --------------------------------------------------------------------------------------------------
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_LAST = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.parametrize(
    ("answers", "seen"),
    [
        ([[_OK, _OK, _OK]], [3]),
        ([[_LAST, _OK], [_OK, _OK]], [1, 2]),
        ([[_OK], [_OK, _OK]], [1, 2]),  # the server closes a connection that is idle
        ([[_OK, b""], [_OK, _OK]], [2, 2]),  # ... after the request has left
    ],
    ids=["kept", "given up as told", "closed before", "closed in between"],
)
async def test_a_connection_carries_one_request_after_another(answers: list[list[bytes]], seen: list[int]) -> None:
    async with answering(*answers) as (url, counted), reads(config.plain(url)) as transport:
        for _ in range(3):
            assert (await got(transport)).body == b"ok"
    assert counted == seen


async def test_an_answer_that_breaks_off_on_a_kept_connection_is_not_asked_for_again() -> None:
    async with answering([_OK, b"HTTP/1.1 2"], [_OK]) as (url, seen), reads(config.plain(url)) as transport:
        await got(transport)
        with pytest.raises(errors.Unreachable):
            await got(transport)
    assert seen == [2]


async def test_requests_at_the_same_time_have_connections_of_their_own() -> None:
    both = anyio.Event()
    waiting: list[str] = []

    async def wait(request: web.Request) -> web.StreamResponse:
        waiting.append(request.path)
        if len(waiting) == 2:
            both.set()
        await both.wait()
        return web.Response(text=request.path)

    found: dict[str, bytes] = {}
    async with serving(wait) as url, reads(config.plain(url)) as transport:

        async def ask(path: str) -> None:
            found[path] = (await got(transport, path)).body

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, "/a")
                tasks.start_soon(ask, "/b")
    assert found == {"/a": b"/a", "/b": b"/b"}


# --- what is not for it -------------------------------------------------------------------------------------------
async def test_writes_watches_and_proxies_are_refused() -> None:
    async with reads(config.plain("http://127.0.0.1:1")) as transport:
        with pytest.raises(ValueError, match="POST: only GET"):
            await transport.request("POST", "/x", query={}, body=b"{}", timeout_s=1.0)
        with pytest.raises(ValueError, match="only GET"):
            await transport.request("GET", "/x", query={}, body=b"{}", timeout_s=1.0)
        with pytest.raises(ValueError, match="WATCH /x"):
            transport.stream("/x", query={}, timeout_s=1.0)
    with pytest.raises(ValueError, match="proxy"):
        reads(config.Credentials(server="http://127.0.0.1:1", proxy="http://127.0.0.1:2"))


# --- identity -----------------------------------------------------------------------------------------------------
async def test_the_token_is_asked_for_each_time_and_can_not_write_headers() -> None:
    tokens = iter(["Bearer one", "Bearer two", "Bearer three\r\nImpersonate-User: root"])

    async def authorization() -> str:
        return next(tokens)

    async def who(request: web.Request) -> web.StreamResponse:
        return web.Response(text=request.headers["Authorization"])

    async with serving(who) as url, reads(config.Credentials(server=url, authorization=authorization)) as transport:
        assert [(await got(transport)).body for _ in range(2)] == [b"Bearer one", b"Bearer two"]
        with pytest.raises(errors.Unreachable, match="Authorization: its value has a line break"):
            await got(transport)


@pytest.mark.parametrize("known", ["ca and certificate", "ca alone", "nothing"])
async def test_the_server_is_checked_and_our_certificate_shown(known: str, tmp_path: Path) -> None:
    authority = CA()
    issued = authority.issue_cert("api.test", common_name="api.test")
    (tmp_path / "tls.pem").write_bytes(issued.private_key_and_cert_chain_pem.bytes())
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.cert_pem.bytes().decode())
    tls.load_cert_chain(tmp_path / "tls.pem")
    tls.verify_mode = ssl.CERT_REQUIRED

    async def who(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        return web.json_response(request.transport.get_extra_info("peercert")["subject"])

    pem = str(tmp_path / "tls.pem") if known == "ca and certificate" else ""
    async with serving(who, tls=tls) as url:
        credentials = config.Credentials(
            server=url,
            ca_data=b"" if known == "nothing" else authority.cert_pem.bytes(),
            client_cert_file=pem,
            client_key_file=pem,
            tls_server_name="api.test",
        )
        async with reads(credentials) as transport:
            if pem:
                assert json.loads((await got(transport)).body)[-1] == [["commonName", "api.test"]]
            else:
                said = "certificate verify failed" if known == "nothing" else "closed the connection"
                with pytest.raises(errors.Unreachable, match=said):
                    await got(transport)
