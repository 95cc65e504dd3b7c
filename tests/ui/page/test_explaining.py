"""Why a pod waits: the scheduler's answer where there is one, else the page's own, in a bounded time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import msgspec
import pytest

from kube.client.clock import SystemClock
from runtime.text import BadInput
from tests.conftest import AnyioBackend
from tests.scheduler.core.objects import node, pod, queue
from tests.ui.explain.test_answering import whole
from ui.explain.explanation import NoAnswer, NotServed, Whole
from ui.explain.views import Asked, Unanswered
from ui.page.explanations import (
    MOST_OF_ONE_USER,
    MOST_QUESTIONS,
    NOT_KEPT,
    Listed,
    PageExplains,
    Question,
    counted,
    explained,
    listed,
)
from ui.page.objects import Objects
from ui.page.values import EVERYTHING, Explanation, Sight
from wire import names

WALL_S = 1_767_225_610
QUEUE = {names.QUEUE_LABEL: "q"}
HELPS = ("request 1 GPU per pod", "end other/theirs", "add 1 node like n1")
OWN = Sight(namespaces=frozenset({"ns"}))


@pytest.fixture(scope="module")
def anyio_backend() -> AnyioBackend:
    """Threads do not wait for virtual time."""
    return ("asyncio", {})


def objects() -> Objects:
    """Two waiting pods of the same queue, of which one fits once another team's pod has ended."""
    made = Objects()
    made.put_node(node("n1", gpus=2))
    made.put_queue(queue("q", gpu=(4, 1, -1)))
    made.put_pod(pod("theirs", gpus=1, namespace="other", bound_to="n1", phase="Running", labels=QUEUE))
    made.put_pod(pod("p", gpus=2, labels=QUEUE))
    made.put_pod(pod("r", gpus=3, labels=QUEUE))
    return made


class Reading:
    """Lists objects, and keeps how often."""

    def __init__(self, made: Objects) -> None:
        self.objects = made
        self.moments: list[int | None] = []

    async def __call__(self, at_ms: int | None) -> Listed:
        self.moments.append(at_ms)
        return listed(self.objects, WALL_S)


def explains(reading: Reading | None = None, **how: Any) -> PageExplains:
    return PageExplains(reading or Reading(objects()), clock=SystemClock(), **how)


def question(name: str = "p", sight: Sight = EVERYTHING, **of: Any) -> Question:
    return Question(namespace="ns", name=name, sight=sight, **of)


def titles(found: Explanation) -> list[str]:
    return [table.title for table in found.tables]


def cells(found: Explanation, title: str) -> list[Sequence[str]]:
    return [row for table in found.tables if table.title.startswith(title) for row in table.rows]


async def test_the_page_answers_from_what_it_has_read() -> None:
    found = await explains().explain(question())
    assert titles(found)[0] == (
        "Pod ns/p waits: no nodes with enough resources were found: 1 node(s) didn't have enough resources: GPUs. "
        "The best node lacks 1 GPU(s)."
    )
    assert cells(found, "Its queue:")[0][:4] == ("q", "gpu", "1", "2 GPUs")
    assert [row[0] for row in cells(found, "Each of these")] == [*HELPS]
    assert (found.by, found.at, found.unread) == (
        "this page, from what it has read", "2026-01-01T00:00:10Z", (NOT_KEPT,)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sight", "helps", "has_queue"),
    [
        (EVERYTHING, {*HELPS}, True),
        (OWN, {*HELPS} - {"end other/theirs"}, True),
        (Sight(queues=False), {*HELPS}, False),
    ],
    ids=["everything", "pods of one namespace", "no queues"],
)
async def test_a_reader_is_told_what_that_reader_may_see(sight: Sight, helps: set[str], has_queue: bool) -> None:
    made = explains()
    await made.explain(question())  # what one reader may see is not what another one is shown
    found = await made.explain(question(sight=sight))
    assert {row[0] for row in cells(found, "Each of these")} == helps
    assert bool(cells(found, "Its queue:")) is has_queue


