"""Pods are bound when the devices of their claims report that they are ready, and tried elsewhere when one fails."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kube.client.api import Api
from kube.client.resources import DEVICE_CLASSES, EVENTS, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from kube.client.retry import Retry
from scheduler.commit.claim_binding import message
from scheduler.core.model.plan import Placement
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.controllers.kube_controllers import DRIVER_USER, ClaimController, DeviceReadiness
from simulator.world import World, WorldSettings
from tests.scheduler import stage
from tests.scheduler.commit.devices import DRIVER, claims_of, create_claim, create_template, given, users, using
from tests.scheduler.stage import (
    TEAM,
    bound,
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
from tests.values import there
from wire import names
from wire.resource import ResourceClaim

_UP, _BAD = "example.com/attached", "example.com/broken"


@asynccontextmanager
async def _stage(
    *counts: int, resource: str = "", settings: WorldSettings | None = None, **slices: Any
) -> AsyncIterator[tuple[World, ClaimController]]:
    """Nodes with so many devices each that have to be attached first. ``slices``: of each slice's spec."""
    async with stage.stage(f"{len(counts)}x0", settings=settings) as world:
        made = world.resource_claims
        spec = {"extendedResourceName": resource} if resource else {}
        await made.api.create(DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": spec})
        for number, count in enumerate(counts):
            conditions = {"bindingConditions": [_UP], "bindingFailureConditions": [_BAD], "bindsToNode": True}
            written = {
                "driver": DRIVER,
                "pool": {"name": f"node-{number}", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"d{each}", **conditions} for each in range(count)],
                **(slices or {"nodeName": f"node-{number}"}),
            }
            await made.api.create(RESOURCE_SLICES, {"metadata": {"name": f"of-{number}"}, "spec": written})
        yield world, made


async def _report(made: ClaimController, claim: ResourceClaim, *conditions: str) -> None:
    """Report conditions of all devices of a claim as true, as its driver does."""
    found = [{"type": each, "status": "True", "reason": "Done", "message": ""} for each in conditions]
    devices = [{"driver": DRIVER, "pool": pool, "device": device, "conditions": found} for pool, device in given(claim)]
    meta = claim.metadata
    await made.api.patch(
        RESOURCE_CLAIMS, meta.name, {"status": {"devices": devices}}, namespace=TEAM, subresource="status"
    )


async def _claim(made: ClaimController, name: str = "c") -> ResourceClaim:
    return (await claims_of(made))[name]


def _says_pending(call: Call) -> bool:
    """Whether the scheduler writes that the devices of a pod are not ready."""
    is_status = is_call("scheduler", "patch", "pods", "status")
    return is_status(call) and names.REASON_DEVICES_PENDING.encode() in (call.body or b"")


async def test_a_pod_is_bound_when_its_device_is_attached() -> None:
    async with _stage(1) as (world, made):
        await create_claim(made, "c")
        await create(world, using(pod("p"), "c"))
        await settle(300)
        claim = await _claim(made)
        assert (bound(world), users(claim)) == (set(), ["p"])
        (event,) = [
            each for each in (await world.api.list(EVENTS)).items if each.reason == names.REASON_DEVICES_PENDING
        ]
        assert event.note == f"waiting on node node-0 for {_UP} of device {DRIVER}/node-0/d0 (ResourceClaim c)"
        allocation = there(claim.status.allocation)
        assert allocation.allocation_timestamp
        results = allocation.devices.results or ()
        assert [(each.binding_conditions, each.binding_failure_conditions) for each in results] == [([_UP], [_BAD])]
        await _report(made, claim, _UP)
        await settle(20)
        assert phases(world) == {"p": "Running"}


async def test_a_device_of_many_nodes_belongs_to_the_node_that_it_was_attached_to() -> None:
    async with _stage(1, 0, allNodes=True) as (world, made):
        await create_claim(made, "c")
        await create(world, using(pod("p"), "c"))
        await settle(10)
        claim = await _claim(made)
        selector = there(claim.status.allocation.node_selector if claim.status.allocation is not None else None)
        fields = [field for term in selector.node_selector_terms or () for field in term.match_fields or ()]
        assert [field.key for field in fields] == ["metadata.name"]
        await _report(made, claim, _UP)
        await settle(20)
        assert find(world, "p")["spec"]["nodeName"] == (fields[0].values or [""])[0]


