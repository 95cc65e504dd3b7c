from __future__ import annotations

import random

import pytest

from kube.client.api import Api
from kube.client.resources import PODS
from kube.client.retry import Retry
from tests.conftest import AnyioBackend
from ui.page.simulated import at_work, of_nodes


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


async def _pods(*, is_filled: bool) -> int:
    async with at_work(of_nodes(["10x8x80GiB"]), is_filled=is_filled) as transport:
        return len((await Api(transport, retry=Retry(random.Random(1))).list(PODS)).items)


async def test_a_play_can_be_looked_at_before_all_have_come() -> None:
    assert await _pods(is_filled=True) > 50
    assert await _pods(is_filled=False) < 10
