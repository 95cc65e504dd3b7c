"""Budgets that users make in hostile runs, counted by the disruption controller of the simulated cluster."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest

from kube.client import errors
from kube.client.resources import PODS
from tests.conftest import AnyioBackend
from tests.simulator.apiserver.calls import send
from tests.simulator.test_world import world
from verification.hostile.actions import Action, CreatePod
from verification.hostile.queue_actions import CreateBudget, DeleteBudget, EditBudget

BUDGET = "/apis/policy/v1/namespaces/team/poddisruptionbudgets/b"
MADE = CreateBudget(at_s=0, name="b", least=1, labels={"team": "a"})


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


@pytest.mark.parametrize("action", [EditBudget(at_s=0, name="b", least=1), DeleteBudget(at_s=0, name="b")])
async def test_what_is_not_there_is_no_error_and_every_action_comes_back_from_json(action: Action) -> None:
    async with world("1x1x80GiB") as made:
        await action.perform(made)
    assert msgspec.json.decode(msgspec.json.encode((MADE, action)), type=tuple[Action, ...]) == (MADE, action)


async def _status(made: Any) -> dict[str, Any]:
    await anyio.sleep(1)
    answer = await send(made.server.transport(), "GET", BUDGET)
    status: dict[str, Any] = msgspec.json.decode(answer.body)["status"]
    return status


async def test_a_budget_is_counted_as_its_pods_come_and_go_and_forbids_evictions() -> None:
    async with world("1x4x80GiB") as made:
        for name in ("p", "q"):
            await CreatePod(at_s=0, name=name, gpus=1, labels={"team": "a"}).perform(made)
        await MADE.perform(made)
        await anyio.sleep(10)
        assert (await _status(made))["disruptionsAllowed"] == 1
        await made.api.evict("team", "p")
        status = await _status(made)
        assert (status["disruptionsAllowed"], status["currentHealthy"]) == (0, 1)
        with pytest.raises(errors.TooManyRequests):
            await made.api.evict("team", "q")
        await EditBudget(at_s=0, name="b", least=0).perform(made)
        assert (await _status(made))["disruptionsAllowed"] == 1
        await made.api.evict("team", "q")
        await anyio.sleep(60)
        status = await _status(made)
        assert (status["disruptionsAllowed"], status["expectedPods"]) == (0, 0)
        assert not status.get("disruptedPods")
        assert (await made.api.list(PODS, namespace="team")).items == []