async def test_a_device_that_fails_is_given_back_and_the_pod_runs_elsewhere() -> None:
    async with _stage(1, 1) as (world, made):
        await create_claim(made, "c")
        await create(world, using(pod("p"), "c"))
        await settle(10)
        first = await _claim(made)
        await _report(made, first, _BAD)
        await settle(10)
        second = await _claim(made)
        assert (bound(world), given(first) != given(second)) == (set(), True)
        await _report(made, second, _UP)
        await settle(20)
        assert phases(world) == {"p": "Running"}


async def test_a_device_that_is_not_attached_in_time_is_given_back() -> None:
    async with _stage(1, 1) as (world, made):
        await create_claim(made, "c")
        await create(world, using(pod("p"), "c"))
        await settle(10)
        first = given(await _claim(made))
        await settle(560)
        assert given(await _claim(made)) == first
        await settle(60)
        second = await _claim(made)
        assert (bound(world), given(second) != first) == (set(), True)
        await _report(made, second, _UP)
        await settle(20)
        assert phases(world) == {"p": "Running"}


@pytest.mark.parametrize("last", [_UP, _BAD])
async def test_no_member_of_a_gang_is_bound_before_the_devices_of_all_are_attached(last: str) -> None:
    async with _stage(2, 1) as (world, made):
        await create_template(made, "one")
        await create_gang(world, "g", 3, *(using(pod(f"m{number}"), template="one") for number in range(3)))
        await settle(10)
        *first, other = (await claims_of(made)).values()
        for claim in first:
            await _report(made, claim, _UP)
        await settle(100)
        assert bound(world) == set()
        await _report(made, other, last)
        await settle(20)
        assert bound(world) == ({"m0", "m1", "m2"} if last == _UP else set())
        if last == _BAD:
            reported = [each for claim in (await claims_of(made)).values() for each in claim.status.devices or ()]
            assert reported == []


async def test_a_pod_that_joins_a_claim_waits_for_its_device_as_well() -> None:
    async with _stage(1) as (world, made):
        await create_claim(made, "c")
        await create(world, using(pod("p"), "c"))
        await settle(10)
        await create(world, using(pod("q"), "c"))
        await settle(30)
        assert bound(world) == set()
        await _report(made, await _claim(made), _UP)
        await settle(30)
        assert phases(world) == {"p": "Running", "q": "Running"}


async def test_a_device_that_fails_after_it_was_attached_is_given_back_before_the_binding() -> None:
    async with _stage(1, 1) as (world, made):
        await create_claim(made, "c")
        seen: list[str] = []

        def binds(call: Call) -> None:
            if (call.user, call.subresource) == ("scheduler", "binding"):
                seen.append(call.verb)

        world.server.faults.on_request.append(binds)
        await create(world, using(pod("p"), "c"))
        await settle(10)
        claim = await _claim(made)
        await _report(made, claim, _UP)
        await _report(made, claim, _UP, _BAD)
        await settle(10)
        assert (seen, (await _claim(made)).status.devices) == ([], None)
        await _report(made, await _claim(made), _UP)
        await settle(20)
        assert phases(world) == {"p": "Running"}


async def test_a_pod_that_goes_while_its_device_is_attached_leaves_nothing() -> None:
    async with _stage(1) as (world, made):
        await create_claim(made, "c")
        await create_claim(made, "d")
        await create(world, using(pod("p"), "c"))
        await settle(10)
        await world.api.delete(PODS, "p", namespace=TEAM)
        await create(world, using(pod("q"), "d"))
        await settle(30)
        assert (given(await _claim(made)), users(await _claim(made, "d"))) == ([], ["q"])


async def test_devices_for_extended_resources_are_waited_for() -> None:
    async with _stage(1, resource=names.GPU_RESOURCE) as (world, made):
        await create(world, pod("p", gpus=1))
        await settle(100)
        (claim,) = (await claims_of(made)).values()
        assert bound(world) == set()
        await _report(made, claim, _UP)
        await settle(20)
        assert phases(world) == {"p": "Running"}


