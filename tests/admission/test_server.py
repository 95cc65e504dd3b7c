"""The webhooks over TLS on loopback, in real time: what is waited for is an answer, never a while."""

from __future__ import annotations

import contextlib
import io
import random
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import msgspec
import pytest
from anyio.streams.tls import TLSAttribute
from typing_extensions import override

from admission.certificates.pair import ServingCertificate, serving_certificate
from admission.certificates.tls import Files, FilesShown
from admission.connections import Limits
from admission.objects.queue import Others
from admission.objects.review import ObjectAdmission
from admission.review import PodAdmission
from admission.server import (
    MUTATE_PATH,
    POD_GROUP_PATH,
    QUEUE_PATH,
    VALIDATE_PATH,
    Answered,
    Endpoint,
    ReviewAnswered,
    WebhookServer,
)
from admission.settings import Settings
from kube.client.clock import SystemClock
from kube.telemetry.logevents import EventSink, ignore
from tests.admission.objects.queues import Raw, beside, group_review, queue, queue_review, raw, raw_group
from tests.admission.pods import env, half, patched, pod, review
from wire import names

NO_HURRY = Limits()


def certificate() -> ServingCertificate:
    return serving_certificate(addresses=["127.0.0.1"], now_ns=SystemClock().now_ns())


class Site:
    """A running server and a way to ask it."""

    def __init__(self, server: WebhookServer, folder: Path, port: int) -> None:
        self.server = server
        self.folder = folder
        self.port = port
        self._url = f"https://127.0.0.1:{port}"

    @asynccontextmanager
    async def session(self, ca: bytes) -> AsyncIterator[aiohttp.ClientSession]:
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=ca.decode()))
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(self._url, connector=connector, timeout=timeout) as session:
            yield session

    def show(self, certificate: bytes, key: bytes) -> None:
        (self.folder / "tls.crt").write_bytes(certificate)
        (self.folder / "tls.key").write_bytes(key)


class Seen:
    """Keeps how reviews were answered."""

    def __init__(self) -> None:
        self._put, self._seen = anyio.create_memory_object_stream[Answered](10)

    def take(self, event: ReviewAnswered) -> None:
        self._put.send_nowait(event.answered)

    async def receive(self) -> Answered:
        """Wait for the next."""
        with self._put, self._seen:
            return await self._seen.receive()


Serve = Callable[..., Any]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    @asynccontextmanager
    async def run(
        made: ServingCertificate,
        *,
        ready: Callable[[], bool] = lambda: True,
        emit: EventSink[ReviewAnswered] = ignore,
        limits: Limits = NO_HURRY,
        admission: PodAdmission | None = None,
        objects: ObjectAdmission | None = None,
    ) -> AsyncIterator[Site]:
        shown = FilesShown(Files(certificate=tmp_path / "tls.crt", key=tmp_path / "tls.key", reload_s=0.02))
        endpoint = Endpoint(host="127.0.0.1", port=0, drain_s=0.3, limits=limits)
        judging = admission or PodAdmission(Settings(), rng=random.Random(1))
        server = WebhookServer(judging, endpoint, shown, is_ready=ready, emit=emit, objects=objects)
        site = Site(server, tmp_path, 0)
        site.show(made.certificate, made.key)
        async with anyio.create_task_group() as tasks:
            port = await tasks.start(server.run)
            yield Site(server, tmp_path, port)
            tasks.cancel_scope.cancel()

    return run


async def test_a_pod_is_mutated_and_validated_over_tls(serve: Serve) -> None:
    made = certificate()
    async with serve(made) as site, site.session(made.ca) as session:
        async with session.post(MUTATE_PATH + "?timeout=5s", json=review(half())) as answer:
            assert (answer.status, answer.content_type) == (200, "application/json")
            result = patched(half(), await answer.json())
        assert names.ENV_GPU_PORTION in env(result)
        async with session.post(VALIDATE_PATH, json=review(pod(annotations={names.GPU_FRACTION: "2"}))) as answer:
            assert (await answer.json())["response"]["allowed"] is False


