from __future__ import annotations

import itertools
import random
from collections.abc import Awaitable, Callable

import anyio
import pytest

from kube.client import errors
from kube.client.retry import LIMIT_S, TRIES, Retry
from tests.conftest import AnyioBackend
from wire.core import Status


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


def refused(code: int, retry_after_s: float | None = None) -> errors.Refused:
    return errors.refused(code, Status(), retry_after_s=retry_after_s)


class Flaky:
    """Raises the errors in turn, then answers; remembers when it was called."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.times: list[float] = []

    async def __call__(self) -> str:
        self.times.append(anyio.current_time())
        if self.failures:
            raise self.failures.pop(0)
        return "answer"


@pytest.mark.parametrize("error", [errors.Unreachable(), errors.Timeout(), refused(429), refused(500), refused(503)])
async def test_a_read_is_tried_again_on_what_may_pass(error: Exception) -> None:
    call = Flaky(error, error)
    assert await Retry(random.Random(1)).read(call) == "answer"
    assert len(call.times) == 3


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 410, 422])
async def test_a_read_is_not_tried_again_on_an_answer(code: int) -> None:
    call = Flaky(refused(code))
    with pytest.raises(errors.Refused):
        await Retry(random.Random(1)).read(call)
    assert len(call.times) == 1


@pytest.mark.parametrize("error", [errors.Unreachable(), errors.Timeout(), refused(500), refused(409), refused(404)])
async def test_a_write_that_may_have_happened_is_never_repeated(error: Exception) -> None:
    call = Flaky(error)
    with pytest.raises(type(error)):
        await Retry(random.Random(1)).write(call)
    assert len(call.times) == 1


async def test_a_write_that_was_turned_away_comes_back_no_earlier_than_asked() -> None:
    call = Flaky(refused(429, retry_after_s=3.0), refused(429, retry_after_s=3.0))
    assert await Retry(random.Random(1)).write(call) == "answer"
    assert all(3.0 <= later - earlier < 4.0 for earlier, later in itertools.pairwise(call.times))


@pytest.mark.parametrize("method", ["read", "write"])
async def test_the_last_failure_is_raised_as_it_was_after_five_tries(method: str) -> None:
    call = Flaky(*(refused(429) for _ in range(9)))
    repeat: Callable[[Callable[[], Awaitable[str]]], Awaitable[str]] = getattr(Retry(random.Random(1)), method)
    with pytest.raises(errors.TooManyRequests):
        await repeat(call)
    assert len(call.times) == TRIES


async def test_no_try_starts_after_the_limit() -> None:
    async def slow() -> str:
        await anyio.sleep(6.0)
        raise errors.Timeout

    started = anyio.current_time()
    with pytest.raises(errors.Timeout):
        await Retry(random.Random(1)).read(slow)
    assert anyio.current_time() - started <= LIMIT_S + 6.0


async def test_a_server_that_asks_for_more_patience_than_there_is_gets_none() -> None:
    call = Flaky(refused(429, retry_after_s=60.0))
    with pytest.raises(errors.TooManyRequests):
        await Retry(random.Random(1)).write(call)
    assert anyio.current_time() == call.times[0]


async def test_waits_grow_and_come_from_the_seed() -> None:
    async def waits(seed: int) -> list[float]:
        call = Flaky(*(errors.Unreachable() for _ in range(4)))
        await Retry(random.Random(seed)).read(call)
        return [round(later - earlier, 6) for earlier, later in itertools.pairwise(call.times)]

    first = await waits(1)
    assert first == await waits(1)
    assert first != await waits(2)
    assert all(0.5 * nominal <= wait <= nominal for wait, nominal in zip(first, (0.25, 0.5, 1.0, 2.0), strict=True))


async def test_a_cancelled_call_is_not_tried_again() -> None:
    call = Flaky()

    async def hang() -> str:
        await call()
        await anyio.sleep_forever()
        return "never"

    with anyio.move_on_after(5.0) as scope:
        await Retry(random.Random(1)).read(hang)
    assert scope.cancelled_caught
    assert len(call.times) == 1
