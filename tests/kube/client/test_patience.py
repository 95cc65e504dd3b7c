"""Pauses between tries."""

from __future__ import annotations

import itertools

import anyio
import pytest

from kube.client.backoff import doubled_s, until_answered
from kube.client.errors import ApiError, BadName, Forbidden, Unreachable
from tests.conftest import AnyioBackend
from wire.core import Status


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


@pytest.mark.parametrize(("times", "pause_s"), [(0, 2.0), (1, 4.0), (4, 32.0), (5, 60.0), (60, 60.0), (5000, 60.0)])
def test_each_failure_doubles_the_pause_up_to_the_longest_however_many_there_were(times: int, pause_s: float) -> None:
    assert doubled_s(2.0, times, longest_s=60.0) == pause_s


@pytest.mark.parametrize(
    ("error", "pauses_s"),
    [
        (Unreachable("away"), [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]),
        (Forbidden(403, Status()), [0.2 * 2**n for n in range(11)] + [300.0, 300.0]),
    ],
)
async def test_what_is_not_answered_is_asked_ever_more_rarely(error: ApiError, pauses_s: list[float]) -> None:
    times: list[float] = []

    async def call() -> str:
        times.append(anyio.current_time())
        if len(times) > len(pauses_s):
            return "answer"
        raise error

    assert await until_answered(call) == "answer"
    assert [later - earlier for earlier, later in itertools.pairwise(times)] == pytest.approx(pauses_s)


async def test_what_can_not_be_sent_is_not_asked_again() -> None:
    times: list[float] = []

    async def call() -> str:
        times.append(anyio.current_time())
        raise BadName("name", "../x", "a name")

    with pytest.raises(BadName):
        await until_answered(call)
    assert len(times) == 1
