from __future__ import annotations

import math

import anyio
import pytest

from kube.client.errors import Conflict, ServerError, Timeout, TooLate
from kube.client.fence import WriteFence, WriteTimes
from tests.conftest import AnyioBackend
from wire.core import Status


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


@pytest.mark.parametrize(
    ("left_s", "times"),
    [
        (math.inf, WriteTimes(10.0, 11.0)),
        (21.0, WriteTimes(10.0, 11.0)),
        (15.0, WriteTimes(7.0, 8.0)),
        (3.0, WriteTimes(1.0, 2.0)),
        (2.0, WriteTimes(0.5, 1.5)),
    ],
)
async def test_way_and_work_of_a_write_are_over_before_the_lease_is(left_s: float, times: WriteTimes) -> None:
    with WriteFence(lambda: left_s).write(10.0) as given:
        assert given == times
        assert given.wait_s + given.server_s <= left_s


@pytest.mark.parametrize("left_s", [1.99, 0.0, -5.0, -math.inf])
async def test_what_could_not_be_over_in_time_is_not_sent(left_s: float) -> None:
    with pytest.raises(TooLate, match=r"has \d\.\d+ s left, 2\.0 s needed"), WriteFence(lambda: left_s).write(10.0):
        raise AssertionError


async def test_what_was_answered_lands_no_more() -> None:
    fence = WriteFence()
    with fence.write(10.0):
        assert fence.lands_until == 21.0
    assert fence.lands_until == -math.inf
    with pytest.raises(Conflict), fence.write(10.0):
        raise Conflict(409, Status())
    assert fence.lands_until == -math.inf


@pytest.mark.parametrize("error", [Timeout(), ServerError(504, Status())])
async def test_what_was_not_clearly_answered_may_land_until_both_its_times_are_over(error: Exception) -> None:
    fence = WriteFence()
    with pytest.raises(type(error)), fence.write(4.0):
        raise error
    assert fence.lands_until == 9.0


async def test_what_was_broken_off_may_land_all_the_same() -> None:
    fence = WriteFence()
    with anyio.move_on_after(1.0), fence.write(4.0):
        await anyio.sleep_forever()
    assert anyio.current_time() == 1.0
    assert fence.lands_until == 9.0


async def test_a_closed_fence_lets_nothing_through_and_what_is_under_way_ends() -> None:
    fence = WriteFence()

    async def write() -> None:
        with fence.write(10.0):
            await anyio.sleep(2.0)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        await anyio.sleep(1.0)
        fence.close()
        with pytest.raises(TooLate, match="ending"), fence.write(10.0):
            raise AssertionError
        await fence.settled()
        assert anyio.current_time() == 2.0
    await fence.settled()
