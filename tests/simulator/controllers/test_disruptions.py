"""The disruption controller: it asks for nothing where there is no budget (its counting: test_room_actions.py)."""

from __future__ import annotations

import anyio
import pytest

from simulator.controllers import disruption
from tests.conftest import AnyioBackend
from tests.simulator.test_world import world
from verification.hostile.actions import CreatePod
from verification.hostile.queue_actions import CreateBudget


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


@pytest.mark.parametrize("has_budget", [False, True])
async def test_it_writes_where_there_is_a_budget_and_comes_to_rest(has_budget: bool) -> None:
    async with world("1x1x80GiB") as made:
        if has_budget:
            await CreateBudget(at_s=0, name="b", least=0).perform(made)
        await CreatePod(at_s=0, name="p", gpus=1).perform(made)
        await anyio.sleep(60)
        writes = [entry for entry in made.server.audit if entry.user == disruption.USER]
        assert bool(writes) is has_budget
        assert len(writes) < 10
