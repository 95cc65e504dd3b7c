"""What people do about node pools in hostile runs."""

from __future__ import annotations

import msgspec
import pytest

from kube.client.resources import NODES, POD_GROUPS, PODS
from tests.conftest import AnyioBackend
from tests.simulator.test_world import world
from verification.hostile.actions import Action, CreatePod, CreatePodGroup
from verification.hostile.queue_actions import MoveGroup, MoveNode, MovePod, MoveQueue
from wire import names


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


@pytest.mark.parametrize(
    "action",
    [
        MoveNode(at_s=0, node="none", pool="a"),
        MovePod(at_s=0, pod="none", pool="a"),
        MoveGroup(at_s=0, group="none", pool="a"),
        MoveQueue(at_s=0, queue="none", pool="a"),
    ],
)
async def test_what_is_not_there_is_no_error_and_every_action_comes_back_from_json(action: Action) -> None:
    async with world("1x1x80GiB") as made:
        await action.perform(made)
    assert msgspec.json.decode(msgspec.json.encode((action,)), type=tuple[Action, ...]) == (action,)


@pytest.mark.parametrize("pool", ["a", ""])
async def test_nodes_pods_and_gangs_get_a_pool_and_lose_it(pool: str) -> None:
    async with world("1x1x80GiB") as made:
        labels = {names.NODE_POOL_LABEL: "b"}
        await CreatePodGroup(at_s=0, name="g", minimum=1, labels=labels).perform(made)
        await CreatePod(at_s=0, name="p", labels=labels).perform(made)
        moves = MoveNode(at_s=0, node="node-0", pool=pool), MovePod(at_s=0, pod="p", pool=pool)
        for move in (*moves, MoveGroup(at_s=0, group="g", pool=pool)):
            await move.perform(made)
        found = (
            await made.api.get(NODES, "node-0"),
            await made.api.get(PODS, "p", namespace="team"),
            await made.api.get(POD_GROUPS, "g", namespace="team"),
        )
        assert [(each.metadata.labels or {}).get(names.NODE_POOL_LABEL, "") for each in found] == [pool] * 3
