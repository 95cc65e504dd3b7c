"""A share of a GPU by a claim: what is written for it, and what its pod is bound and told with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest

from admission.settings import Settings as AdmissionSettings
from gpu.bound_pod import ClaimedShare
from kube.client.resources import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.controllers.kube_controllers import ClaimController
from simulator.world import World, WorldSettings
from tests.scheduler import stage
from tests.scheduler.commit.devices import DRIVER, claims_of, create_claim, devices, given, users, using
from tests.scheduler.stage import TEAM, create, find, phases, pod, settle, share
from wire import names

_ON = WorldSettings(admission=AdmissionSettings(shares_by_claims=True))


@asynccontextmanager
async def _stage(
    *, shape: str = "1x0", cards: int = 1, shared: bool = True, settings: WorldSettings = _ON
) -> AsyncIterator[tuple[World, ClaimController]]:
    """A node whose driver publishes GPUs that several claims may have at once."""
    async with (
        stage.stage(*shape.split(), settings=settings) as world,
        devices(world, *[0] * len(world.nodes.kubelets), resource=names.GPU_RESOURCE) as made,
    ):
        for node in sorted(world.nodes.kubelets) if cards else ():
            await _offer(made, node, cards, shared=shared)
        yield world, made


async def _offer(
    made: ClaimController, node: str, cards: int, *, shared: bool, generation: int = 1, uuid: str = ""
) -> None:
    listed: list[dict[str, Any]] = [
        {
            "name": f"d{number}",
            "attributes": {"uuid": {"string": uuid or f"GPU-{node}-{number}"}},
            "capacity": {"memory": {"value": "80Gi"}},
            "allowMultipleAllocations": shared,
        }
        for number in range(cards)
    ]
    pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": listed}
    await made.api.create(RESOURCE_SLICES, {"metadata": {"name": f"{node}-shared-{generation}"}, "spec": spec})


async def test_a_share_runs_by_a_claim_for_a_part_of_a_device() -> None:
    async with _stage() as (world, made):
        await create(world, share("p", "0.25"))
        await settle(20)
        assert phases(world) == {"p": "Running"}
        ((name, claim),) = (await claims_of(made)).items()
        assert (given(claim), users(claim)) == ([("node-0", "d0")], ["p"])
        (request,) = claim.spec.devices.requests or []
        assert request.exactly is not None
        assert request.exactly.capacity is not None
        assert request.exactly.capacity.requests == {"memory": "20Gi"}
        assert claim.status.allocation is not None
        (result,) = claim.status.allocation.devices.results or []
        assert (result.consumed_capacity, bool(result.share_id)) == ({"memory": "20Gi"}, True)
        found = find(world, "p")
        mapping = {"containerName": "main", "resourceName": names.GPU_SHARE_RESOURCE, "requestName": "share"}
        assert found["status"]["extendedResourceClaimStatus"] == {
            "resourceClaimName": name,
            "requestMappings": [mapping],
        }
        annotations = found["metadata"]["annotations"]
        assert annotations[names.VISIBLE_DEVICES_PREFIX + "c0"] == "void"
        assert annotations[names.GPU_PORTION_ANNOTATION] == "0.25"
        assert msgspec.json.decode(annotations[names.CLAIMED_SHARE], type=ClaimedShare) == ClaimedShare(
            driver=DRIVER, pool="node-0", device="d0", nano=250_000_000, mem_mib=81920, uuid="GPU-node-0-0"
        )
        assert (names.GRANT in annotations, names.GPU_GROUP_LABEL in found["metadata"].get("labels", {})) == (
            False,
            False,
        )


async def test_a_container_reads_the_variables_of_its_dialect_as_with_a_reservation() -> None:
    wanted = pod("p")
    wanted["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8192"}}
    async with _stage() as (world, _):
        await create(world, wanted)
        await settle(30)
        assert phases(world) == {"p": "Running"}
        annotations = find(world, "p")["metadata"]["annotations"]
        assert annotations["env.moorage.dev/c0.CUDA_DEVICE_MEMORY_LIMIT_0"] == "8192m"
        assert annotations[names.GPU_PORTION_ANNOTATION] == "0.10"


async def test_a_share_by_a_claim_says_that_the_agent_of_its_node_does_not_cap_it() -> None:
    wanted = pod("p")
    wanted["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8192"}}
    async with _stage() as (world, _):
        words = {names.NODE_ENFORCES: "memory-cap=hami-core"}
        await world.api.patch(NODES, "node-0", {"metadata": {"annotations": words}})
        await create(world, wanted)
        await settle(30)
        assert phases(world) == {"p": "Running"}
        conditions = find(world, "p")["status"]["conditions"]
        (told,) = [each["message"] for each in conditions if each["type"] == names.CONDITION_LIMITS_ENFORCED]
        assert told == "Node node-0 does not enforce a memory cap of 8192 MiB: kept as bookkeeping only"


async def test_what_a_dead_leader_made_for_a_share_is_deleted_and_the_pod_runs_with_a_claim_of_its_own() -> None:
    async with _stage() as (world, made):
        dead = anyio.Event()

        def dies(call: Call) -> Fault | None:
            if (call.user, call.subresource) != ("scheduler", "binding") or dead.is_set():
                return None
            dead.set()
            return Fault(lost="request", lands_after_s=5.0)

        world.server.faults.on_request.append(dies)
        await create(world, share("p"))
        await dead.wait()
        await world.restart(world.scheduler)
        await settle(120)
        assert phases(world) == {"p": "Running"}
        assert [users(each) for each in (await claims_of(made)).values()] == [["p"]]


async def test_a_device_that_a_reservation_holds_is_given_by_no_claim_and_the_checker_finds_who_does() -> None:
    """The driver publishes what the device plugin offers as well. The mistake is another writer's allocation."""
    async with _stage(shape="1x1x80GiB", cards=0) as (world, made):
        await create(world, share("p"))
        await settle(30)
        (device,) = msgspec.json.decode(find(world, "p")["metadata"]["annotations"][names.GRANT])["devices"]
        await _offer(made, "node-0", 1, shared=True, generation=2, uuid=device["uuid"])
        await create_claim(made, "c")
        await create(world, using(pod("q"), "c"))
        await settle(20)
        assert phases(world) == {"p": "Running", "q": "Pending"}
        result = {
            "request": "r",
            "driver": DRIVER,
            "pool": "node-0",
            "device": "d0",
            "shareID": "00000000-0000-4000-8000-000000000001",
        }
        status = {"allocation": {"devices": {"results": [{**result, "consumedCapacity": {"memory": "80Gi"}}]}}}
        await made.api.patch(RESOURCE_CLAIMS, "c", {"status": status}, namespace=TEAM, subresource="status")
        await settle(1)
        found = world.checker.findings.found
        assert [name for name, _ in found] == ["S19"]
        found.clear()


async def test_a_share_whose_claim_another_scheduler_named_meanwhile_is_left_to_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two at once, as where one is replaced without an election: the slower one reads a pod that asks a claim then."""
    async with _stage(settings=msgspec.structs.replace(_ON, schedulers=2)) as (world, made):
        struck: list[Call] = []

        def slows(call: Call) -> Fault | None:
            """The first allocation of one of them is refused, and Bindings take a second at first."""
            is_first = (call.user, call.verb, call.subresource) == ("scheduler", "patch", "status") and not struck
            if is_first and call.kind.plural == RESOURCE_CLAIMS.plural:
                struck.append(call)
                return Fault(refuse_with=409)
            is_slow = call.subresource == "binding" and world.elapsed_s < until_s
            return Fault(delay_s=1.0) if is_slow else None

        until_s = world.elapsed_s + 1.0
        world.server.faults.on_request.append(slows)
        await create(world, share("p", "0.25"))
        await settle(60)
        assert (len(struck), phases(world)) == (1, {"p": "Running"})
        assert [users(claim) for claim in (await claims_of(made)).values()] == [["p"]]
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []
