"""What administrators do with MIG slices in hostile runs."""

from __future__ import annotations

import anyio
import msgspec
import pytest

from kube.client.resources import GPU_NODES, NODES
from tests.conftest import AnyioBackend
from tests.simulator.mig.stage import NODE, stage
from verification.hostile.actions import Action
from verification.hostile.device_actions import AskLayout, OfferGpus, WithdrawLayouts
from wire import names


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


@pytest.mark.parametrize(
    "action",
    [
        AskLayout(at_s=0, node="none", attempt="a", slices=("1g.10gb@0",)),
        WithdrawLayouts(at_s=0, node="none"),
        OfferGpus(at_s=0, node="none"),
    ],
)
async def test_what_is_not_there_is_no_error_and_every_action_comes_back_from_json(action: Action) -> None:
    async with stage() as on:
        await action.perform(on.world)
    assert msgspec.json.decode(msgspec.json.encode((action,)), type=tuple[Action, ...]) == (action,)


async def test_a_layout_is_asked_for_and_made() -> None:
    async with stage("1g.10gb@0") as on:
        await anyio.sleep(10)
        slices = ("2g.20gb@0", "3g.40gb@4")
        await AskLayout(at_s=0, node=NODE, attempt="a", slices=slices).perform(on.world)
        await anyio.sleep(30)
        assert on.spots == list(slices)


async def test_what_is_asked_is_taken_back() -> None:
    async with stage("1g.10gb@0") as on:
        await anyio.sleep(10)
        await AskLayout(at_s=0, node=NODE, attempt="a", slices=("7g.80gb@0",)).perform(on.world)
        await WithdrawLayouts(at_s=0, node=NODE).perform(on.world)
        assert (await on.world.api.get(GPU_NODES, NODE)).spec.mig is None
        await anyio.sleep(30)
        assert on.spots == ["1g.10gb@0"]


@pytest.mark.parametrize("is_offered", [True, False])
async def test_a_node_is_offered_or_not(is_offered: bool) -> None:
    async with stage() as on:
        await OfferGpus(at_s=0, node=NODE, is_offered=is_offered).perform(on.world)
        labels = (await on.world.api.get(NODES, NODE)).metadata.labels or {}
        assert (names.NODE_MIG in labels) == is_offered