async def test_a_queue_is_judged_by_the_queues_that_are_read_for_it(serve: Serve) -> None:
    async def stored() -> Others:
        return beside(queue("b", "a"))

    made = certificate()
    async with serve(made, objects=ObjectAdmission(stored)) as site, site.session(made.ca) as session:
        async with session.post(QUEUE_PATH + "?timeout=5s", json=queue_review(raw("a", "b"))) as answer:
            assert "queue a would be below itself" in (await answer.json())["response"]["status"]["message"]
        async with session.post(QUEUE_PATH, json={"kind": "Letter"}) as answer:
            assert answer.status == 400


async def test_a_group_is_judged(serve: Serve) -> None:
    made = certificate()
    asked = group_review(raw_group({"name": "a"}))
    async with (
        serve(made) as site,
        site.session(made.ca) as session,
        session.post(POD_GROUP_PATH, json=asked) as answer,
    ):
        assert "minMember is required" in (await answer.json())["response"]["status"]["message"]


async def test_pods_are_admitted_while_queues_are_read(serve: Serve) -> None:
    asked, goes_on = anyio.Event(), anyio.Event()

    async def stored() -> Others:
        asked.set()
        await goes_on.wait()
        return beside()

    made = certificate()
    async with (
        serve(made, objects=ObjectAdmission(stored)) as site,
        site.session(made.ca) as session,
        anyio.create_task_group() as tasks,
    ):

        async def is_allowed(path: str, body: Raw) -> None:
            async with session.post(path, json=body) as answer:
                assert (await answer.json())["response"]["allowed"]

        tasks.start_soon(is_allowed, QUEUE_PATH, queue_review(raw("a")))
        await asked.wait()
        await is_allowed(MUTATE_PATH, review(half()))
        goes_on.set()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"kind":"AdmissionReview"}',
        b'"\xff"',
        b'{"a":"\\ud800"}',
        b"[" * 100_000,
        msgspec.json.encode(review({"spec": 1})),
    ],
)
@pytest.mark.parametrize("path", [MUTATE_PATH, VALIDATE_PATH])
async def test_a_malformed_review_is_answered_with_400(serve: Serve, path: str, body: bytes) -> None:
    made = certificate()
    async with serve(made) as site, site.session(made.ca) as session, session.post(path, data=body) as answer:
        assert answer.status == 400
        assert (await answer.text()).startswith("malformed review: ")


async def test_a_review_that_is_too_large_is_not_read(serve: Serve) -> None:
    made = certificate()
    async with serve(made) as site, site.session(made.ca) as session:
        async with session.post(MUTATE_PATH, data=io.BytesIO(b" " * (8 * 2**20 + 1))) as answer:
            assert answer.status == 413
        async with session.post(MUTATE_PATH, json=review(half())) as answer:
            assert answer.status == 200


async def test_it_is_ready_once_what_it_needs_is_there(serve: Serve) -> None:
    made, known = certificate(), [False]
    async with serve(made, ready=lambda: known[0]) as site, site.session(made.ca) as session:
        for path, status in (("/healthz", 200), ("/readyz", 503)):
            async with session.get(path) as answer:
                assert answer.status == status
        known[0] = True
        async with session.get("/readyz") as answer:
            assert answer.status == 200


async def test_a_draining_server_is_not_ready_but_still_answers_and_then_ends(serve: Serve) -> None:
    made = certificate()
    async with serve(made) as site:
        async with site.session(made.ca) as session:
            site.server.stop()
            async with session.get("/readyz") as answer:
                assert (answer.status, await answer.text()) == (503, "draining")
            async with session.post(MUTATE_PATH, json=review(half())) as answer:
                assert answer.status == 200
                assert answer.headers["Connection"] == "close", "the next review goes to another replica"
        with anyio.fail_after(60):
            await site.server.stopped.wait()
        async with site.session(made.ca) as session:
            with pytest.raises(aiohttp.ClientConnectionError):
                await session.get("/healthz")


async def test_a_connection_is_kept_and_gets_no_session_tickets(serve: Serve) -> None:
    made = certificate()
    async with serve(made) as site:
        tls = ssl.create_default_context(cadata=made.ca.decode())
        async with await anyio.connect_tcp("127.0.0.1", site.port, ssl_context=tls, tls_hostname="127.0.0.1") as stream:
            for _ in range(2):
                await stream.send(b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await stream.receive()).startswith(b"HTTP/1.1 200 OK\r\n")
            ours = stream.extra(TLSAttribute.ssl_object)  # noqa: S610 - not Django's
            assert ours.version() == "TLSv1.3"
            assert ours.session is not None
            assert not ours.session.has_ticket


