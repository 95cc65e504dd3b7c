"""Faults of claims: controllers stand still, devices vanish, writes are struck, another scheduler allocates."""

from __future__ import annotations

from functools import partial

import pytest

from kube.client.resources import PERSISTENT_VOLUME_CLAIMS, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.verification.hostile.faults.grounds import NAMESPACE, Stage, stage
from verification.hostile.actions import CreatePod
from verification.hostile.device_actions import (
    CreateClaimTemplate,
    CreateDeviceClasses,
    CreateResourceClaim,
    CreateStorageClasses,
    CreateVolumeClaim,
    Offered,
    PublishDevices,
    Want,
)
from verification.hostile.faults.devices import (
    RIVALS,
    Blow,
    ClaimControllerDown,
    ClaimsRemade,
    ClaimsUnheard,
    ClaimWrites,
    CrashAtClaims,
    DevicesRenewed,
    DevicesTainted,
    DevicesVanish,
    ProvisionerDown,
    ProvisioningFails,
    ProvisioningSlow,
    RivalAllocates,
)
from verification.hostile.faults.ground import Timed

DEVICES = (Offered(name="d0"), Offered(name="d1", is_big=True, is_tainted=True), Offered(name="d2", shared_gib=16))
_FAULT = partial(ClaimWrites, at_s=2, for_s=10, user="scheduler")


async def prepared(on: Stage) -> None:
    for action in (
        CreateDeviceClasses(at_s=0),
        CreateStorageClasses(at_s=0),
        PublishDevices(at_s=0, node="node-0", devices=DEVICES),
        CreateClaimTemplate(at_s=0, name="t", wants=(Want(),)),
        CreateResourceClaim(at_s=0, name="c", wants=(Want(),)),
        CreateVolumeClaim(at_s=0, name="v"),
    ):
        await action.perform(on.world)


async def pod(on: Stage, name: str, **more: tuple[str, ...]) -> None:
    await CreatePod(at_s=0, name=name, **more).perform(on.world)  # type: ignore[arg-type] # claims of each kind


def running(on: Stage) -> set[str]:
    return {each["metadata"]["name"] for each in on.world.pods if each["status"].get("phase") == "Running"}


async def slices(on: Stage) -> dict[str, int]:
    return {each.metadata.name: each.spec.pool.generation for each in (await on.world.api.list(RESOURCE_SLICES)).items}


async def test_claims_are_made_when_the_controller_works_again() -> None:
    async with stage() as on:
        await prepared(on)
        on.strike(ClaimControllerDown(at_s=2, for_s=20))
        await on.until(3)
        await pod(on, "p", templates=("t",))
        await on.until(20)
        assert running(on) == set()
        await on.until(30)
        assert running(on) == {"p"}


@pytest.mark.parametrize(
    "fault",
    [
        ProvisionerDown(at_s=2, for_s=20),
        ProvisioningFails(at_s=2, for_s=20, per_mille=1000, seed=1),
        ProvisioningSlow(at_s=2, for_s=25, slow_s=25),
    ],
    ids=lambda fault: fault.kind,
)
async def test_volumes_are_made_when_it_is_over(fault: Timed) -> None:
    async with stage() as on:
        await prepared(on)
        on.strike(fault)
        await on.until(3)
        await pod(on, "p", volumes=("v",))
        await on.until(20)
        assert not (await on.world.api.get(PERSISTENT_VOLUME_CLAIMS, "v", namespace=NAMESPACE)).spec.volume_name
        await on.until(120)
        assert running(on) == {"p"}
        assert on.world.claims.takes_s == on.world.claims.usual_s


async def test_devices_vanish_and_come_again_in_another_generation() -> None:
    async with stage() as on:
        await prepared(on)
        on.strike(DevicesVanish(at_s=2, for_s=20, node="node-0"))
        await on.until(3)
        assert await slices(on) == {}
        await pod(on, "p", claims=("c",))
        await on.until(21)
        assert running(on) == set()
        await on.until(40)
        assert (running(on), await slices(on)) == ({"p"}, {"node-0-2-0": 2})


async def test_devices_are_renewed_in_two_slices_and_the_old_one_goes_last() -> None:
    async with stage() as on:
        await prepared(on)
        on.strike(DevicesRenewed(at_s=2, for_s=20, node="node-0"))
        await on.until(10)
        assert await slices(on) == {"node-0-1-0": 1, "node-0-2-0": 2}
        await on.until(25)
        assert await slices(on) == {"node-0-2-0": 2, "node-0-2-1": 2}