async def test_a_pod_of_another_node_pool_is_answered_for_its_own_scheduler() -> None:
    """What was counted for one pool is not used for another one."""
    made = objects()
    made.put_node(node("na", gpus=8, labels={names.NODE_POOL_LABEL: "a"}))
    made.put_pod(pod("of-a", gpus=3, labels={names.NODE_POOL_LABEL: "a"}))
    explaining = explains(Reading(made))
    found = [await explaining.explain(question(name)) for name in ("r", "of-a", "r")]
    assert ["fits now, on node na" in titles(each)[0] for each in found] == [False, True, False]
    assert cells(found[-1], "Nodes by reason")[1][1] == "node(s) were in another node pool, or have just left one"


async def test_the_scheduler_is_asked_first_with_what_the_reader_sent() -> None:
    asked: list[tuple[str, Asked]] = []

    async def ask(authorization: str, of: Asked) -> Whole:
        asked.append((authorization, of))
        return whole(of)

    reading = Reading(objects())
    found = await explains(reading, asks=ask).explain(question(sight=OWN, authorization="Bearer t"))
    assert asked == [("Bearer t", Asked(kind="pod", namespace="ns", name="p", sees_others=False))]
    assert (found.by, found.not_by_scheduler) == ("the scheduler, from its own state", "")
    assert reading.moments == []


async def test_where_the_scheduler_gives_no_answer_the_page_does_and_says_why() -> None:
    async def ask(authorization: str, of: Asked) -> Whole:
        raise NoAnswer("it answers 503: it is off")

    found = await explains(asks=ask).explain(question())
    assert (found.by, found.not_by_scheduler) == ("this page, from what it has read", "it answers 503: it is off")


async def test_where_no_scheduler_explains_the_page_answers_and_reports_no_failure() -> None:
    async def ask(authorization: str, of: Asked) -> Whole:
        raise NotServed('services "moorage-scheduler" not found')

    found = await explains(asks=ask).explain(question())
    assert (found.by, found.not_by_scheduler) == ("this page, from what it has read", "")


async def test_what_the_scheduler_refuses_is_refused() -> None:
    async def ask(authorization: str, of: Asked) -> Whole:
        raise BadInput("there is no pod p")

    with pytest.raises(Unanswered, match="there is no pod p"):
        await explains(asks=ask).explain(question())


async def test_many_readers_cost_one_count_and_one_answer_of_each_pod() -> None:
    reading = Reading(objects())
    made = explains(reading)
    found = list[Explanation]()

    async def ask(name: str) -> None:
        found.append(await made.explain(question(name)))

    async with anyio.create_task_group() as tasks:
        for name in ("p", "r") * 4:
            tasks.start_soon(ask, name)
    assert len(found) == 8
    assert reading.moments == [None]


async def test_another_moment_is_another_answer() -> None:
    reading = Reading(objects())
    made = explains(reading)
    await made.explain(question(at_ms=1))
    reading.objects.drop_pod("uid-theirs")
    assert "fits now" in titles(await made.explain(question(at_ms=2)))[0]
    assert reading.moments == [1, 2]


@pytest.mark.parametrize(
    ("users", "answered"), [(["a"] * 20, MOST_OF_ONE_USER), ([""] * 20, MOST_QUESTIONS), (list("abcdef") * 4, 16)]
)
async def test_questions_at_one_time_are_bounded_in_all_and_of_one_user(users: list[str], answered: int) -> None:
    made, refused = explains(), list[str]()

    async def ask(user: str) -> None:
        try:
            await made.explain(question(user=user))
        except Unanswered as error:
            refused.append(error.why)

    async with anyio.create_task_group() as tasks:
        for user in users:
            tasks.start_soon(ask, user)
    assert refused == ["too many questions at one time"] * (len(users) - answered)
    await made.explain(question(user="a"))


async def test_a_pod_that_is_not_there_is_no_error_for_others() -> None:
    made = explains()
    with pytest.raises(Unanswered, match="there is no pod x in namespace ns"):
        await made.explain(question("x"))
    assert (await made.explain(question())).tables


def test_what_was_found_when_time_is_up_is_the_answer() -> None:
    known = counted(listed(objects(), WALL_S))
    asked = Asked(kind="pod", namespace="ns", name="p", sees_others=True)
    cut = explained(known, asked, WALL_S, most_s=0.0)
    assert cut.unread == (NOT_KEPT, "time was up: not all changes that might help were tried")
    in_full = explained(known, asked, WALL_S)
    assert in_full.unread == (NOT_KEPT,)
    assert msgspec.structs.replace(in_full.group, helps=(), tried=0) == msgspec.structs.replace(
        cut.group, helps=(), tried=0
    )
