from __future__ import annotations

import anyio
import pytest
from aiohttp.test_utils import TestClient, TestServer

from cli.explaining.answering import Answering
from cli.explaining.budget import Budget
from cli.explaining.questions import Asked, Unanswered
from cli.explaining.rights import Rights
from cli.explaining.supposing import Whole
from cli.metrics.explaining import ExplainCounted
from cli.metrics.registry import Registry
from tests.cli.explaining.test_answering import whole
from tests.cli.metrics.exposed import values
from tests.cli.page.reviews import Reviewer

MAY = frozenset({("get pods", "team")})
DURATION = "moorage_explain_duration_seconds_count"
NONE = {("answered",): 0, ("busy",): 0, ("failed",): 0, ("refused",): 0}


async def explain(asked: Asked) -> Whole:
    if asked.name == "gone":
        raise Unanswered(404, "there is no such pod")
    return whole(asked)


@pytest.mark.parametrize(
    ("path", "token", "is_read", "is_broken", "outcome"),
    [
        ("pod/team/p", "token", True, False, "answered"),
        ("pod/team/gone", "token", True, False, "refused"),
        ("pod/other/p", "token", True, False, "refused"),
        ("pod/team/p", "nobody's", True, False, "refused"),
        ("pod/team/p", "token", False, False, "busy"),
        ("pod/team/p", "token", True, True, "failed"),
    ],
    ids=["answered", "no such pod", "no right", "no token", "not read yet", "no reviews"],
)
async def test_each_question_is_counted_by_its_outcome(
    path: str, token: str, is_read: bool, is_broken: bool, outcome: str
) -> None:
    registry = Registry()
    server = Reviewer({"token": "user"}, {"user": MAY})
    server.is_broken = is_broken
    answering = Answering(explain, Rights(server.api()), ExplainCounted(registry))
    answering.is_in_step = is_read
    assert values(registry, DURATION) == NONE
    with anyio.fail_after(60):
        async with TestClient(TestServer(answering.app())) as client:
            await (await client.get(f"/explain/{path}", headers={"Authorization": f"Bearer {token}"})).read()
    assert values(registry, DURATION) == {**NONE, (outcome,): 1}


async def test_each_slice_is_counted() -> None:
    registry = Registry()
    worked = iter((0.0, 0.03, 1.0, 1.3))
    budget = Budget(worked_s=lambda: next(worked), observer=ExplainCounted(registry))
    for _ in range(2):
        with budget.slice():
            pass
    assert values(registry, "moorage_explain_slice_duration_seconds_count") == {(): 2}
    assert values(registry, "moorage_explain_slice_duration_seconds_sum") == {(): pytest.approx(0.33)}
