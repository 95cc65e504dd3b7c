"""ResourceClaims are made from templates, cleaned, and go with their pods (with the scheduler: test_claims.py)."""

from __future__ import annotations

import random
from typing import Any

import anyio
import pytest

from kube.client.api import Api
from kube.client.resources import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, RESOURCE_CLAIMS
from kube.client.retry import Retry
from simulator.controllers import kube_controllers
from simulator.controllers.kube_controllers import DRIVER_USER, DeviceReadiness
from simulator.world import World
from tests.scheduler.commit.devices import claims_of, create_claim, create_template, users, using
from tests.scheduler.stage import TEAM, create, pod, settle, stage
from tests.simulator.test_world import world
from verification.hostile.actions import CreatePod
from verification.hostile.queue_actions import CreateBudget
from wire import names

VIRTUAL_TIME = True


async def test_without_claims_it_asks_the_api_server_for_nothing() -> None:
    async with stage("1x1x80GiB") as world:
        await create(world, pod("p"))
        await anyio.sleep(60)
        assert not [entry for entry in world.server.audit if entry.user == kube_controllers.CLAIM_CONTROLLER]


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


# Claims get the volumes that a scheduler asks for (with the scheduler: tests/scheduler/commit/test_preparing.py).


async def _claim(made: World, node: str) -> None:
    """Create a claim for which a scheduler has selected a node."""
    meta = {"name": "data", "annotations": {names.SELECTED_NODE: node}}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "5Gi"}}}
    await made.claims.api.create(PERSISTENT_VOLUME_CLAIMS, {"metadata": meta, "spec": spec}, namespace="team")


async def test_without_claims_it_asks_the_api_server_for_nothing_in_claimbinding() -> None:
    async with world("1x1x80GiB") as made:
        await anyio.sleep(60)
        assert not [entry for entry in made.server.audit if entry.user == kube_controllers.VOLUME_CONTROLLER]


@pytest.mark.parametrize("zone", ["", "a"])
async def test_a_volume_is_made_in_the_zone_of_the_selected_node_or_for_all_nodes(zone: str) -> None:
    async with world("1x1x80GiB") as made:
        if zone:
            await made.claims.api.patch(NODES, "node-0", {"metadata": {"labels": {names.ZONE_LABEL: zone}}})
        await _claim(made, "node-0")
        await anyio.sleep(10)
        claim = await made.claims.api.get(PERSISTENT_VOLUME_CLAIMS, "data", namespace="team")
        volume = await made.claims.api.get(PERSISTENT_VOLUMES, claim.spec.volume_name)
        assert (claim.metadata.annotations or {})[names.BIND_COMPLETED] == "yes"
        assert (volume.status.phase, volume.spec.capacity) == ("Bound", {"storage": "5Gi"})
        affinity = volume.spec.node_affinity
        assert [zone] * bool(zone) == ([] if affinity is None else _zones(affinity.required))


def _zones(required: Any) -> list[str]:
    return [value for term in required.node_selector_terms for each in term.match_expressions for value in each.values]


async def test_a_node_that_is_gone_is_taken_off_the_claim() -> None:
    async with world("1x1x80GiB") as made:
        await _claim(made, "gone")
        await anyio.sleep(10)
        claim = await made.claims.api.get(PERSISTENT_VOLUME_CLAIMS, "data", namespace="team")
        assert names.SELECTED_NODE not in (claim.metadata.annotations or {})
        assert claim.spec.volume_name == ""


# A driver that gets devices ready after they were allocated.


@pytest.mark.parametrize(
    ("faults", "reported"),
    [
        pytest.param({}, ["ready", "ready"], id="it reports within its time"),
        pytest.param({"fails_per_mille": 1000}, ["failed", "failed"], id="a failure stays"),
        pytest.param({"silent_per_mille": 1000}, ["", "ready"], id="what it was silent of comes in the end"),
    ],
)
async def test_each_device_is_reported_once(faults: dict[str, Any], reported: list[str]) -> None:
    async with stage("1x1x80GiB") as world:
        result: dict[str, Any] = {"request": "r", "driver": "d", "pool": "p", "device": "x"}
        result |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
        claim = {"metadata": {"name": "c"}, "spec": {"devices": {}}}
        await world.api.create(RESOURCE_CLAIMS, claim, namespace=TEAM)
        status = {"status": {"allocation": {"devices": {"results": [result]}}}}
        await world.api.patch(RESOURCE_CLAIMS, "c", status, namespace=TEAM, subresource="status")
        rng = random.Random(1)
        api = Api(world.server.transport(DRIVER_USER), retry=Retry(rng))
        world.start_soon(DeviceReadiness(api, rng, takes_s=5.0, until_s=anyio.current_time() + 60, **faults).run)
        found: list[str] = []
        for _ in range(2):
            await anyio.sleep(40)
            stored = await world.api.get(RESOURCE_CLAIMS, "c", namespace=TEAM)
            found.append("".join(each.type for one in stored.status.devices or () for each in one.conditions or ()))
        assert found == reported
        writes = [each for each in world.server.audit if (each.user, each.verb) == (DRIVER_USER, "patch")]
        assert len(writes) == 1


# The disruption controller: it asks for nothing where there is no budget (its counting: test_actions.py).


@pytest.mark.parametrize("has_budget", [False, True])
async def test_it_writes_where_there_is_a_budget_and_comes_to_rest(has_budget: bool) -> None:
    async with world("1x1x80GiB") as made:
        if has_budget:
            await CreateBudget(at_s=0, name="b", least=0).perform(made)
        await CreatePod(at_s=0, name="p", gpus=1).perform(made)
        await anyio.sleep(60)
        writes = [entry for entry in made.server.audit if entry.user == kube_controllers.USER]
        assert bool(writes) is has_budget
        assert len(writes) < 10
