"""What users do with ResourceClaims and volumes in hostile runs: pods get what they ask, and nothing is an error."""

from __future__ import annotations

import anyio
import msgspec
import pytest

from kube.client.resources import PERSISTENT_VOLUME_CLAIMS, RESOURCE_CLAIMS, RESOURCE_SLICES
from simulator.world import World
from tests.conftest import AnyioBackend
from tests.simulator.test_world import world
from verification.hostile.actions import Action, CreatePod, CreatePodGroup
from verification.hostile.device_actions import (
    BIG_CLASS,
    SLOW_CLASS,
    ClaimAction,
    CreateClaimTemplate,
    CreateDeviceClasses,
    CreateResourceClaim,
    CreateStorageClasses,
    CreateVolume,
    CreateVolumeClaim,
    DeleteResourceClaim,
    DeleteVolumeClaim,
    Offered,
    PublishDevices,
    RunDriver,
    Want,
    WithdrawDevices,
)

DEVICES = (Offered(name="d0"), Offered(name="d1", is_big=True), Offered(name="d2", shared_gib=16))
WANTS = (Want(), Want(cls=BIG_CLASS), Want(part_gib=4), Want(count=0, tolerates=True), Want(otherwise=BIG_CLASS))
EACH: tuple[ClaimAction, ...] = (
    CreateDeviceClasses(at_s=0),
    PublishDevices(at_s=0, node="node-0", devices=DEVICES, generation=2, slices=2),
    RunDriver(at_s=0, until_s=10, takes_s=1.0, seed=1),
    WithdrawDevices(at_s=0, node="node-0"),
    CreateClaimTemplate(at_s=0, name="t", wants=WANTS),
    CreateResourceClaim(at_s=0, name="c", wants=WANTS),
    DeleteResourceClaim(at_s=0, name="c"),
    CreateStorageClasses(at_s=0),
    CreateVolume(at_s=0, name="pv", node="node-0"),
    CreateVolumeClaim(at_s=0, name="v", cls=SLOW_CLASS, is_shared=True),
    DeleteVolumeClaim(at_s=0, name="v"),
)


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


async def test_every_action_comes_back_from_json_and_may_come_twice_or_in_vain() -> None:
    assert {type(each) for each in EACH} == set(ClaimAction.__args__)
    assert msgspec.json.decode(msgspec.json.encode(EACH), type=tuple[Action, ...]) == EACH
    async with world("1x1x80GiB") as made:
        for action in (*reversed(EACH), *EACH, *EACH):
            await action.perform(made)


async def _perform(made: World, *actions: Action) -> None:
    for action in actions:
        await action.perform(made)
    await anyio.sleep(30)


async def test_pods_with_claims_by_name_from_templates_and_of_volumes_run() -> None:
    async with world("2x1x80GiB") as made:
        await _perform(
            made,
            CreateDeviceClasses(at_s=0),
            CreateStorageClasses(at_s=0),
            PublishDevices(at_s=0, node="node-1", devices=DEVICES),
            CreateClaimTemplate(at_s=0, name="t", wants=(Want(cls=BIG_CLASS), Want(part_gib=4))),
            CreateResourceClaim(at_s=0, name="c", wants=(Want(),)),
            CreateVolumeClaim(at_s=0, name="v"),
            CreatePod(at_s=0, name="p", templates=("t",), volumes=("v",)),
            CreatePod(at_s=0, name="q", claims=("c",)),
        )
        assert {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in made.pods} == {
            "p": "node-1",
            "q": "node-1",
        }
        claims = (await made.api.list(RESOURCE_CLAIMS, namespace="team")).items
        given = {each.device for claim in claims for each in claim.status.allocation.devices.results or ()}  # type: ignore[union-attr]
        assert given == {"d0", "d1", "d2"}
        (volume,) = (await made.api.list(PERSISTENT_VOLUME_CLAIMS, namespace="team")).items
        assert volume.spec.volume_name


async def test_pods_of_a_pod_group_of_kubernetes_share_the_claim_that_was_made_for_it() -> None:
    async with world("2x1x80GiB") as made:
        await _perform(
            made,
            CreateDeviceClasses(at_s=0),
            PublishDevices(at_s=0, node="node-1", devices=DEVICES),
            CreateClaimTemplate(at_s=0, name="t", wants=(Want(count=5),)),
            CreateResourceClaim(at_s=0, name="of-g", wants=(Want(),), pod_group="g"),
            *(CreatePod(at_s=0, name=name, templates=("t",), workload_group="g", group="gang") for name in "pq"),
            CreatePod(at_s=0, name="other", templates=("t",), workload_group="h"),
            CreatePodGroup(at_s=0, name="gang", minimum=2),
        )
        nodes = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in made.pods}
        assert nodes == {"p": "node-1", "q": "node-1", "other": None}
        claim = await made.api.get(RESOURCE_CLAIMS, "of-g", namespace="team")
        assert sorted(each.name for each in claim.status.reserved_for or ()) == ["p", "q"]


async def test_a_driver_that_publishes_again_removes_what_was_before() -> None:
    async with world("1x1x80GiB") as made:
        for generation in (1, 2):
            await _perform(
                made, PublishDevices(at_s=0, node="node-0", devices=DEVICES, generation=generation, slices=2)
            )
        listed = (await made.api.list(RESOURCE_SLICES)).items
        assert sorted(each.metadata.name for each in listed) == ["node-0-2-0", "node-0-2-1"]
        await _perform(made, WithdrawDevices(at_s=0, node="node-0"))
        assert (await made.api.list(RESOURCE_SLICES)).items == []