async def test_devices_are_tainted_for_a_time_and_then_are_what_they_were() -> None:
    async with stage() as on:
        await prepared(on)

        async def tainted() -> dict[str, bool]:
            found = await on.world.api.get(RESOURCE_SLICES, "node-0-1-0")
            return {each.name: bool(each.taints) for each in found.spec.devices or ()}

        before = await tainted()
        on.strike(DevicesTainted(at_s=2, for_s=20, node="node-0"))
        await on.until(10)
        assert await tainted() == dict.fromkeys(before, True)
        await on.until(25)
        assert await tainted() == before == {"d0": False, "d1": True, "d2": False}


async def test_a_claim_is_made_again_under_its_name() -> None:
    async with stage() as on:
        await prepared(on)
        uid = (await on.world.api.get(RESOURCE_CLAIMS, "c", namespace=NAMESPACE)).metadata.uid
        on.strike(ClaimsRemade(at_s=2, for_s=20, every_s=100, pick=5))
        await on.until(25)
        again = await on.world.api.get(RESOURCE_CLAIMS, "c", namespace=NAMESPACE)
        assert again.metadata.uid != uid
        assert again.spec.devices.requests


@pytest.mark.parametrize(
    "blow", ["conflict", "forbidden", "error", "error-done", "answer-lost", "lost", "late"], ids=str
)
async def test_writes_of_claims_are_struck_for_a_time_and_the_pod_runs_then(blow: Blow) -> None:
    async with stage() as on:
        await prepared(on)
        on.strike(_FAULT(blow=blow, later_s=1.0))
        await on.until(3)
        await pod(on, "p", claims=("c",), volumes=("v",))
        await on.until(6)
        assert (running(on) == set()) == (blow != "error-done")
        await on.until(150)
        assert running(on) == {"p"}


@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_a_scheduler_is_killed_at_a_write_of_a_claim_and_at_no_other(nth: int) -> None:
    async with stage() as on:
        await prepared(on)
        on.strike(CrashAtClaims(at_s=2, for_s=100, component="scheduler", nth=nth))
        await pod(on, "q")
        await on.until(10)
        assert on.world.scheduler.incarnations == (1 if nth > 1 else 1 + ("q" not in running(on)))
        await pod(on, "p", claims=("c",))
        await on.until(90)
        assert on.world.scheduler.incarnations == 2
        assert running(on) == {"p", "q"}


async def test_nothing_is_heard_of_claims_until_the_end() -> None:
    async with stage() as on:
        await prepared(on)
        on.strike(ClaimsUnheard(at_s=2, for_s=20, user="scheduler", plural="resourceclaims"))
        await on.until(3)
        await pod(on, "p", templates=("t",))
        await on.until(20)
        assert running(on) == set()
        await on.until(40)
        assert running(on) == {"p"}


async def _given(on: Stage, namespace: str) -> list[str]:
    claims = (await on.world.api.list(RESOURCE_CLAIMS, namespace=namespace)).items
    allocations = [claim.status.allocation for claim in claims if claim.status.allocation is not None]
    return [each.device for allocation in allocations for each in allocation.devices.results or ()]


async def test_what_it_knows_is_old_so_it_gives_away_what_is_taken() -> None:
    async with stage() as on:
        await prepared(on)
        on.strike(RivalAllocates(at_s=2, for_s=20, count=1, late_s=8.0, seed=2))
        await on.until(2.05)
        await pod(on, "p", claims=("c",))
        await on.until(19)
        assert (await _given(on, RIVALS), await _given(on, "team")) == (["d0"], ["d0"])


async def test_it_takes_a_device_that_is_free_and_gives_it_back_at_the_end() -> None:
    async with stage() as on:
        await prepared(on)
        on.strike(RivalAllocates(at_s=2, for_s=20, count=2, late_s=0.0, seed=1))
        await on.until(15)
        assert await _given(on, RIVALS) == ["d0"]  # the others are tainted, and shared
        await pod(on, "p", claims=("c",))
        await on.until(60)
        assert (await _given(on, RIVALS), await _given(on, "team")) == ([], ["d2"])
        assert (await on.world.api.list(RESOURCE_CLAIMS, namespace=RIVALS)).items == []
