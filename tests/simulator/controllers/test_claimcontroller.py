"""ResourceClaims are made from templates, cleaned, and go with their pods (with the scheduler: test_claims.py)."""

from __future__ import annotations

import anyio
import pytest

from kube.client.resources import PODS, RESOURCE_CLAIMS
from simulator.controllers import claims
from tests.conftest import AnyioBackend
from tests.scheduler.commit.devices import claims_of, create_claim, create_template, users, using
from tests.scheduler.stage import TEAM, create, pod, settle, stage
from wire import names


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


async def test_without_claims_it_asks_the_api_server_for_nothing() -> None:
    async with stage("1x1x80GiB") as world:
        await create(world, pod("p"))
        await anyio.sleep(60)
        assert not [entry for entry in world.server.audit if entry.user == claims.CLAIM_CONTROLLER]


async def test_a_claim_is_made_for_a_pod_and_goes_with_it() -> None:
    async with stage("1x1x80GiB") as world:
        made = world.resource_claims
        await create_template(made, "one")
        await create(world, using(pod("p"), template="one"))
        await settle(5)
        (claim,) = (await claims_of(made)).values()
        found = await world.api.get(PODS, "p", namespace=TEAM)
        made_for = {each.name: each.resource_claim_name for each in found.status.resource_claim_statuses or []}
        assert made_for == {"own": claim.metadata.name}
        assert [each.uid for each in claim.metadata.owner_references or []] == [found.metadata.uid]
        await world.api.delete(PODS, "p", namespace=TEAM)
        await settle(5)
        assert await claims_of(made) == {}


async def test_the_allocation_goes_with_the_last_user() -> None:
    async with stage("1x1x80GiB") as world:
        made = world.resource_claims
        await create_claim(made, "c")
        await create(world, pod("p"), pod("q"))
        await settle(5)
        uids = {name: (await world.api.get(PODS, name, namespace=TEAM)).metadata.uid for name in ("p", "q")}
        reserved = [{"resource": "pods", "name": name, "uid": uid} for name, uid in uids.items()]
        await made.api.patch(
            RESOURCE_CLAIMS, "c", {"metadata": {"finalizers": [names.CLAIM_FINALIZER]}}, namespace=TEAM
        )
        result = {"request": "r", "driver": "d", "pool": "p", "device": "x"}
        status = {"reservedFor": reserved, "allocation": {"devices": {"results": [result]}}}
        await made.api.patch(RESOURCE_CLAIMS, "c", {"status": status}, namespace=TEAM, subresource="status")
        for gone, left in (("p", ["q"]), ("q", [])):
            await world.api.delete(PODS, gone, namespace=TEAM)
            await settle(40)
            claim = (await claims_of(made))["c"]
            is_kept = claim.status.allocation is not None, bool(claim.metadata.finalizers)
            assert (users(claim), is_kept) == (left, (bool(left), bool(left)))


async def test_a_claim_that_was_never_allocated_goes_when_it_is_deleted() -> None:
    """A scheduler that died had put the finalizer on, and no more."""
    async with stage("1x1x80GiB") as world:
        made = world.resource_claims
        await create_claim(made, "c")
        await create(world, pod("p"))
        finalizers = {"metadata": {"finalizers": [names.CLAIM_FINALIZER]}}
        await made.api.patch(RESOURCE_CLAIMS, "c", finalizers, namespace=TEAM)
        await settle(5)
        assert list(await claims_of(made)) == ["c"]
        await made.api.delete(RESOURCE_CLAIMS, "c", namespace=TEAM)
        await settle(5)
        assert await claims_of(made) == {}


async def test_a_pod_without_its_template_does_not_delay_others() -> None:
    async with stage("1x1x80GiB") as world:
        made = world.resource_claims
        await create_template(made, "one")
        await create(world, using(pod("a"), template="missing"), using(pod("b"), template="one"))
        await settle(5)
        assert [each.metadata.name[0] for each in (await claims_of(made)).values()] == ["b"]
        await create_template(made, "missing")
        await settle(5)
        assert sorted(each.metadata.name[0] for each in (await claims_of(made)).values()) == ["a", "b"]


async def test_what_happened_while_it_was_down_is_done_when_it_works_again() -> None:
    async with stage("1x1x80GiB") as world:
        made = world.resource_claims
        await create_template(made, "one")
        await settle(5)
        made.is_off = True
        await create(world, using(pod("p"), template="one"))
        await settle(5)
        assert await claims_of(made) == {}
        made.resume()
        await settle(5)
        assert len(await claims_of(made)) == 1
