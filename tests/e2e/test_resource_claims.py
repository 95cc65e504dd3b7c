"""Pods with ResourceClaims, on the real control plane: its controller makes and clears claims, Moorage allocates."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.e2e.cluster import PATIENCE_S, Pod, eventually, pod, share
from tests.e2e.conftest import SetScene
from tests.e2e.devices import ATTACHED, BROKEN, EXTENDED, Devices

pytestmark = pytest.mark.cluster


@pytest.fixture
async def devices(set_scene: SetScene) -> AsyncIterator[Devices]:
    async with set_scene(["2x2x80GiB"]) as made:
        offered = Devices(made)
        await offered.offer()
        yield offered
        await offered.take_away()


def _using(name: str, claim: str = "", *, template: str = "", fraction: str = "0.1") -> Pod:
    made = share(name, fraction)
    by = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim}
    made["spec"]["resourceClaims"] = [{"name": "gpu", **by}]
    return made


async def _until_users(devices: Devices, *names: str) -> None:
    """Wait until exactly these pods are in ``reservedFor`` of the scene's claims."""

    async def are_users() -> bool | None:
        claims = await devices.claims()
        found = sorted(each["name"] for claim in claims for each in claim.get("status", {}).get("reservedFor", ()))
        return found == sorted(names) or None

    await eventually(are_users, f"claims reserved for {names}", within_s=PATIENCE_S)


async def test_a_claim_by_template_is_allocated_and_goes_with_its_pod(devices: Devices) -> None:
    await devices.create("one", model="large", is_template=True)
    await devices.scene.create(_using("p", template="one"))
    assert (await devices.scene.running(1))["p"]["spec"]["nodeName"] == devices.nodes[1]
    (claim,) = await devices.claims()
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert await devices.given() == {(devices.nodes[1], "d0")}
    await devices.scene.delete("p")

    async def are_gone() -> bool | None:
        return not await devices.claims() or None

    await eventually(are_gone, "claims gone with their pods", within_s=PATIENCE_S)


async def test_a_gang_gets_all_of_its_devices_or_none(devices: Devices) -> None:
    await devices.create("one", is_template=True)
    await devices.create("held", 2, model="small")
    await devices.scene.create(_using("holder", "held"))
    await devices.scene.running(1)
    await devices.scene.create_gang("g", 3, *(_using(f"m{number}", template="one") for number in range(3)))
    await devices.scene.says("m0", "cannot allocate all claims")
    assert len(await devices.given()) == 2
    await devices.scene.delete("holder")
    await devices.scene.gone(["holder"])
    await devices.scene.running(3)
    assert len(await devices.given()) == 3
    await _until_users(devices, "m0", "m1", "m2")


def _asking(devices: Devices, name: str, count: int = 1) -> Pod:
    made = pod(name)
    made["spec"]["containers"][0]["resources"] = {"limits": {devices.resource: str(count)}}
    return made


async def test_devices_stand_for_an_extended_resource_of_a_pod(devices: Devices) -> None:
    await devices.scene.create(_asking(devices, "p", 2))
    running = (await devices.scene.running(1))["p"]
    (claim,) = await devices.claims()
    assert claim["metadata"]["annotations"] == EXTENDED
    status = running["status"]["extendedResourceClaimStatus"]
    assert status["resourceClaimName"] == claim["metadata"]["name"]
    assert [each["resourceName"] for each in status["requestMappings"]] == [devices.resource]
    node = running["spec"]["nodeName"]
    assert await devices.given() == {(node, "d0"), (node, "d1")}
    await devices.scene.create(_asking(devices, "q", 2))
    await devices.scene.running(2)
    await devices.scene.create(_asking(devices, "r"))
    await devices.scene.says("r", "cannot allocate all claims")
    await devices.scene.delete("p")
    await devices.scene.gone(["p"])
    assert set(await devices.scene.running(2)) == {"q", "r"}
    await _until_users(devices, "q", "r")


async def test_a_claim_that_another_scheduler_made_for_a_pod_is_deleted_before_the_pod_gets_its_own(
    devices: Devices,
) -> None:
    wanted = _asking(devices, "p")
    wanted["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
    await devices.scene.create(wanted)
    other = await devices.create_for(await devices.scene.pod("p"))
    body = [{"op": "remove", "path": "/spec/schedulingGates"}]
    await devices.scene.core.patch_namespaced_pod("p", devices.scene.namespace, body)
    running = (await devices.scene.running(1))["p"]
    (claim,) = await devices.claims()
    assert claim["metadata"]["name"] == running["status"]["extendedResourceClaimStatus"]["resourceClaimName"] != other


async def test_a_pod_is_bound_when_its_device_is_attached(devices: Devices) -> None:
    await devices.offer_slow()
    await devices.create("slow", model="slow", is_template=True)
    await devices.scene.create(_using("p", template="slow"))
    await _until_users(devices, "p")
    (claim,) = await devices.claims()
    assert claim["status"]["allocation"]["allocationTimestamp"]

    async def says_so() -> bool | None:
        waiting = await devices.scene.pod("p")
        assert not waiting["spec"].get("nodeName")
        conditions = waiting["status"].get("conditions") or ()
        said = [each["reason"] for each in conditions if each["type"] == "PodScheduled"]
        return said == ["BindingConditionsPending"] or None

    await eventually(says_so, "the pod says what it waits for", within_s=PATIENCE_S)
    await devices.report(ATTACHED)
    (found,) = await devices.given()
    assert (await devices.scene.running(1))["p"]["spec"]["nodeName"] == found[0].removesuffix("-slow")


async def test_a_pod_whose_device_fails_gets_another_one(devices: Devices) -> None:
    await devices.offer_slow()
    await devices.create("slow", model="slow", is_template=True)
    await devices.scene.create(_using("p", template="slow"))
    await _until_users(devices, "p")
    first = await devices.given()
    await devices.report(BROKEN)

    async def is_another() -> bool | None:
        found = await devices.given()
        return (bool(found) and found != first) or None

    await eventually(is_another, "another device for the claim", within_s=PATIENCE_S)
    assert all("devices" not in each["status"] for each in await devices.claims())
    await devices.report(ATTACHED)
    await devices.scene.running(1)
