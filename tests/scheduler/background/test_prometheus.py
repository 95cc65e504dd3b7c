"""Asking a Prometheus: what is sent, and that nothing it does holds the scheduler up. Over loopback, in real time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from scheduler.background.queue_use import MOST_BYTES, Malformed, NoAnswer, Prometheus, asking, queries, sums, used
from scheduler.core.queues.use_over_time import Source, UsePeriod, Window, parsed
from scheduler.settings import UseSource
from tests.conftest import AnyioBackend
from tests.kube.client.test_http import Handler, serving

NOW_S = 1_790_000_000


@pytest.fixture(scope="module")
def anyio_backend() -> AnyioBackend:
    return ("asyncio", {})


@asynccontextmanager
async def asked(handler: Handler, *, under: str = "", timeout_s: float = 5.0) -> AsyncIterator[Prometheus]:
    async with serving(handler) as url, asking(UseSource(url=f"{url}{under}", timeout_s=timeout_s)) as prometheus:
        yield prometheus


def answer(text: str, status: int = 200, **headers: str) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=text.encode(), headers=headers)

    return handler


@pytest.mark.parametrize("under", ["", "/", "/behind/a/proxy", "/behind/a/proxy/"])
async def test_a_query_is_sent_as_a_form_with_the_time_and_an_end(under: str) -> None:
    seen = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append((request.method, request.path, dict(await request.post())))
        return web.Response(text="{}")

    async with asked(handler, under=under, timeout_s=2.5) as prometheus:
        assert await prometheus.ask('sum({a="b"})[1h:1m]', NOW_S) == b"{}"
    form = {"query": 'sum({a="b"})[1h:1m]', "time": str(NOW_S), "timeout": "2.5s"}
    assert seen == [("POST", f"{under.rstrip('/')}/api/v1/query", form)]


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (answer(json.dumps({"status": "error", "error": "too many\nsamples"}), 422), "HTTP 422 too many samples"),
        (answer("<html>", 503), "HTTP 503 Service Unavailable"),
        (answer('"text"', 401), "HTTP 401 Unauthorized"),
        (answer("\xff", 500), "HTTP 500 Internal Server Error"),
        (answer('{"x":' * 800, 502), "HTTP 502 Bad Gateway"),
        (answer("", 302, Location="http://127.0.0.1:1/"), "HTTP 302 Found"),
    ],
)
async def test_a_refusal_is_told_in_one_line(handler: Handler, why: str) -> None:
    async with asked(handler) as prometheus:
        with pytest.raises(NoAnswer) as refused:
            await prometheus.ask("up", NOW_S)
    assert str(refused.value) == why


async def test_an_answer_without_end_is_left() -> None:
    sent = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(1000):
            await response.write(b" " * (1 << 20))
            sent += 1
        return response

    async with asked(handler, timeout_s=60.0) as prometheus:
        with pytest.raises(NoAnswer, match="larger than 16 MiB"):
            await prometheus.ask("up", NOW_S)
    assert sent < 200 * MOST_BYTES >> 20


async def test_a_long_error_is_not_read_to_its_end() -> None:
    async with asked(answer("x" * (64 << 20), 500)) as prometheus:
        with pytest.raises(NoAnswer, match="HTTP 500"):
            await prometheus.ask("up", NOW_S)


@pytest.mark.parametrize("begins", [False, True])
async def test_who_does_not_answer_in_time_is_not_waited_for(*, begins: bool) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if begins:
            await response.prepare(request)
            await response.write(b"{")
        await asyncio.sleep(30)
        return response

    async with asked(handler, timeout_s=0.05) as prometheus:
        with pytest.raises(NoAnswer, match=r"no answer within 0\.05 s"):
            await prometheus.ask("up", NOW_S)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[::1", "http://host.invalid"])
async def test_who_is_not_there_gives_no_answer(url: str) -> None:
    async with asking(UseSource(url=url, timeout_s=5.0)) as prometheus:
        with pytest.raises(NoAnswer):
            await prometheus.ask("up", NOW_S)


async def test_a_connection_that_breaks_gives_no_answer_and_the_next_one_does() -> None:
    calls = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal calls
        calls += 1
        if calls == 1:
            assert request.transport is not None
            request.transport.abort()
        return web.Response(text="{}")

    async with asked(handler) as prometheus:
        with pytest.raises(NoAnswer):
            await prometheus.ask("up", NOW_S)
        assert await prometheus.ask("up", NOW_S) == b"{}"


# What Prometheus is asked, and how its answers are read.

MIDNIGHT_S = NOW_S - NOW_S % 86_400


def use_queries_answer(*samples: tuple[dict[str, str], str]) -> bytes:
    result = [{"metric": metric, "value": [NOW_S + 0.5, value]} for metric, value in samples]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def of_queues(**values: str) -> bytes:
    return use_queries_answer(*(({"queue_name": name}, value) for name, value in values.items()))


def of_all(value: str) -> bytes:
    return use_queries_answer(({}, value))


#: Of queues that exist.
KNOWN = frozenset({"a", "b", "idle"})
NOTHING = sums(use_queries_answer(), use_queries_answer(), KNOWN)


@pytest.mark.parametrize(
    ("period", "resolution_s", "expected"),
    [
        (UsePeriod(window_s=3600), 60, ("", "3600s:60s")),
        (UsePeriod(window_s=3600), 300, ("", "3600s:300s")),
        (UsePeriod(window_s=7200, half_life_s=1800), 60, (f" * 0.5 ^ (({NOW_S} - time()) / 1800)", "7200s:60s")),
        (UsePeriod(window_s=86_400, window=Window.TUMBLING), 60, ("", f"{NOW_S - MIDNIGHT_S}s:60s")),
        (UsePeriod(window_s=3600, window=Window.TUMBLING, window_start_s=NOW_S - 7230), 60, ("", "60s:60s")),
        (UsePeriod(cron=parsed("0 0 * * 1")), 60, ("", f"{NOW_S - MIDNIGHT_S}s:60s")),
        (UsePeriod(cron=parsed("@hourly")), 60, ("", "800s:60s")),
    ],
)
def test_what_was_allocated_is_summed_over_the_window_as_the_capacity_is(
    period: UsePeriod, resolution_s: int, expected: tuple[str, str]
) -> None:
    fading, window = expected
    _, _, gpus = queries(period, resolution_s, NOW_S)
    assert gpus == (
        f"sum_over_time((max by (queue_name) (kai_queue_allocated_gpus >= 0){fading})[{window}])",
        f'sum_over_time((sum(kube_node_status_capacity{{resource="nvidia_com_gpu"}} >= 0){fading})[{window}])',
    )


def test_cpu_memory_and_gpus_are_asked_for_in_this_order() -> None:
    assert [
        [word for word in ("cpu", "memory", "gpu") if word in each.allocated and word in each.capacity]
        for each in queries(UsePeriod(), 60, NOW_S)
    ] == [["cpu"], ["memory"], ["gpu"]]


def test_use_is_the_part_of_the_capacity_in_billionths_rounded_down() -> None:
    answers = [
        sums(of_queues(a="1e+03", b="0"), of_all("3000"), KNOWN),
        sums(
            of_queues(a="8589934592"), use_queries_answer(({"x": "1"}, "8589934592"), ({"x": "2"}, "8589934592")), KNOWN
        ),
        sums(of_queues(a="12.5", gone="100", b="7"), of_all("50"), KNOWN),
    ]
    found = used(answers, UsePeriod(weight_milli=500), KNOWN)
    assert found.of == {"a": (333_333_333, 500_000_000, 250_000_000), "b": (0, 0, 140_000_000)}
    assert (found.weight_milli, found.source, found.is_summed) == (500, Source.PROMETHEUS, True)


def test_a_cluster_without_gpus_has_no_use_of_them() -> None:
    answers = [sums(of_queues(a="1"), of_all("2"), KNOWN), NOTHING, sums(of_queues(a="0"), use_queries_answer(), KNOWN)]
    assert used(answers, UsePeriod(), {"a"}).of == {"a": (500_000_000, 0, 0)}


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([NOTHING] * 3, "there is no kube_node_status_capacity"),
        (
            [sums(of_queues(a="1"), of_all("2"), KNOWN), NOTHING, sums(of_queues(a="1"), use_queries_answer(), KNOWN)],
            'there is kai_queue_allocated_gpus, and no kube_node_status_capacity{resource="nvidia_com_gpu"}',
        ),
    ],
)
def test_use_of_nothing_is_not_taken_for_none(answers: list[Any], why: str) -> None:
    with pytest.raises(Malformed) as refused:
        used(answers, UsePeriod(), {"a"})
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "no answer of Prometheus"),
        (b"\xff", "no answer of Prometheus"),
        (b"<html>", "no answer of Prometheus"),
        (b"[" * 100_000, "no answer of Prometheus"),
        (b'{"status":"error","error":"parse error"}', "parse error"),
        (b'{"status":"success"}', "status is 'success'"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[]}}', "resultType is 'matrix'"),
        (b'{"status":"success","data":{"resultType":"vector","result":[{"value":[1]}]}}', "no answer of Prometheus"),
        (b'{"status":"success","data":{"resultType":"vector","result":' + b"[" * 100_000, "recursion depth"),
        (b'{"status":"success","data":' + b'{"a":' * 100_000, "recursion depth"),
        (of_queues(a="NaN"), "value is 'NaN'; it must be a number, 0 or more"),
        (of_queues(a="-1"), "value is '-1'"),
        (of_queues(a="many"), "value is 'many'"),
    ],
)
def test_what_is_no_answer_is_refused(body: bytes, why: str) -> None:
    for of in ((body, of_all("1")), (of_queues(a="1"), body)):
        with pytest.raises(Malformed) as refused:
            sums(*of, KNOWN)
        assert why in str(refused.value)


@pytest.mark.parametrize("value", ["NaN", "-1", "many"])
def test_what_is_said_of_a_queue_that_does_not_exist_ends_the_count_of_none(value: str) -> None:
    answers = [sums(of_queues(a="1", gone=value), of_all("2"), KNOWN)] * 3
    assert used(answers, UsePeriod(), KNOWN).of == {"a": (500_000_000,) * 3}


@pytest.mark.parametrize("value", ["3", "1e308", "+Inf", "1e999999999"])
def test_no_queue_used_more_than_the_cluster_had(value: str) -> None:
    answers = [sums(of_queues(a=value, b="1"), of_all("2"), KNOWN)] * 3
    assert used(answers, UsePeriod(), KNOWN).of == {"a": (1_000_000_000,) * 3, "b": (500_000_000,) * 3}


@given(body=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with pytest.raises(Malformed):
        sums(body, of_all("1"), KNOWN)
