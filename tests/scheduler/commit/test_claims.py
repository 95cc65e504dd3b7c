"""ResourceClaims are allocated and reserved before their pods are bound, and given back where they can't be used."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import pytest

from kube.binding import Identity
from kube.client.errors import Conflict
from kube.client.resources import PODS, RESOURCE_CLAIMS
from scheduler.commit import claim_writes
from sharing.entries import LEARNS_S, VANISHED_MARGIN_S
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.controllers.kube_controllers import ClaimController
from simulator.world import World
from tests.scheduler import stage
from tests.scheduler.commit.devices import (
    DRIVER,
    asks,
    claims_of,
    create_claim,
    create_template,
    devices,
    given,
    users,
    using,
)
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
    share,
    strike,
    writes,
)
from wire import names


@asynccontextmanager
async def _stage(*counts: int, shape: str = "") -> AsyncIterator[tuple[World, ClaimController]]:
    async with stage.stage(shape or f"{len(counts)}x1x80GiB") as world, devices(world, *counts) as made:
        yield world, made


def _node_of(world: World, name: str) -> str:
    return str(find(world, name)["spec"].get("nodeName", ""))


@pytest.mark.parametrize("wanted", [pod("p", gpus=1), share("p"), pod("p")], ids=["whole", "share", "cpu"])
async def test_a_claim_from_a_template_is_allocated_and_reserved_before_its_pod_is_bound(
    wanted: dict[str, object],
) -> None:
    async with _stage(0, 2) as (world, made):
        await create_template(made, "one")
        await create(world, using(wanted, template="one"))
        await settle(20)
        assert (phases(world), _node_of(world, "p")) == ({"p": "Running"}, "node-1")
        (claim,) = (await claims_of(made)).values()
        assert (given(claim), users(claim)) == ([("node-1", "d0")], ["p"])
        assert claim.metadata.finalizers == [names.CLAIM_FINALIZER]
        assert len(writes(world, "scheduler", "resourceclaims")) == 1
        assert len(writes(world, "scheduler", "resourceclaims", "status")) == 1


@pytest.mark.parametrize("count", [3, 2])
async def test_a_gang_binds_no_member_before_the_claims_of_all_are_reserved(count: int) -> None:
    async with _stage(2, count - 2) as (world, made):
        seen: list[int] = []

        def binds(call: Call) -> None:
            if call.user == "scheduler" and call.subresource == "binding":
                seen.append(len(writes(world, "scheduler", "resourceclaims", "status")))

        world.server.faults.on_request.append(binds)
        await create_template(made, "one")
        await create_gang(world, "g", 3, *(using(pod(f"m{number}"), template="one") for number in range(3)))
        await settle(30)
        if count == 3:
            assert (bound(world), seen) == ({"m0", "m1", "m2"}, [3, 3, 3])
        else:
            assert (bound(world), seen) == (set(), [])
            assert [given(claim) for claim in (await claims_of(made)).values()] == [[], [], []]


async def test_what_a_dead_leader_reserved_is_given_back_and_the_pod_runs() -> None:
    async with _stage(1, 1) as (world, made):
        await create_claim(made, "c")
        written = strike(world, BINDING, Fault(lost="request", lands_after_s=5.0)).met
        await create(world, using(pod("p"), "c"))
        await written.wait()
        await world.restart(world.scheduler)
        await settle(60)
        assert phases(world) == {"p": "Running"}
        assert users((await claims_of(made))["c"]) == ["p"]
        assert names.FENCED_BECAUSE in find(world, "p")["metadata"]["annotations"]


async def test_a_device_that_another_scheduler_gave_away_first_is_given_back() -> None:
    async with _stage(2, 0) as (world, made):
        await create_claim(made, "c")
        await create_claim(made, "theirs")
        written = strike(world, is_call("scheduler", "patch", "resourceclaims", None), Fault(delay_s=0.3)).met
        await create(world, using(pod("p"), "c"))
        await written.wait()
        result = {"request": "r", "driver": DRIVER, "pool": "node-0", "device": "d0"}
        other = {"resource": "pods", "name": "x", "uid": "of-another-scheduler"}
        made.is_off = True
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [other]}
        await made.api.patch(RESOURCE_CLAIMS, "theirs", {"status": status}, namespace=TEAM, subresource="status")
        await settle(60)
        claims = await claims_of(made)
        assert (phases(world), given(claims["c"])) == ({"p": "Running"}, [("node-0", "d1")])
        assert given(claims["theirs"]) == [("node-0", "d0")]


async def test_claims_of_a_pod_that_no_longer_fits_where_they_are_are_given_back() -> None:
    async with _stage(1, 1) as (world, made):
        await create_claim(made, "c")
        written = strike(world, is_call("scheduler", "patch", "resourceclaims", "status"), Fault(delay_s=1.0)).met
        await create(world, using(pod("p"), "c"))
        await written.wait()
        await cordon(world, "node-0")
        await settle(60)
        assert (phases(world), _node_of(world, "p")) == ({"p": "Running"}, "node-1")
        assert given((await claims_of(made))["c"]) == [("node-1", "d0")]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(refuse_with=500),
        Fault(refuse_with=500, carried_out=True),
        Fault(lost="answer"),
        Fault(lost="request", lands_after_s=3.0),
        Fault(refuse_with=409),
        Fault(refuse_with=403),
    ],
    ids=["refused", "carried out", "not answered", "late", "conflict", "forbidden"],
)
@pytest.mark.parametrize("subresource", ["", "status"])
async def test_a_write_that_fails_in_any_way_is_written_in_the_end(subresource: str, fault: Fault) -> None:
    async with _stage(1, 1) as (world, made):
        left = strike(world, is_call("scheduler", "patch", "resourceclaims", subresource), fault).left
        await create_claim(made, "c")
        await create(world, using(pod("p"), "c"))
        await settle(100)
        assert (phases(world), left) == ({"p": "Running"}, [])
        assert users((await claims_of(made))["c"]) == ["p"]


async def test_a_pod_that_goes_while_its_claim_is_allocated_leaves_nothing() -> None:
    async with _stage(1, 0) as (world, made):
        await create_claim(made, "c")
        await create_claim(made, "d")

        def waits(call: Call) -> Fault | None:
            is_meant = (call.user, call.verb, call.kind.plural) == ("scheduler", "patch", "resourceclaims")
            return Fault(delay_s=2.0) if is_meant and call.subresource == "status" and not gone.is_set() else None

        gone = anyio.Event()
        world.server.faults.on_request.append(waits)
        await create(world, using(pod("p"), "c"))
        await settle(1)
        await world.api.delete(PODS, "p", namespace=TEAM)
        gone.set()
        await create(world, using(pod("q"), "d"))
        await settle(60)
        claims: dict[str, Any] = await claims_of(made)
        assert (phases(world), given(claims["c"]), given(claims["d"])) == ({"q": "Running"}, [], [("node-0", "d0")])


@pytest.mark.parametrize(
    "fault",
    [
        Fault(refuse_with=500, carried_out=True),
        Fault(lost="answer"),
        Fault(lost="request", lands_after_s=3.0),
        Fault(refuse_with=409),
        Fault(refuse_with=403),
    ],
    ids=["carried out", "not answered", "late", "conflict", "forbidden"],
)
@pytest.mark.parametrize("plural", ["resourceclaims", "pods"])
async def test_a_withdrawal_that_fails_in_any_way_is_made_in_the_end(plural: str, fault: Fault) -> None:
    async with _stage(1, 1) as (world, made):
        await create_claim(made, "c")
        dead = strike(world, BINDING, Fault(lost="request")).met
        left = strike(world, is_call("scheduler", "patch", plural, "status"), fault, after=dead).left
        await create(world, using(pod("p"), "c"))
        await dead.wait()
        await world.restart(world.scheduler)
        await settle(200)
        assert (phases(world), left) == ({"p": "Running"}, [])
        assert users((await claims_of(made))["c"]) == ["p"]


async def test_a_claim_that_another_scheduler_allocated_meanwhile_keeps_its_devices() -> None:
    async with _stage(1, 1) as (world, made):
        await create_claim(made, "c")
        seen = strike(world, is_call("scheduler", "patch", "resourceclaims"), Fault(delay_s=0.3)).met
        await create(world, using(pod("p"), "c"))
        await seen.wait()
        made.is_off = True
        field = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
        result = {"request": "r", "driver": DRIVER, "pool": "node-1", "device": "d0"}
        status = {
            "allocation": {
                "devices": {"results": [result]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            },
            "reservedFor": [{"resource": "pods", "name": "x", "uid": "of-another-scheduler"}],
        }
        await made.api.patch(RESOURCE_CLAIMS, "c", {"status": status}, namespace=TEAM, subresource="status")
        await settle(60)
        claim = (await claims_of(made))["c"]
        assert (phases(world), _node_of(world, "p")) == ({"p": "Running"}, "node-1")
        assert (given(claim), users(claim)) == ([("node-1", "d0")], ["x", "p"])


async def test_a_pod_that_is_edited_after_its_claim_was_reserved_is_decided_on_again() -> None:
    async with _stage(1, 1) as (world, made):
        await create_claim(made, "c")
        seen = strike(world, is_call("scheduler", "patch", "resourceclaims", "status"), Fault(delay_s=0.3)).met
        await create(world, using(pod("p"), "c"))
        await seen.wait()
        await world.api.patch(PODS, "p", {"metadata": {"labels": {"edited": "yes"}}}, namespace=TEAM)
        await settle(60)
        assert (phases(world), users((await claims_of(made))["c"])) == ({"p": "Running"}, ["p"])
        assert names.FENCED_BECAUSE in find(world, "p")["metadata"]["annotations"]
        assert len(writes(world, "scheduler", "resourceclaims", "status")) == 3


async def test_a_withdrawal_that_is_refused_for_long_is_tried_less_and_less_often() -> None:
    async with _stage(1, 1) as (world, made):
        await create_claim(made, "c")

        def refuses(call: Call) -> Fault | None:
            is_meant = (call.user, call.verb, call.kind.plural) == ("scheduler", "patch", "resourceclaims")
            return Fault(refuse_with=403) if is_meant and dead.is_set() else None

        dead = strike(world, BINDING, Fault(lost="request")).met
        world.server.faults.on_request.append(refuses)
        await create(world, using(pod("p"), "c"))
        await dead.wait()
        await world.restart(world.scheduler)
        before = len(writes(world, "scheduler", "pods", "status"))
        await settle(300)
        assert len(writes(world, "scheduler", "pods", "status")) - before < 20
        world.server.faults.on_request.remove(refuses)
        await settle(100)
        assert phases(world) == {"p": "Running"}


async def test_a_reservation_of_another_process_that_is_seen_late_is_not_taken_for_our_own() -> None:
    async with _stage(1) as (world, made):
        await create_claim(made, "c")
        await create(world, using(pod("p", schedulingGates=[{"name": "later"}]), "c"))
        await settle(5)

        def is_late(call: Call, _line: bytes) -> float:
            return 5.0 if (call.user, call.kind.plural) == ("scheduler", "resourceclaims") else 0.0

        world.server.faults.on_watch_line.append(is_late)
        result = {"request": "r", "driver": DRIVER, "pool": "node-0", "device": "d0"}
        ours = {"resource": "pods", "name": "p", "uid": find(world, "p")["metadata"]["uid"]}
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [ours]}
        theirs = await made.api.patch(RESOURCE_CLAIMS, "c", {"status": status}, namespace=TEAM, subresource="status")
        await world.api.patch(PODS, "p", {"spec": {"schedulingGates": None}}, namespace=TEAM)
        await settle(40)
        assert phases(world) == {"p": "Running"}
        with pytest.raises(Conflict):
            await claim_writes.leave(made.api, Identity(TEAM, "p", ours["uid"]), theirs)
        assert users((await claims_of(made))["c"]) == ["p"]


async def test_a_withdrawal_whose_pod_is_edited_meanwhile_begins_again() -> None:
    async with _stage(1, 1) as (world, made):
        await create_claim(made, "c")
        dead = strike(world, BINDING, Fault(lost="request")).met
        fencing = strike(world, lambda call: b"ClaimsGivenBack" in (call.body or b""), Fault(delay_s=1.0)).met
        await create(world, using(pod("p"), "c"))
        await dead.wait()
        await world.restart(world.scheduler)
        await fencing.wait()
        await world.api.patch(PODS, "p", {"metadata": {"annotations": {"edited": "now"}}}, namespace=TEAM)
        await settle(60)
        assert phases(world) == {"p": "Running"}


async def test_a_pod_whose_claims_are_reserved_in_vain_again_and_again_backs_off() -> None:
    """Its node is closed whenever its claim is reserved, and open when it is given back."""
    async with _stage(1) as (world, made), anyio.create_task_group() as tasks:

        async def opens_and_closes() -> None:
            while True:
                await cordon(world, "node-0", is_closed=bool(users((await claims_of(made))["c"])))
                await anyio.sleep(0.1)

        def slow(call: Call) -> Fault | None:
            is_meant = (call.user, call.kind.plural, call.subresource) == ("scheduler", "resourceclaims", "status")
            return Fault(answer_delay_s=0.3) if is_meant else None

        world.server.faults.on_request.append(slow)
        await create_claim(made, "c")
        tasks.start_soon(opens_and_closes)
        await create(world, using(pod("p"), "c"))
        await settle(120)
        assert phases(world) == {"p": "Pending"}
        assert 4 <= len(writes(world, "scheduler", "resourceclaims", "status")) <= 40
        tasks.cancel_scope.cancel()


async def test_the_claim_of_a_pod_group_of_kubernetes_is_reserved_for_each_of_its_pods() -> None:
    async with _stage(0, 1) as (world, made):
        group = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "name": "llm", "uid": "uid-llm"}
        meta = {"name": "of-llm", "ownerReferences": [{**group, "controller": True}]}
        await made.api.create(RESOURCE_CLAIMS, {"metadata": meta, "spec": asks()}, namespace=TEAM)
        members = [using(share(name), template="none-is-made") for name in ("a", "b")]
        for each in members:
            each["spec"]["schedulingGroup"] = {"podGroupName": "llm"}
        await create_gang(world, "g", 2, *members)
        named = {"status": {"resourceClaimStatuses": [{"name": "own", "resourceClaimName": "of-llm"}]}}
        for name in ("a", "b"):
            await made.api.patch(PODS, name, named, namespace=TEAM, subresource="status")
        await settle(20)
        assert phases(world) == {"a": "Running", "b": "Running"}
        claim = (await claims_of(made))["of-llm"]
        assert (given(claim), sorted(users(claim))) == ([("node-1", "d0")], ["a", "b"])
        await made.api.delete(PODS, "a", namespace=TEAM)
        await settle(20)
        assert users((await claims_of(made))["of-llm"]) == ["b"]
        await made.api.delete(PODS, "b", namespace=TEAM)
        await settle(20)
        claim = (await claims_of(made))["of-llm"]
        assert (given(claim), users(claim)) == ([], [])


# A device of a claim is not given to another pod while the program of a pod that was deleted by force may run.
_GRACE_S: Final = 20
_WAIT_S: Final = LEARNS_S + _GRACE_S + VANISHED_MARGIN_S


@pytest.mark.parametrize("is_forced", [False, True])
async def test_the_next_pod_gets_a_device_when_the_program_of_the_last_must_have_ended(*, is_forced: bool) -> None:
    async with stage.stage("1x0") as world, devices(world, 1) as made:
        await create_template(made, "one")
        await create(world, using(pod("old", terminationGracePeriodSeconds=_GRACE_S), template="one"))
        await settle(10)
        await create(world, using(pod("next"), template="one"))
        await settle(10)
        assert bound(world) == {"old"}
        await world.api.delete(PODS, "old", namespace=TEAM, grace_s=0 if is_forced else None)
        await settle(_WAIT_S - 5)
        assert len(await claims_of(made)) == 1
        assert bound(world) == (set() if is_forced else {"next"})
        await settle(20)
        assert phases(world) == {"next": "Running"}
        assert [given(claim) for claim in (await claims_of(made)).values()] == [[("node-0", "d0")]]


async def test_meanwhile_other_devices_are_given_out() -> None:
    async with stage.stage("1x0") as world, devices(world, 2) as made:
        await create_template(made, "one")
        await create(world, using(pod("old"), template="one"))
        await settle(10)
        (claim,) = (await claims_of(made)).values()
        await world.api.delete(PODS, "old", namespace=TEAM, grace_s=0)
        await settle(1)
        await create(world, using(pod("next"), template="one"))
        await settle(10)
        assert bound(world) == {"next"}
        (other,) = (await claims_of(made)).values()
        assert set(given(other)).isdisjoint(given(claim))