# --- what the pod says meanwhile -------------------------------------------------------------------------------------
def _says(world: World, name: str = "p") -> str:
    """Reason of the pod's condition."""
    conditions = find(world, name)["status"].get("conditions") or ()
    return next((each.get("reason", "") for each in conditions if each["type"] == names.CONDITION_POD_SCHEDULED), "")


async def test_a_pod_that_waited_says_that_its_device_gets_ready_and_is_bound_with_that_one() -> None:
    async with _stage(0) as (world, made):
        await create_claim(made, "c")
        await create(world, using(pod("p"), "c"))
        await settle(60)
        assert (_says(world), "cannot allocate all claims" in waits_because(world, "p")) == ("Unschedulable", True)
        spec = {
            "devices": [{"name": "d0", "bindingConditions": [_UP], "bindingFailureConditions": [_BAD]}],
            "pool": {"name": "node-0", "generation": 2, "resourceSliceCount": 1},
        }
        await made.api.patch(RESOURCE_SLICES, "of-0", {"spec": spec})
        await settle(5)
        assert (_says(world), waits_because(world, "p")) == (
            names.REASON_DEVICES_PENDING,
            "Waiting for devices of ResourceClaim c to get ready on node node-0; if they don't within 10 minutes, the "
            "pod is tried again",
        )
        before = (await _claim(made)).metadata.resource_version
        so_far = len(writes(world, "scheduler", "pods", "status"))
        await settle(300)
        assert (await _claim(made)).metadata.resource_version == before
        assert len(writes(world, "scheduler", "pods", "status")) == so_far
        await _report(made, await _claim(made), _UP)
        await settle(20)
        assert (phases(world), waits_because(world, "p")) == ({"p": "Running"}, "")
        assert len(writes(world, "scheduler", "resourceclaims", "status")) == 1


async def test_a_pod_whose_reservation_was_taken_back_says_again_what_it_said_before() -> None:
    async with _stage(0) as (world, made):
        await create_claim(made, "c")
        await create(world, using(pod("p"), "c"))
        await settle(60)
        before = waits_because(world, "p")
        spec = {"devices": [{"name": "d0", "bindingConditions": [_UP], "bindsToNode": True}]}
        await made.api.patch(RESOURCE_SLICES, "of-0", {"spec": spec})
        await settle(5)
        assert _says(world) == names.REASON_DEVICES_PENDING
        await made.api.delete(RESOURCE_SLICES, "of-0")
        status = {"allocation": None, "reservedFor": None}
        await made.api.patch(RESOURCE_CLAIMS, "c", {"status": status}, namespace=TEAM, subresource="status")
        await settle(30)
        assert (bound(world), waits_because(world, "p")) == (set(), before)


async def test_members_of_a_gang_say_whose_devices_are_not_ready() -> None:
    async with _stage(2) as (world, made):
        await create_claim(made, "c")
        await create_claim(made, "d")
        gang = [using(pod("both"), "c", "d"), using(pod("one"), "d"), pod("none")]
        await create_gang(world, "g", 3, *gang)
        await settle(10)
        assert "ResourceClaims c, d to get ready" in waits_because(world, "both")
        assert "ResourceClaim d to get ready" in waits_because(world, "one")
        assert waits_because(world, "none") == ""
        for claim in (await claims_of(made)).values():
            await _report(made, claim, _UP)
        await settle(20)
        assert phases(world) == dict.fromkeys(("both", "one", "none"), "Running")


@pytest.mark.parametrize("resource", ["", names.GPU_RESOURCE], ids=["a claim by name", "an extended resource"])
@pytest.mark.parametrize(
    "fault",
    [
        Fault(refuse_with=500),
        Fault(refuse_with=500, carried_out=True),
        Fault(lost="answer"),
        Fault(lost="request", lands_after_s=3.0),
        Fault(refuse_with=409),
        Fault(refuse_with=403),
        Fault(refuse_with=422),
    ],
    ids=["refused", "carried out", "not answered", "late", "conflict", "forbidden", "invalid"],
)
async def test_a_condition_that_is_not_written_in_any_way_keeps_no_pod_from_its_device(
    fault: Fault, resource: str
) -> None:
    async with _stage(1, resource=resource) as (world, made):
        left = strike(world, _says_pending, fault).left
        if not resource:
            await create_claim(made, "c")
        await create(world, pod("p", gpus=1) if resource else using(pod("p"), "c"))
        await settle(100)
        (claim,) = (await claims_of(made)).values()
        assert (left, users(claim), bound(world)) == ([], ["p"], set())
        await _report(made, claim, _UP)
        await settle(20)
        assert phases(world) == {"p": "Running"}


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_scheduler_that_dies_at_the_condition_leaves_a_pod_that_the_next_one_binds(moment: str) -> None:
    async with _stage(1) as (world, made):
        dead = strike(world, _says_pending, Fault(lost="request" if moment == "before" else "answer")).met
        await create_claim(made, "c")
        await create(world, using(pod("p"), "c"))
        await dead.wait()
        await world.restart(world.scheduler)
        await settle(100)
        assert (_says(world), users(await _claim(made))) == (names.REASON_DEVICES_PENDING, ["p"])
        await _report(made, await _claim(made), _UP)
        await settle(20)
        assert phases(world) == {"p": "Running"}


