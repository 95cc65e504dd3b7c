from __future__ import annotations

import anyio
import pytest

from kube.client.errors import Timeout
from kube.client.transport import deadline
from tests.conftest import AnyioBackend


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


async def test_a_call_that_takes_too_long_ends_when_its_time_is_over() -> None:
    with pytest.raises(Timeout, match=r"GET /pods: no answer within 3\.0 s"), deadline(3, "GET /pods"):
        await anyio.sleep(60)
    assert anyio.current_time() == 3


async def test_a_call_in_time_is_left_alone() -> None:
    began_s = anyio.current_time()
    with deadline(3, "GET /pods"):
        await anyio.sleep(2)
    await anyio.sleep(10)
    assert anyio.current_time() == began_s + 12


async def test_the_time_out_of_a_socket_is_told_in_the_same_way_and_other_errors_as_they_are() -> None:
    with pytest.raises(Timeout, match="no answer within"), deadline(3, "GET /pods"):
        raise TimeoutError("[Errno 110] Connection timed out")
    with pytest.raises(ValueError, match="other"), deadline(3, "GET /pods"):
        raise ValueError("other")


async def test_who_is_stopped_from_outside_hears_of_no_time_out() -> None:
    with anyio.move_on_after(1) as outer:
        with deadline(3, "GET /pods"):
            await anyio.sleep(60)
    assert outer.cancelled_caught
