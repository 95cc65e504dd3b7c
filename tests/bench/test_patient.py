from __future__ import annotations

from collections import deque

import anyio
import pytest

from bench.sharing import Patient
from kube.client.errors import Timeout
from tests.conftest import AnyioBackend
from tests.kube.scripted import Answer, ScriptedTransport, ok, refusal


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


async def _status(method: str, *answers: Answer) -> tuple[int, int]:
    """The status that is handed back, and how many calls were made."""
    transport = ScriptedTransport(deque(answers))
    answer = await Patient(transport).request(method, "/x", query={}, body=b"{}", timeout_s=5)
    return answer.status, len(transport.requests)


@pytest.mark.parametrize(
    ("method", "answers", "expected"),
    [
        ("POST", [ok({}, status=201)], (201, 1)),
        ("POST", [refusal(500, "InternalError"), ok({}, status=201)], (201, 2)),
        ("POST", [refusal(429, "TooManyRequests"), refusal(500, "InternalError"), ok({}, status=201)], (201, 3)),
        ("POST", [refusal(500, "InternalError"), refusal(409, "AlreadyExists")], (200, 2)),
        ("POST", [refusal(409, "AlreadyExists")], (409, 1)),
        ("DELETE", [refusal(500, "InternalError"), refusal(404, "NotFound")], (200, 2)),
        ("DELETE", [refusal(404, "NotFound")], (404, 1)),
        ("PATCH", [refusal(500, "InternalError"), refusal(409, "Conflict")], (409, 2)),
        ("GET", [refusal(500, "InternalError")] * 30, (500, 20)),
    ],
)
async def test_what_fails_is_asked_again_and_what_was_done_meanwhile_is_done(
    method: str, answers: list[Answer], expected: tuple[int, int]
) -> None:
    assert await _status(method, *answers) == expected


async def test_no_answer_is_asked_again_and_told_at_last() -> None:
    unanswered: list[Answer] = [Timeout("x")] * 20
    assert await _status("GET", *unanswered[:3], ok({})) == (200, 4)
    began = anyio.current_time()
    with pytest.raises(Timeout):
        await _status("GET", *unanswered)
    assert anyio.current_time() - began < 100