@pytest.mark.parametrize(
    "plural",
    [
        pytest.param("pods", id="before its condition is written"),
        # The attempt knows of the edit before it would write the condition: it does not wait for the device.
        pytest.param("resourceclaims", id="while its claim is reserved"),
    ],
)
async def test_a_pod_that_is_edited_meanwhile_gets_its_device_again(plural: str) -> None:
    async with _stage(1) as (world, made):
        seen = strike(world, is_call("scheduler", "patch", plural, "status"), Fault(delay_s=2.0)).met
        await create_claim(made, "c")
        await create(world, using(pod("p"), "c"))
        await seen.wait()
        await world.api.patch(PODS, "p", {"metadata": {"labels": {"edited": "yes"}}}, namespace=TEAM)
        await settle(60)
        assert (_says(world), users(await _claim(made))) == (names.REASON_DEVICES_PENDING, ["p"])
        await _report(made, await _claim(made), _UP)
        await settle(20)
        assert phases(world) == {"p": "Running"}


@pytest.mark.parametrize("is_gang", [False, True], ids=["alone", "a gang of which another member waits"])
async def test_a_pod_that_is_edited_while_its_device_gets_ready_gets_it_again_at_once(is_gang: bool) -> None:
    async with _stage(2) as (world, made):
        for name in "cd":
            await create_claim(made, name)
        if is_gang:
            await create_gang(world, "g", 2, using(pod("p"), "c"), using(pod("q"), "d"))
        else:
            await create(world, using(pod("p"), "c"))
        await settle(30)
        assert _says(world) == names.REASON_DEVICES_PENDING
        if is_gang:
            await _report(made, await _claim(made), _UP)
            await settle(1)
        await world.api.patch(PODS, "p", {"metadata": {"labels": {"edited": "yes"}}}, namespace=TEAM)
        await settle(60)
        assert bound(world) == set()
        for claim in (await claims_of(made)).values():
            if users(claim):
                await _report(made, claim, _UP)
        await settle(20)
        assert set(phases(world).values()) == {"Running"}


def test_a_message_names_three_claims_at_most() -> None:
    placement = Placement(pod_uid="u", namespace="ns", name="p", rv="1", node="n1", devices=())
    assert message(placement, ["a", "b", "c", "d", "e"]).startswith(
        "Waiting for devices of ResourceClaims a, b, c and 2 more to get ready on node n1"
    )


# --- several schedulers at once --------------------------------------------------------------------------------------
@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(1, 4))
async def test_two_schedulers_without_an_election_let_one_of_them_wait_for_the_devices_of_a_pod(seed: int) -> None:
    """Each takes the reservation of the other for one that nobody waits for, and gives it back."""
    settings = WorldSettings(seed=seed, schedulers=2, event_delay_s=0.5)
    async with _stage(1, settings=settings) as (world, made):
        rng = random.Random(seed)
        driver = DeviceReadiness(Api(world.server.transport(DRIVER_USER), retry=Retry(rng)), rng, takes_s=60.0)
        world.start_soon(driver.run)
        await create_claim(made, "c")
        await create(world, using(pod("p"), "c"))
        await settle(2_000)
        assert phases(world) == {"p": "Running"}
        schedulers = ("scheduler", "scheduler-2")
        written = [*(each for user in schedulers for each in writes(world, user, "resourceclaims", "status"))]
        assert len(written) <= 40
