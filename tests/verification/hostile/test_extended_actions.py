"""What is done about claims for extended resources in hostile runs: pods get what they ask, and nothing is an error."""

from __future__ import annotations

import anyio
import msgspec
import pytest

from kube.client.resources import RESOURCE_CLAIMS
from simulator.world import World
from tests.conftest import AnyioBackend
from tests.simulator.test_world import world
from verification.hostile.actions import MAIN, Action, CreatePod
from verification.hostile.device_actions import (
    CreateExtendedClass,
    DeleteClaimsOf,
    DeleteClass,
    ExtendedAction,
    ForgeClaim,
    Offered,
    PublishDevices,
)

RESOURCE = "example.com/accelerator"
CLASS = CreateExtendedClass(at_s=0, name="big", resource=RESOURCE, is_big=True)
POD = CreatePod(at_s=0, name="p", limits={MAIN: {RESOURCE: "1"}})
DEVICES = PublishDevices(at_s=0, node="node-0", devices=(Offered(name="d0"), Offered(name="d1", is_big=True)))
EACH: tuple[ExtendedAction, ...] = (
    CLASS,
    DeleteClaimsOf(at_s=0, pod="p"),
    ForgeClaim(at_s=0, name="forged", pod="p", cls="big"),
    DeleteClass(at_s=0, name="big"),
)


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


async def _perform(made: World, *actions: Action) -> None:
    for action in actions:
        await action.perform(made)
    await anyio.sleep(30)


async def _claims(made: World) -> dict[str, list[str]]:
    """Devices of each claim, by its name."""
    return {
        claim.metadata.name: [each.device for each in claim.status.allocation.devices.results or ()]
        if claim.status.allocation is not None
        else []
        for claim in (await made.api.list(RESOURCE_CLAIMS, namespace="team")).items
    }


async def test_every_action_comes_back_from_json_and_may_come_twice_or_in_vain() -> None:
    assert {type(each) for each in EACH} == set(ExtendedAction.__args__)
    assert msgspec.json.decode(msgspec.json.encode(EACH), type=tuple[Action, ...]) == EACH
    async with world("1x0") as made:
        for action in (*reversed(EACH), *EACH, POD, *EACH, *EACH):
            await action.perform(made)


async def test_a_pod_gets_a_device_of_the_class_that_stands_for_what_it_asks() -> None:
    async with world("1x0") as made:
        await _perform(made, CLASS, DEVICES, POD)
        assert [*(await _claims(made)).values()] == [["d1"]]
        assert [pod["spec"].get("nodeName") for pod in made.pods] == ["node-0"]


async def test_a_claim_that_is_forged_for_a_pod_that_waits_is_removed_and_the_pod_gets_its_own() -> None:
    async with world("1x0") as made:
        await _perform(made, POD, ForgeClaim(at_s=0, name="forged", pod="p", cls="big"), CLASS, DEVICES)
        ((name, devices),) = (await _claims(made)).items()
        assert (name != "forged", devices) == (True, ["d1"])


async def test_claims_of_the_named_pod_alone_are_deleted() -> None:
    async with world("1x0") as made:
        await _perform(made, POD, ForgeClaim(at_s=0, name="forged", pod="p", cls="big"))
        await DeleteClaimsOf(at_s=0, pod="q").perform(made)
        found = await _claims(made)
        await DeleteClaimsOf(at_s=0, pod="p").perform(made)
        assert (len(found), await _claims(made)) == (len(found), {})
