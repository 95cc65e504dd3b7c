"""The API server's clock by its answers' Date, over a transport whose answers are written down."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Mapping

import anyio
import pytest

from kube.client import errors
from kube.client.server_time import ServerClock
from kube.client.transport import Response
from simulator.clock import VirtualClock
from tests.kube.scripted import ScriptedTransport, Watch

VIRTUAL_TIME = True

S = 1_000_000_000
DATE, DATE_S = "Thu, 01 Jan 2026 00:00:00 GMT", 1_767_225_600
#: Of this machine: ten years ahead.
WRONG_S = DATE_S + 10 * 365 * 86_400


def answer(**headers: str) -> Response:
    return Response(200, headers, b"{}")


def clock(*answers: Response | Exception, watches: tuple[Watch, ...] = ()) -> ServerClock:
    """A clock on a machine whose own is wrong."""
    loop = asyncio.get_running_loop()
    fallback = VirtualClock(loop, epoch_ns=WRONG_S * S - round(loop.time() * S))
    return ServerClock(ScriptedTransport(deque(answers), deque(watches)), fallback=fallback)


async def ask(made: ServerClock) -> Response:
    return await made.request("GET", "/version", query={}, timeout_s=5)


async def test_before_any_answer_it_is_the_machine_s_own() -> None:
    assert clock().now_ns() == WRONG_S * S


async def test_the_date_of_an_answer_counts_and_time_goes_on_from_it() -> None:
    made = clock(answer(date=DATE))
    assert (await ask(made)).body == b"{}"
    assert made.now_ns() == DATE_S * S
    await anyio.sleep(90.25)
    assert made.now_ns() == DATE_S * S + 90_250_000_000


async def test_the_last_date_counts_also_where_it_goes_back() -> None:
    made = clock(answer(date=DATE), answer(date="Wed, 31 Dec 2025 23:00:00 GMT"))
    await ask(made)
    await ask(made)
    assert made.now_ns() == (DATE_S - 3600) * S


async def test_the_same_second_again_is_that_second() -> None:
    made = clock(answer(date=DATE), answer(date=DATE))
    await ask(made)
    await anyio.sleep(0.75)
    await ask(made)
    assert made.now_ns() == DATE_S * S


async def test_the_date_of_a_refusal_counts() -> None:
    made = clock(Response(403, {"date": DATE}, b"{}"))
    assert (await ask(made)).status == 403
    assert made.now_ns() == DATE_S * S


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"date": ""},
        {"date": "now"},
        {"date": "Thu, 99 Jan 2026 00:00:00 GMT"},
        {"date": "Thu, 01 Jan 99999999999 00:00:00 GMT"},
        {"date": "Thu, 01 Jan 2026 00:00:00 +99999999999"},
        {"date": "\x00"},
        {"date": ", " * 1000},
    ],
)
async def test_an_answer_without_a_date_that_can_be_read_changes_nothing(headers: Mapping[str, str]) -> None:
    made = clock(answer(date=DATE), Response(200, headers, b"{}"))
    await ask(made)
    await anyio.sleep(7)
    await ask(made)
    assert made.now_ns() == (DATE_S + 7) * S


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose own zone is not UTC."""
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize("zone", ["02:00:00 +0200", "00:00:00 -0000", "00:00:00"])
@pytest.mark.usefixtures("elsewhere")
async def test_a_date_in_another_zone_or_in_none_is_the_same_moment(zone: str) -> None:
    made = clock(answer(date=f"Thu, 01 Jan 2026 {zone}"))
    await ask(made)
    assert made.now_ns() == DATE_S * S


async def test_the_date_of_a_watch_counts_as_soon_as_it_is_open() -> None:
    made = clock(watches=(Watch([b"{}"], head=answer(date=DATE)),))
    async with made.stream("/api/v1/pods", query={"watch": "true"}, timeout_s=5) as (head, lines):
        assert head.status == 200
        assert made.now_ns() == DATE_S * S
        assert await anext(aiter(lines)) == b"{}"


async def test_what_fails_is_passed_on_and_teaches_nothing() -> None:
    made = clock(errors.Unreachable("connection reset"))
    with pytest.raises(errors.Unreachable):
        await ask(made)
    assert made.now_ns() == WRONG_S * S


async def test_a_request_goes_on_as_it_came() -> None:
    transport = ScriptedTransport(deque([answer(date=DATE)]))
    made = ServerClock(transport, fallback=clock())
    await made.request("PATCH", "/x", query={"a": "b"}, body=b'{"c":1}', content_type="text/x", timeout_s=3)
    (sent,) = transport.requests
    assert (sent.method, sent.path, sent.query, sent.body) == ("PATCH", "/x", {"a": "b"}, {"c": 1})
    assert (sent.content_type, sent.timeout_s) == ("text/x", 3)


async def test_an_answer_that_takes_long_makes_it_late_by_no_more_than_that() -> None:
    async def late(_: object) -> Response:
        await anyio.sleep(2)
        return answer(date=DATE)

    made = ServerClock(ScriptedTransport(deque([late])), fallback=clock())
    await ask(made)
    assert made.now_ns() == DATE_S * S
