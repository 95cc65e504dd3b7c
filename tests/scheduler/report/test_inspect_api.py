"""The inspect API: what it answers, to whom it doesn't, and that it costs little. Over loopback, in real time."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
import msgspec
import pytest
from anyio.abc import TaskStatus

from scheduler.core.cluster import Cluster
from scheduler.report.inspect_api import PATH, Inspected, Inspecting, used_for_s
from scheduler.settings import InspectSettings
from tests.conftest import AnyioBackend
from tests.scheduler.core.objects import NANO, bound, changed, cluster, feed, node, pod, reservation
from wire import names


@pytest.fixture(scope="module")
def anyio_backend() -> AnyioBackend:
    return ("asyncio", {})


HALF = NANO // 2
TENANT = bound(pod("t", fraction="0.5"), "n1", ("g", HALF), uuid="GPU-1")
BOOK = reservation("g", uuid="GPU-1", book={"uid-t": HALF})
CARD = changed(BOOK, annotations={**(BOOK.metadata.annotations or {}), names.DEVICE_INDEX: "0"})
NODE = {
    "name": "n1",
    "totalGPU": 48,
    "usedGPU": 12,
    "devs": [
        {"id": 0, "totalGPU": 24, "usedGPU": 12, "pods": [{"name": "t", "namespace": "ns", "usedGPU": 12}]},
        {"id": 1, "totalGPU": 24, "usedGPU": 0, "pods": []},
    ],
}


def small(*further: Any) -> Cluster:
    return cluster(node(gpus=2, mem_mib=24576), node("plain", gpus=0), CARD, TENANT, *further)


@asynccontextmanager
async def served(made: Cluster, *, in_step: bool = True, **settings: Any) -> AsyncIterator[aiohttp.ClientSession]:
    inspecting = Inspecting(made, InspectSettings(**settings))
    inspecting.is_in_step = in_step
    listener = socket.create_server(("127.0.0.1", 0))
    async with anyio.create_task_group() as tasks:
        await tasks.start(inspecting.run, listener)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=60)) as session:
            yield session
        tasks.cancel_scope.cancel()


async def asked(session: aiohttp.ClientSession, path: str = PATH, method: str = "GET") -> tuple[int, Any]:
    async with session.request(method, path) as answer:
        body = await answer.text()
        return answer.status, json.loads(body) if answer.content_type == "application/json" else body


async def test_all_nodes_with_gpus_are_told_in_the_fields_that_tools_know() -> None:
    async with served(small()) as session:
        assert await asked(session) == (200, {"nodes": [NODE]})


async def test_one_node_is_told_alone() -> None:
    async with served(small(node("n2", gpus=1, mem_mib=1024))) as session:
        assert await asked(session, f"{PATH}/n1") == (200, {"nodes": [NODE]})


async def test_units_are_what_the_administrator_says() -> None:
    async with served(small(), unit_mib=1) as session:
        _, answer = await asked(session)
        assert (answer["nodes"][0]["totalGPU"], answer["nodes"][0]["usedGPU"]) == (49152, 12288)


@pytest.mark.parametrize("name", ["gone", "plain", "%2e%2e", "n1%0a", "n" * 5000])
async def test_a_node_that_is_not_there_is_an_error_and_no_crash(name: str) -> None:
    async with served(small()) as session:
        status, answer = await asked(session, f"{PATH}/{name}")
        assert status == 404
        assert answer in ({"nodes": [], "error": "there is no such node with GPUs"}, "404: Not Found")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
async def test_there_is_nothing_but_get(method: str) -> None:
    async with served(small()) as session:
        for path in (PATH, f"{PATH}/n1"):
            assert (await asked(session, path, method))[0] == 405


@pytest.mark.parametrize(
    "path", ["/", "/gpushare-scheduler/filter", "/gpushare-scheduler/bind", "/debug/pprof/", "/version"]
)
async def test_there_is_nothing_else(path: str) -> None:
    async with served(small()) as session:
        assert (await asked(session, path))[0] == 404


async def test_before_the_cluster_is_read_nothing_is_said_of_it() -> None:
    async with served(small(), in_step=False) as session:
        for path in (PATH, f"{PATH}/n1"):
            status, answer = await asked(session, path)
            assert (status, answer["nodes"]) == (503, [])


async def test_an_answer_about_all_is_made_once_and_used_for_a_while() -> None:
    made = small()
    async with served(made, fresh_s=3600.0) as session:
        first = await asked(session)
        feed(made, pod("w", gpus=1, bound_to="n1"))
        assert await asked(session) == first
        (_, one) = await asked(session, f"{PATH}/n1")
        assert one["nodes"][0]["usedGPU"] == 36
    async with served(made, fresh_s=0.0) as session:
        assert (await asked(session))[1]["nodes"][0]["usedGPU"] == 36


@pytest.mark.parametrize(
    ("took_s", "fresh_s", "used_s"), [(0.001, 1.0, 1.0), (0.05, 1.0, 1.0), (0.2, 1.0, 4.0), (2.0, 0.0, 40.0)]
)
def test_making_answers_takes_no_more_than_a_twentieth_of_the_time(
    took_s: float, fresh_s: float, used_s: float
) -> None:
    assert used_for_s(took_s, fresh_s) == pytest.approx(used_s)


async def test_a_crowd_is_turned_away_and_the_few_are_served() -> None:
    many = [node(f"m{number}", gpus=8, mem_mib=1024) for number in range(300)]
    async with served(small(*many), fresh_s=0.0) as session:
        answers: list[int] = []

        async def ask() -> None:
            answers.append((await asked(session))[0])

        async with anyio.create_task_group() as tasks:
            for _ in range(60):
                tasks.start_soon(ask)
        assert set(answers) == {200, 503}
        assert (await asked(session))[0] == 200


class _Following:
    """A replica that is in step when it is told."""

    def __init__(self) -> None:
        self.may_start = anyio.Event()
        self.led = False
        self.finished = False

    async def follow(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        await self.may_start.wait()
        task_status.started()
        await anyio.sleep_forever()

    async def lead(self, *, anew: bool = True) -> None:
        self.led = True

    async def finish(self) -> None:
        self.finished = True


async def test_a_replica_answers_from_when_it_is_in_step_whether_it_leads_or_not() -> None:
    replica, listener = _Following(), socket.create_server(("127.0.0.1", 0))
    both = Inspected(replica, Inspecting(small(), InspectSettings()), listener)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with anyio.create_task_group() as tasks, aiohttp.ClientSession(url) as session:
        started = anyio.Event()

        async def follow() -> None:
            async with anyio.create_task_group() as inner:
                await inner.start(both.follow)
                started.set()

        tasks.start_soon(follow)
        with anyio.fail_after(60):
            while (await asked(session))[0] != 503:
                await anyio.lowlevel.checkpoint()
        assert not started.is_set()
        replica.may_start.set()
        with anyio.fail_after(60):
            await started.wait()
        assert (await asked(session))[0] == 200
        await both.lead()
        await both.finish()
        assert (replica.led, replica.finished) == (True, True)
        tasks.cancel_scope.cancel()


async def test_what_it_tells_is_no_more_than_is_listed() -> None:
    """No annotations, labels, images, UIDs: fields are exactly these."""
    async with served(small()) as session:
        _, answer = await asked(session)
    (told,) = answer["nodes"]
    assert set(told) == {"name", "totalGPU", "usedGPU", "devs"}
    assert {key for device in told["devs"] for key in device} == {"id", "totalGPU", "usedGPU", "pods"}
    assert {key for device in told["devs"] for one in device["pods"] for key in one} == {"name", "namespace", "usedGPU"}
    assert msgspec.json.encode(answer).count(b"uid-") == 0
