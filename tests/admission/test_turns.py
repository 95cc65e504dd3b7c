"""Reviews are judged one at a time: between two of them everything else is served, and who has gone is passed over.

The server runs in this process, on loopback over TLS. What many callers send at one moment is sent while a review is
being judged, since the server reads nothing then: so nothing here depends on time.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
from typing_extensions import override

from admission.review import PodAdmission
from admission.server import MUTATE_PATH, Answered, ReviewAnswered
from admission.settings import Settings
from tests.admission.pods import half, pod, review
from tests.admission.test_server import Serve, Site, certificate, serve

__all__ = ["serve"]

CALLERS: Final = 30
HEALTH: Final = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


def _asked(pod_: dict[str, Any]) -> bytes:
    body = msgspec.json.encode(review(pod_))
    return f"POST {MUTATE_PATH}?timeout=10s HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


class Judged(PodAdmission):
    """Counts what is judged, and does something in each review."""

    def __init__(self, during: Callable[[int], None]) -> None:
        super().__init__(Settings(), rng=random.Random(1))
        self.count = 0
        self._during = during

    @override
    def mutating(self, review: dict[str, Any]) -> dict[str, Any]:
        self.count += 1
        self._during(self.count)
        return super().mutating(review)


def _connected(site: Site, ca: bytes, count: int) -> list[ssl.SSLSocket]:
    """Open so many connections, to be written to without the event loop. Each has been served once."""
    context = ssl.create_default_context(cadata=ca.decode())
    made = []
    for _ in range(count):
        plain = socket.create_connection(("127.0.0.1", site.port), timeout=60)
        made.append(context.wrap_socket(plain, server_hostname="127.0.0.1"))
        made[-1].sendall(HEALTH)
        answer = b""
        while not answer.endswith(b"\r\n\r\nok"):
            answer += made[-1].recv(4096)
    return made


def _hung_up(caller: ssl.SSLSocket) -> None:
    """Close our side, as a client does that gives up."""
    caller.shutdown(socket.SHUT_WR)


def _gone(callers: Sequence[ssl.SSLSocket]) -> None:
    """Close all, and wait until the server has closed them as well."""
    for caller in callers:
        with socket.socket(fileno=caller.detach()) as plain, contextlib.suppress(OSError):
            plain.shutdown(socket.SHUT_WR)
            while plain.recv(65_536):
                pass


async def test_a_review_whose_caller_has_closed_its_connection_is_not_judged(serve: Serve) -> None:
    made, answers = certificate(), list[ReviewAnswered]()
    callers: list[ssl.SSLSocket] = []

    def during(number: int) -> None:
        if number == 1:
            for caller in callers:
                caller.sendall(_asked(half()))
            for caller in callers[: CALLERS // 2]:
                _hung_up(caller)

    judged = Judged(during)
    async with serve(made, admission=judged, emit=answers.append) as site, site.session(made.ca) as session:
        callers.extend(await anyio.to_thread.run_sync(_connected, site, made.ca, CALLERS))
        async with session.post(MUTATE_PATH, json=review(half())) as answer:
            assert answer.status == 200
        for caller in callers[CALLERS // 2 :]:
            assert (await anyio.to_thread.run_sync(caller.recv, 12)) == b"HTTP/1.1 200"
        with anyio.fail_after(60):
            while len(answers) < 1 + CALLERS:
                await anyio.lowlevel.checkpoint()
        await anyio.to_thread.run_sync(_gone, callers)
    assert judged.count == 1 + CALLERS // 2
    assert [each.answered for each in answers].count(Answered.FAILED) == CALLERS // 2


async def test_two_reviews_at_most_are_judged_before_health_is_answered(serve: Serve) -> None:
    made = certificate()
    callers: list[ssl.SSLSocket] = []
    before: list[int] = []

    def during(number: int) -> None:
        *reviewed, health = callers
        if number == 1:
            for caller in reviewed:
                caller.sendall(_asked(half()))
            health.sendall(HEALTH)
        elif not select.select([health], [], [], 0)[0]:
            before.append(number)

    async with serve(made, admission=Judged(during)) as site, site.session(made.ca) as session:
        callers.extend(await anyio.to_thread.run_sync(_connected, site, made.ca, CALLERS + 1))
        async with session.post(MUTATE_PATH, json=review(half())) as answer:
            assert answer.status == 200
        for caller in callers:
            assert (await anyio.to_thread.run_sync(caller.recv, 12)) == b"HTTP/1.1 200"
        await anyio.to_thread.run_sync(_gone, callers)
    assert len(before) <= 2


async def test_health_is_answered_while_the_largest_pods_are_sent_again_and_again(serve: Serve) -> None:
    """894 KiB of containers with an index of ClearML each. Whatever a review costs, health waits for a few of them."""
    containers = [{"name": f"c{n}", "resources": {"limits": {f"nvidia.com/gpu-{n}": "1"}}} for n in range(14_000)]
    large = msgspec.json.encode(review(pod(*containers)))
    assert len(large) > 894 * 1024
    made, judged = certificate(), Judged(lambda _: None)
    between: list[int] = []
    async with serve(made, admission=judged) as site, site.session(made.ca) as session:

        async def attack() -> None:
            while len(between) < 5:
                async with session.post(MUTATE_PATH, data=large) as answer:
                    assert (await answer.json())["response"]["allowed"] is False

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(attack)
            while judged.count < 8:
                await anyio.lowlevel.checkpoint()
            for _ in range(5):
                began = judged.count
                async with session.get("/healthz") as answer:
                    assert answer.status == 200
                between.append(judged.count - began)
    assert max(between) <= 8
