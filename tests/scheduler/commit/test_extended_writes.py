"""Pods get extended resources by claims that are made for them, on nodes whose device plugins don't offer any."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from kube.client.resources import PODS, RESOURCE_CLAIMS
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.controllers.kube_controllers import ClaimController
from simulator.world import World, WorldSettings
from tests.scheduler import stage
from tests.scheduler.commit.devices import DRIVER, asks, claims_of, create_claim, devices, given, users, using
from tests.scheduler.stage import (
    BINDING,
    TEAM,
    bound,
    cordon,
    create,
    create_gang,
    find,
    is_call,
    phases,
    pod,
    settle,
    strike,
    waits_because,
    writes,
)
from wire import names


@asynccontextmanager
async def _stage(
    *counts: int, shape: str = "", settings: WorldSettings | None = None
) -> AsyncIterator[tuple[World, ClaimController]]:
    """Nodes without a device plugin, with so many devices of a driver each."""
    async with (
        stage.stage(*(shape or f"{len(counts)}x0").split(), settings=settings) as world,
        devices(world, *counts, resource=names.GPU_RESOURCE) as made,
    ):
        yield world, made


def _node_of(world: World, name: str) -> str:
    return str(find(world, name)["spec"].get("nodeName", ""))


def _claim_status(world: World, name: str) -> Any:
    return find(world, name)["status"].get("extendedResourceClaimStatus")


async def test_a_pod_gets_whole_gpus_by_a_claim_that_is_made_for_it() -> None:
    async with _stage(1, 2) as (world, made):
        await create(world, pod("p", gpus=2))
        await settle(20)
        assert (phases(world), _node_of(world, "p")) == ({"p": "Running"}, "node-1")
        ((name, claim),) = (await claims_of(made)).items()
        assert (given(claim), users(claim)) == ([("node-1", "d0"), ("node-1", "d1")], ["p"])
        assert claim.metadata.annotations == {names.EXTENDED_RESOURCE_CLAIM: "true"}
        assert claim.metadata.finalizers == [names.CLAIM_FINALIZER]
        owners = [(each.kind, each.name, each.controller) for each in claim.metadata.owner_references or ()]
        assert owners == [("Pod", "p", True)]
        mapping = {"containerName": "main", "resourceName": names.GPU_RESOURCE, "requestName": "container-0-request-0"}
        assert _claim_status(world, "p") == {"resourceClaimName": name, "requestMappings": [mapping]}


async def test_the_claim_goes_with_its_pod_and_the_next_pod_gets_the_device() -> None:
    async with _stage(1, 0) as (world, made):
        await create(world, pod("p", gpus=1))
        await settle(20)
        await create(world, pod("q", gpus=1))
        await settle(20)
        assert "2 node(s) cannot allocate all claims" in waits_because(world, "q")
        await world.api.delete(PODS, "p", namespace=TEAM)
        await settle(60)
        assert phases(world) == {"q": "Running"}
        assert [users(claim) for claim in (await claims_of(made)).values()] == [["q"]]


@pytest.mark.parametrize("count", [3, 2])
async def test_a_gang_binds_no_member_before_the_claims_of_all_are_named_in_their_status(count: int) -> None:
    async with _stage(2, count - 2) as (world, made):
        seen: list[int] = []

        def binds(call: Call) -> None:
            if call.user == "scheduler" and call.subresource == "binding":
                seen.append(sum(_claim_status(world, f"m{number}") is not None for number in range(3)))

        world.server.faults.on_request.append(binds)
        await create_gang(world, "g", 3, *(pod(f"m{number}", gpus=1) for number in range(3)))
        await settle(40)
        if count == 3:
            assert (bound(world), seen) == ({"m0", "m1", "m2"}, [3, 3, 3])
        else:
            assert (bound(world), seen, await claims_of(made)) == (set(), [], {})


async def test_what_a_dead_leader_made_is_deleted_and_the_pod_runs_with_a_claim_of_its_own() -> None:
    async with _stage(1, 1) as (world, made):
        dead = strike(world, BINDING, Fault(lost="request", lands_after_s=5.0)).met
        await create(world, pod("p", gpus=1))
        await dead.wait()
        (before,) = (await claims_of(made)).values()
        await world.restart(world.scheduler)
        await settle(60)
        (claim,) = (await claims_of(made)).values()
        assert (phases(world), users(claim)) == ({"p": "Running"}, ["p"])
        assert claim.metadata.uid != before.metadata.uid
        assert names.FENCED_BECAUSE in find(world, "p")["metadata"]["annotations"]


async def test_a_status_that_names_a_claim_is_cleared_before_its_pod_goes_to_a_device_plugin() -> None:
    async with _stage(1, 0, shape="1x0 1x1x80GiB") as (world, made):
        await cordon(world, "node-1")
        await settle(1)
        seen = strike(world, is_call("scheduler", "patch", "pods", "status"), Fault(delay_s=1.0)).met
        await create(world, pod("p", gpus=1))
        await seen.wait()
        await cordon(world, "node-0")
        await cordon(world, "node-1", is_closed=False)
        await settle(60)
        assert (phases(world), _node_of(world, "p")) == ({"p": "Running"}, "node-1")
        assert (await claims_of(made), _claim_status(world, "p")) == ({}, None)
        (deleted,) = writes(world, "scheduler", "resourceclaims", verb="delete")
        assert deleted.code == 200


async def test_a_claim_that_another_scheduler_made_for_the_pod_is_deleted() -> None:
    async with _stage(2, 0) as (world, made):
        await cordon(world, "node-0")
        await create(world, pod("p", gpus=1))
        await settle(10)
        uid = find(world, "p")["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
        meta: dict[str, Any] = {
            "name": "p-extended-resources-abcde",
            "annotations": {names.EXTENDED_RESOURCE_CLAIM: "true"},
            "ownerReferences": [owner],
            "finalizers": [names.CLAIM_FINALIZER],
        }
        await made.api.create(RESOURCE_CLAIMS, {"metadata": meta, "spec": asks()}, namespace=TEAM)
        result = {"request": "r", "driver": DRIVER, "pool": "node-0", "device": "d0"}
        reserved = [{"resource": "pods", "name": "p", "uid": uid}]
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}
        await made.api.patch(RESOURCE_CLAIMS, meta["name"], {"status": status}, namespace=TEAM, subresource="status")
        await cordon(world, "node-0", is_closed=False)
        await settle(60)
        ((name, claim),) = (await claims_of(made)).items()
        assert (phases(world), users(claim)) == ({"p": "Running"}, ["p"])
        assert name != meta["name"]
        assert _claim_status(world, "p")["resourceClaimName"] == name


async def test_a_claim_that_another_pod_uses_is_kept_whoever_its_owner_is_said_to_be() -> None:
    async with _stage(1, 0) as (world, made):
        await create_claim(made, "c")
        await create(world, using(pod("q"), "c"))
        await settle(20)
        await create(world, pod("p", gpus=1))
        await settle(5)
        uid = find(world, "p")["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
        meta = {"annotations": {names.EXTENDED_RESOURCE_CLAIM: "true"}, "ownerReferences": [owner]}
        await made.api.patch(RESOURCE_CLAIMS, "c", {"metadata": meta}, namespace=TEAM)
        await settle(30)
        claim = (await claims_of(made))["c"]
        assert (given(claim), users(claim)) == ([("node-0", "d0")], ["q"])
        assert claim.metadata.deletion_timestamp is None
        assert phases(world) == {"p": "Pending", "q": "Running"}
        assert "cannot allocate all claims" in waits_because(world, "p")


async def test_a_pod_that_is_edited_after_its_claim_was_made_is_decided_on_again() -> None:
    async with _stage(1, 1) as (world, made):
        seen = strike(world, is_call("scheduler", "patch", "resourceclaims", "status"), Fault(delay_s=1.0)).met
        await create(world, pod("p", gpus=1))
        await seen.wait()
        await world.api.patch(PODS, "p", {"metadata": {"labels": {"edited": "yes"}}}, namespace=TEAM)
        await settle(60)
        ((name, claim),) = (await claims_of(made)).items()
        assert (phases(world), users(claim)) == ({"p": "Running"}, ["p"])
        assert len(writes(world, "scheduler", "resourceclaims", verb="delete")) == 1
        assert _claim_status(world, "p")["resourceClaimName"] == name


async def test_a_claim_that_a_finalizer_keeps_gives_its_device_back() -> None:
    async with _stage(1) as (world, made):
        seen = strike(world, is_call("scheduler", "patch", "pods", "status"), Fault(delay_s=1.0)).met
        await create(world, pod("p", gpus=1))
        await seen.wait()
        (kept,) = await claims_of(made)
        finalizers = {"metadata": {"finalizers": [names.CLAIM_FINALIZER, "example.com/kept"]}}
        await made.api.patch(RESOURCE_CLAIMS, kept, finalizers, namespace=TEAM)
        await world.api.patch(PODS, "p", {"metadata": {"labels": {"edited": "yes"}}}, namespace=TEAM)
        await create(world, pod("q", gpus=1))
        await settle(60)
        claims = await claims_of(made)
        old = claims.pop(kept)
        assert (old.metadata.deletion_timestamp is None, old.status.allocation) == (False, None)
        assert [given(claim) for claim in claims.values()] == [[("node-0", "d0")]]
        assert sorted(phases(world).values()) == ["Pending", "Running"]
        await made.api.patch(RESOURCE_CLAIMS, kept, {"metadata": {"finalizers": None}}, namespace=TEAM)


async def test_a_pod_that_goes_while_its_claim_is_made_leaves_nothing() -> None:
    async with _stage(1, 0) as (world, made):
        gone = anyio.Event()

        def waits(call: Call) -> Fault | None:
            is_meant = (call.user, call.verb, call.kind.plural) == ("scheduler", "create", "resourceclaims")
            return Fault(delay_s=2.0) if is_meant and not gone.is_set() else None

        world.server.faults.on_request.append(waits)
        await create(world, pod("p", gpus=1))
        await settle(1)
        await world.api.delete(PODS, "p", namespace=TEAM)
        gone.set()
        await create(world, pod("q", gpus=1))
        await settle(60)
        assert phases(world) == {"q": "Running"}
        assert [users(claim) for claim in (await claims_of(made)).values()] == [["q"]]


_FAULTS = [
    Fault(refuse_with=500),
    Fault(refuse_with=500, carried_out=True),
    Fault(lost="answer"),
    Fault(lost="request", lands_after_s=3.0),
    Fault(refuse_with=409),
    Fault(refuse_with=403),
]
_HOW = ["refused", "carried out", "not answered", "late", "conflict", "forbidden"]


@pytest.mark.parametrize("fault", _FAULTS, ids=_HOW)
@pytest.mark.parametrize(
    "write",
    [
        ("create", "resourceclaims", ""),
        ("patch", "resourceclaims", ""),
        ("patch", "resourceclaims", "status"),
        ("patch", "pods", "status"),
    ],
    ids=" ".join,
)
async def test_a_write_that_fails_in_any_way_is_written_in_the_end(write: tuple[str, str, str], fault: Fault) -> None:
    async with _stage(1, 1) as (world, made):
        left = strike(world, is_call("scheduler", *write), fault).left
        await create(world, pod("p", gpus=1))
        await settle(100)
        ((name, claim),) = (await claims_of(made)).items()
        assert (phases(world), left, users(claim)) == ({"p": "Running"}, [], ["p"])
        assert _claim_status(world, "p")["resourceClaimName"] == name


@pytest.mark.parametrize("fault", _FAULTS[1:], ids=_HOW[1:])
@pytest.mark.parametrize(
    "write",
    [("patch", "pods", "status"), ("patch", "resourceclaims", ""), ("delete", "resourceclaims", "")],
    ids=" ".join,
)
async def test_a_withdrawal_that_fails_in_any_way_is_made_in_the_end(write: tuple[str, str, str], fault: Fault) -> None:
    async with _stage(1, 1) as (world, made):
        dead = strike(world, BINDING, Fault(lost="request", lands_after_s=5.0)).met
        left = strike(world, is_call("scheduler", *write), fault, after=dead).left
        await create(world, pod("p", gpus=1))
        await dead.wait()
        await world.restart(world.scheduler)
        await settle(200)
        ((name, claim),) = (await claims_of(made)).items()
        assert (phases(world), left, users(claim)) == ({"p": "Running"}, [], ["p"])
        assert _claim_status(world, "p")["resourceClaimName"] == name


@pytest.mark.parametrize("seed", range(2))
async def test_in_storms_of_faults_each_device_has_one_pod_and_all_pods_run_in_the_end(seed: int) -> None:
    chance = random.Random(seed)
    async with _stage(2, 2, 0, shape="2x0 1x2x80GiB") as (world, made):
        is_over = anyio.Event()

        def strikes(call: Call) -> Fault | None:
            if call.user != "scheduler" or call.verb in {"get", "list", "watch"} or is_over.is_set():
                return None
            if call.kind.plural not in {"resourceclaims", "pods"} or chance.random() > 0.3:
                return None
            return chance.choice([*_FAULTS[:5], Fault(delay_s=chance.random())])

        world.server.faults.on_request.append(strikes)
        made_up = [f"p{number}" for number in range(12)]
        for number, name in enumerate(made_up):
            await create(world, pod(name, gpus=chance.choice([1, 1, 2])))
            await settle(chance.random() * 4)
            if number % 4 == 3:
                await world.restart(world.scheduler)
            if chance.random() < 0.5 and (there := sorted(phases(world))):
                await world.api.delete(PODS, chance.choice(there), namespace=TEAM)
        is_over.set()
        for _ in range(8):
            await settle(40)
            running = [name for name, phase in phases(world).items() if phase == "Running"]
            for name in running[:1] if len(running) < len(phases(world)) else ():
                await world.api.delete(PODS, name, namespace=TEAM)
        await settle(60)
        assert set(phases(world).values()) <= {"Running"}
        claims = await claims_of(made)
        devices_given = [each for claim in claims.values() for each in given(claim)]
        assert len(set(devices_given)) == len(devices_given)
        named = {
            _claim_status(world, name)["resourceClaimName"] for name in phases(world) if _claim_status(world, name)
        }
        assert named == set(claims)


@pytest.mark.parametrize("seed", range(3))
async def test_two_schedulers_without_an_election_soon_leave_each_other_the_pods_that_they_made_claims_for(
    seed: int,
) -> None:
    """Each takes a claim of the other for one that a leader left which died, and gives it back the first time."""
    settings = WorldSettings(seed=seed, schedulers=2, event_delay_s=0.5)
    async with _stage(4, 4, settings=settings) as (world, _):
        await create(world, *(pod(f"p{number}", gpus=1) for number in range(8)))
        await settle(200)
        assert set(phases(world).values()) == {"Running"}
        made = [writes(world, user, "resourceclaims", verb="create") for user in ("scheduler", "scheduler-2")]
        assert 8 <= sum(map(len, made)) <= 30
