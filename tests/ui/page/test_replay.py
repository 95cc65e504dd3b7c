"""What a recorded run answers over HTTP: its state and a pod's path at a moment, to whoever asks, and nothing else."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import msgspec
import pytest

from kube.client.clock import SystemClock
from kube.serving import serve
from tests.conftest import AnyioBackend
from tests.scheduler.core.objects import node, pod
from ui.commands.page import Opened
from ui.page import explanations
from ui.page.explanations import PageExplains
from ui.page.index import FORM, Line
from ui.page.server import HEADERS
from ui.page.timeline import Recorded

BEGAN_MS = 1_767_225_600_000


@pytest.fixture(scope="module")
def anyio_backend() -> AnyioBackend:
    """Sockets do not wait for virtual time."""
    return ("asyncio", {})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    lines = [
        Line(form=FORM, began_ms=BEGAN_MS),
        Line(node=node("n1", gpus=1)),
        Line(at_ms=1000, is_in_step=True),
        Line(at_ms=2000, pod=pod("a", gpus=1)),
        Line(at_ms=3000, pod=pod("b", gpus=1)),
        Line(at_ms=4000, gone_pod="uid-a"),
    ]
    path = tmp_path / "run"
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return path


@asynccontextmanager
async def opened(path: Path, *, is_read: bool = True) -> AsyncIterator[aiohttp.ClientSession]:
    listener = socket.create_server(("127.0.0.1", 0))
    with closing(Recorded(path)) as recorded:
        explains = PageExplains(explanations.run(recorded), clock=SystemClock())
        made = Opened(recorded, epoch="e", source="a test", speed=2.0, hosts=("127.0.0.1",), explains=explains)
        async with anyio.create_task_group() as tasks:

            async def answer(*, task_status: anyio.abc.TaskStatus[None]) -> None:
                await serve(made.app(), listener, task_status=task_status)

            await tasks.start(answer)
            if is_read:
                await recorded.read()
            address = f"http://127.0.0.1:{listener.getsockname()[1]}"
            async with aiohttp.ClientSession(address, timeout=aiohttp.ClientTimeout(total=120)) as client:
                yield client
            tasks.cancel_scope.cancel()


async def asked(client: aiohttp.ClientSession, path: str) -> tuple[int, dict[str, Any]]:
    async with client.get(path) as answer:
        return answer.status, await answer.json()


def pods(state: dict[str, Any]) -> list[str]:
    return [line["name"] for line in state["changes"].get("pods", [])]


async def test_without_a_moment_it_is_the_first_and_says_what_run_it_is(path: Path) -> None:
    async with opened(path) as client:
        status, state = await asked(client, "/api/state")
        assert (status, state["id"], state["atMs"], state["source"]) == (200, "e-1000", 1000, "a test")
        assert state["run"] == {"beganMs": BEGAN_MS, "fromMs": 1000, "toMs": 4000, "speed": 2.0}
        assert [card["name"] for card in state["changes"]["nodes"]] == ["n1"]
        assert pods(state) == []


async def test_who_says_what_he_knew_is_told_what_is_different_back_and_forth(path: Path) -> None:
    async with opened(path) as client:
        _, first = await asked(client, "/api/state?at=2500")
        assert (pods(first), first["id"]) == (["a"], "e-2500")
        _, later = await asked(client, "/api/state?at=4000&after=e-2500")
        assert (pods(later), later["changes"]["gonePods"], later["after"]) == (["b"], ["uid-a"], "e-2500")
        assert "run" not in later
        assert "nodes" not in later["changes"]
        _, back = await asked(client, "/api/state?at=2500&after=e-4000")
        assert (pods(back), back["changes"]["gonePods"]) == (["a"], ["uid-b"])


@pytest.mark.parametrize("after", ["", "f-2500", "e-", "e-x", "e--1", "e-999999999999999", "2500", "e-3500"])
async def test_who_knew_something_else_is_told_all_of_it(path: Path, after: str) -> None:
    """Of another run, of a moment that nobody has drawn, or nothing that can be read."""
    async with opened(path) as client:
        _, state = await asked(client, f"/api/state?at=2500&after={after}")
        assert (pods(state), "after" in state, "run" in state) == (["a"], False, True)


async def test_a_pods_path_is_that_of_the_moment(path: Path) -> None:
    async with opened(path) as client:
        status, told = await asked(client, "/api/pods/ns/a?at=2500")
        assert (status, told["pod"]["name"]) == (200, "a")
        assert await asked(client, "/api/pods/ns/a?at=4000") == (404, {"error": "there is no such pod at that moment"})


@pytest.mark.parametrize("at", ["", "x", "-1", "1.5", "%C2%B2", "9" * 5000])
async def test_a_moment_that_is_none_is_refused(path: Path, at: str) -> None:
    async with opened(path) as client:
        for asking in (f"/api/state?at={at}", f"/api/pods/ns/a?at={at}"):
            status, told = await asked(client, asking)
            assert (status, told["error"].partition(":")[0]) == (400, "at")


async def test_it_is_answered_when_it_is_read_and_has_no_stream(path: Path) -> None:
    async with opened(path, is_read=False) as client:
        for asking in ("/api/state", "/api/pods/ns/a?at=1"):
            assert await asked(client, asking) == (503, {"error": "the recorded run is being read"})
        status, _ = await asked(client, "/api/changes")
        assert status == 404


async def test_it_is_behind_the_same_door_as_the_page_of_a_cluster(path: Path) -> None:
    async with opened(path) as client:
        async with client.get("/api/state", headers={"Host": "elsewhere.example"}) as answer:
            assert answer.status == 421
        async with client.post("/api/state") as answer:
            assert answer.status == 405


async def test_a_file_that_was_cut_after_it_was_opened_is_said_to_be(path: Path) -> None:
    async with opened(path) as client:
        os.truncate(path, 60)
        async with client.get("/api/state?at=3500") as answer:
            assert answer.status == 410
            assert HEADERS.items() <= answer.headers.items()
            assert await answer.json() == {"error": "the file of the recorded run was changed after it was opened"}


async def test_a_pod_is_explained_as_it_was_at_a_moment(path: Path) -> None:
    """Without pods that run, one GPU is enough for one of the two, and the other one is behind it."""
    async with opened(path) as client:
        status, found = await asked(client, "/api/explain/ns/b?at=3500")
        assert (status, found["at"], found["by"]) == (200, "2026-01-01T00:00:03Z", "this page, from what it has read")
        assert "other groups that wait come first" in found["tables"][0]["title"]
        assert any("a recorded run does not hold them" in text for text in found["unread"])
        status, found = await asked(client, "/api/explain/ns/b?at=4000")
        assert "fits now, on node n1" in found["tables"][0]["title"]
        status, found = await asked(client, "/api/explain/ns/b?at=2500")
        assert (status, found["error"][:30]) == (404, "there is no pod b in namespace")
        assert (await asked(client, "/api/explain/ns/b?at=x"))[0] == 400
