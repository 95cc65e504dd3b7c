from __future__ import annotations

import anyio
import pytest
from aiohttp.test_utils import TestClient, TestServer

from runtime.metrics.registry import Registry
from runtime.metrics.scheduler import ExplainMetrics
from tests.runtime.metrics.exposed import values
from tests.ui.explain.test_answering import whole
from tests.ui.page.reviews import Reviewer
from ui.explain.explanation import Whole
from ui.explain.server import Answering, Budget, Rights
from ui.explain.views import Asked, Unanswered

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
    answering = Answering(explain, Rights(server.api()), ExplainMetrics(registry).take)
    answering.is_in_step = is_read
    assert values(registry, DURATION) == NONE
    with anyio.fail_after(60):
        async with TestClient(TestServer(answering.app())) as client:
            await (await client.get(f"/explain/{path}", headers={"Authorization": f"Bearer {token}"})).read()
    assert values(registry, DURATION) == {**NONE, (outcome,): 1}


async def test_each_slice_is_counted() -> None:
    registry = Registry()
    worked = iter((0.0, 0.03, 1.0, 1.3))
    budget = Budget(worked_s=lambda: next(worked), emit=ExplainMetrics(registry).take)
    for _ in range(2):
        with budget.slice():
            pass
    assert values(registry, "moorage_explain_slice_duration_seconds_count") == {(): 2}
    assert values(registry, "moorage_explain_slice_duration_seconds_sum") == {(): pytest.approx(0.33)}