async def test_what_is_no_http_is_answered_and_fills_no_log(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    made = certificate()
    async with serve(made) as site:
        tls = ssl.create_default_context(cadata=made.ca.decode())
        async with await anyio.connect_tcp("127.0.0.1", site.port, ssl_context=tls, tls_hostname="127.0.0.1") as stream:
            await stream.send(b"GET / HTTP/1.1\r\n\r\n")
            assert (await stream.receive()).startswith(b"HTTP/1.0 400 Bad Request\r\n")
    assert not caplog.records


async def test_who_goes_in_the_middle_of_a_review_is_counted_and_fills_no_log(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    made, seen = certificate(), Seen()
    async with serve(made, emit=seen.take) as site:
        tls = ssl.create_default_context(cadata=made.ca.decode())
        stream = await anyio.connect_tcp("127.0.0.1", site.port, ssl_context=tls, tls_hostname="127.0.0.1")
        await stream.send(f"POST {MUTATE_PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{{".encode())
        await anyio.aclose_forcefully(stream)
        with anyio.fail_after(60):
            assert await seen.receive() is Answered.FAILED
    assert not caplog.records


@pytest.mark.thorough
async def test_who_sends_half_a_review_and_no_more_is_let_go(serve: Serve) -> None:
    made, seen = certificate(), Seen()
    async with serve(made, emit=seen.take, limits=Limits(body_s=0.05)) as site:
        tls = ssl.create_default_context(cadata=made.ca.decode())
        stream = await anyio.connect_tcp("127.0.0.1", site.port, ssl_context=tls, tls_hostname="127.0.0.1")
        await stream.send(f"POST {MUTATE_PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{{".encode())
        with anyio.fail_after(60):
            assert (await stream.receive()).startswith(b"HTTP/1.1 408 ")
            with contextlib.suppress(anyio.EndOfStream):
                while True:
                    await stream.receive()
            assert await seen.receive() is Answered.FAILED
        await anyio.aclose_forcefully(stream)


async def test_a_renewed_certificate_is_shown_to_new_connections(serve: Serve) -> None:
    old, new = certificate(), certificate()
    async with serve(old) as site:
        site.show(b"no certificate", old.key)
        assert await _is_trusted(site, old.ca), "a broken file must not end what works"
        site.show(new.certificate, new.key)
        with anyio.fail_after(60):
            while not await _is_trusted(site, new.ca):
                pass
        assert not await _is_trusted(site, old.ca)


async def _is_trusted(site: Site, ca: bytes) -> bool:
    async with site.session(ca) as session:
        try:
            async with session.get("/healthz") as answer:
                return answer.status == 200
        except aiohttp.ClientConnectorCertificateError:
            return False


async def test_a_certificate_that_is_broken_from_the_start_is_an_error(tmp_path: Path) -> None:
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_text("nothing")
    shown = FilesShown(Files(certificate=tmp_path / "tls.crt", key=tmp_path / "tls.key"))
    endpoint = Endpoint(host="127.0.0.1", port=0)
    server = WebhookServer(PodAdmission(Settings(), rng=random.Random(1)), endpoint, shown, is_ready=lambda: True)
    with pytest.raises(ssl.SSLError):
        await server.run()


class Judged(PodAdmission):
    """Counts what is judged."""

    count = 0

    @override
    def mutating(self, review: dict[str, Any]) -> dict[str, Any]:
        self.count += 1
        return super().mutating(review)


async def test_a_review_whose_caller_waits_no_more_is_not_judged(serve: Serve) -> None:
    made = certificate()
    judged = Judged(Settings(), rng=random.Random(1))
    async with serve(made, admission=judged) as site, site.session(made.ca) as session:
        for query, status in (
            ("?timeout=0s", 408),
            ("?timeout=0ms", 408),
            ("?timeout=10s", 200),
            ("?timeout=soon", 200),
        ):
            async with session.post(MUTATE_PATH + query, json=review(half())) as answer:
                assert answer.status == status
    assert judged.count == 2
