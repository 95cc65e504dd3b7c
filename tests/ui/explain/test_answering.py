"""Explanations over HTTP: who gets one, what is refused, and that few are asked for at a time. In real time."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
import pytest

from kube.serving import serve
from tests.conftest import AnyioBackend
from tests.ui.page.reviews import Reviewer
from ui.explain.explanation import TOKEN_HEADER, Whole
from ui.explain.server import MOST_OF_ONE_USER, MOST_QUESTIONS, Answering, Explain, Rights
from ui.explain.views import Asked, GroupView, Unanswered

PATH = "/explain/pod/team-a/p"
MAY = frozenset({("get pods", "team-a"), ("get podgroups", "team-a")})


@pytest.fixture(scope="module")
def anyio_backend() -> AnyioBackend:
    return ("asyncio", {})


def whole(asked: Asked) -> Whole:
    return Whole(
        group=GroupView(
            kind="Pod", namespace=asked.namespace, name=asked.name, queue="q", verdict="", message="", starts=False
        )
    )


class Explainer:
    """Explains at once, or when it is told to."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.may_answer = anyio.Event()
        self.may_answer.set()

    async def __call__(self, asked: Asked) -> Whole:
        self.asked.append(asked)
        await self.may_answer.wait()
        if asked.name == "missing":
            raise Unanswered(404, "there is none")
        return whole(asked)


@asynccontextmanager
async def served(explain: Explain, *, is_in_step: bool = True) -> AsyncIterator[tuple[aiohttp.ClientSession, Reviewer]]:
    people = [f"user-{number}" for number in range(9)]
    server = Reviewer({f"token-{name}": name for name in people}, dict.fromkeys(people, MAY) | {"user-8": frozenset()})
    server.rights["user-1"] = MAY | {("pods", "")}
    answering = Answering(explain, Rights(server.api()))
    answering.is_in_step = is_in_step
    listener = socket.create_server(("127.0.0.1", 0))
    async with anyio.create_task_group() as tasks:
        await tasks.start(serve, answering.app(), listener)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=60)) as session:
            yield session, server
        tasks.cancel_scope.cancel()


def shown(number: int = 0) -> Mapping[str, str]:
    return {TOKEN_HEADER: f"Bearer token-user-{number}"}


async def get(
    session: aiohttp.ClientSession, path: str = PATH, headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    async with session.get(path, headers=shown() if headers is None else headers) as answer:
        body = await answer.text()
        return answer.status, json.loads(body) if answer.content_type == "application/json" else body


async def test_the_answer_is_what_the_command_prints_as_json() -> None:
    explain = Explainer()
    async with served(explain) as (session, _):
        status, answer = await get(session, f"{PATH}?what-if=members=6%0A%0Aqueue=b")
        assert (status, answer["group"]["name"]) == (200, "p")
        assert explain.asked == [Asked(kind="pod", namespace="team-a", name="p", supposed=("members=6", "queue=b"))]
        assert (await get(session, headers={"Authorization": "Bearer token-user-1"}))[0] == 200
        assert explain.asked[-1].sees_others


@pytest.mark.parametrize(
    ("path", "user", "status"),
    [
        (PATH, 8, 403),
        (PATH, 77, 401),
        ("/explain/pod/team-b/p", 0, 403),
        ("/explain/podgroup/team-a/p", 0, 200),
        ("/explain/queue/team-a/p", 0, 404),
        ("/explain/pod/team-a/missing", 0, 404),
        (f"/explain/pod/team-a/{'p' * 254}", 0, 400),
        (f"{PATH}?what-if=" + "%0A".join(["members=1"] * 9), 0, 400),
        (f"{PATH}?what-if=queue={'q' * 400}", 0, 400),
        ("/explain/pod/team-a", 0, 404),
        ("/metrics", 0, 404),
    ],
)
async def test_who_gets_what(path: str, user: int, status: int) -> None:
    async with served(Explainer()) as (session, _):
        assert (await get(session, path, headers=shown(user)))[0] == status


async def test_nothing_is_explained_without_a_right() -> None:
    explain = Explainer()
    async with served(explain) as (session, server):
        assert (await get(session, headers={}))[0] == 401
        assert (await get(session, headers=shown(8)))[0] == 403
        server.is_broken = True
        assert (await get(session, headers=shown(1)))[0] == 503
        assert not explain.asked
        async with session.post(PATH, headers=shown()) as answer:
            assert answer.status == 405


async def test_before_the_cluster_is_read_nothing_is_said() -> None:
    async with served(Explainer(), is_in_step=False) as (session, server):
        status, answer = await get(session)
        assert (status, answer) == (503, {"error": "the scheduler has not read the cluster yet"})
        assert not server.asked


async def test_an_answer_is_given_again_for_a_moment_and_not_to_those_who_may_see_less() -> None:
    explain = Explainer()
    async with served(explain) as (session, _):
        assert [(await get(session, headers=shown(number)))[0] for number in (0, 0, 2, 1)] == [200] * 4
        assert [asked.sees_others for asked in explain.asked] == [False, True]


async def test_few_questions_wait_of_one_user_and_in_all() -> None:
    explain = Explainer()
    explain.may_answer = anyio.Event()
    async with served(explain) as (session, _):
        answers: list[int] = []

        async def ask(number: int, user: int) -> None:
            answers.append((await get(session, f"/explain/pod/team-a/p{number}", headers=shown(user)))[0])

        async with anyio.create_task_group() as tasks:
            for user in range(7):
                for number in range(MOST_OF_ONE_USER + 1):
                    tasks.start_soon(ask, number, user)
            refused = 7 * (MOST_OF_ONE_USER + 1) - MOST_QUESTIONS
            with anyio.fail_after(60):
                while len(answers) < refused:
                    await anyio.lowlevel.checkpoint()
            assert set(answers) == {503}
            explain.may_answer.set()
        assert answers.count(200) == MOST_QUESTIONS
        assert (await get(session))[0] == 200
