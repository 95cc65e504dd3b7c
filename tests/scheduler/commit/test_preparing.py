"""Claims that wait for their first consumer are bound before anything is written for their pods."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kube.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.controllers.kube_controllers import ClaimBinding
from simulator.world import World, WorldSettings
from tests.scheduler import stage
from tests.scheduler.commit.storage import SLOW, claim_of, create_claim, create_volume, mounting, storage
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
    share,
    strike,
    waits_because,
    writes,
)
from wire import names


@asynccontextmanager
async def _stage(*shapes: str) -> AsyncIterator[tuple[World, ClaimBinding]]:
    async with stage.stage(*shapes) as world, storage(world) as made:
        yield world, made


def _node_of(world: World, name: str) -> str:
    return str(find(world, name)["spec"].get("nodeName", ""))


@pytest.mark.parametrize("wanted", [pod("p", gpus=1), share("p"), pod("p")], ids=["whole", "share", "cpu"])
async def test_a_volume_is_provisioned_for_the_node_of_a_pod_before_the_pod_is_bound(wanted: dict[str, object]) -> None:
    async with _stage("2x1x80GiB") as (world, made):
        await create_claim(made, "data")
        await create(world, mounting(wanted, "data"))
        await settle(20)
        assert phases(world) == {"p": "Running"}
        claim = await claim_of(made, "data")
        assert claim.spec.volume_name == f"pvc-{claim.metadata.uid}"
        assert (claim.metadata.annotations or {})[names.SELECTED_NODE] == _node_of(world, "p")
        assert len(writes(world, "scheduler", "persistentvolumeclaims")) == 1


async def test_a_pod_whose_volume_can_not_be_provisioned_is_tried_on_another_node() -> None:
    async with _stage("3x1x80GiB") as (world, made):
        made.fails = lambda _, node: node != "node-2"
        await create_claim(made, "data")
        await create(world, mounting(pod("p", gpus=1), "data"))
        await settle(120)
        assert (phases(world), _node_of(world, "p")) == ({"p": "Running"}, "node-2")


async def test_a_pod_whose_volume_is_never_provisioned_says_so_and_holds_no_room_for_ever() -> None:
    async with _stage("1x1x80GiB") as (world, made):
        made.is_off = True
        await create_claim(made, "data")
        await create(world, mounting(pod("p", gpus=1), "data"))
        await settle(121)
        assert "VolumeTimeout: 1 claims were not bound within 120 s: data" in waits_because(world, "p")
        await settle(20)
        await create(world, pod("other", gpus=1))
        await settle(60)
        assert bound(world) == set()
        await settle(60)
        assert bound(world) == {"other"}


async def test_a_gang_binds_no_member_before_the_claims_of_all_are_bound() -> None:
    async with _stage("2x1x80GiB") as (world, made):
        made.fails = lambda claim, _: claim == "y" and len(tried) < 3 and not tried.append(claim)  # type: ignore[func-returns-value]
        tried: list[str] = []
        for name in ("x", "y"):
            await create_claim(made, name)
        await create_gang(world, "g", 2, *(mounting(pod(f"m{name}", gpus=1), name) for name in ("x", "y")))
        while len(tried) < 3 or not (await claim_of(made, "y")).spec.volume_name:
            assert bound(world) == set()
            await settle(1)
        await settle(30)
        assert phases(world) == {"mx": "Running", "my": "Running"}


async def test_what_was_written_is_gone_on_with_after_a_crash() -> None:
    async with _stage("4x1x80GiB") as (world, made):
        made.takes_s = 30.0
        await create_claim(made, "data")
        await create_volume(made, "pv", node="node-3")
        await create_claim(made, "static", of=SLOW)
        await create(world, mounting(pod("p", gpus=1), "data"), mounting(pod("q", gpus=1), "static"))
        await settle(0.4)
        node = (await claim_of(made, "data")).metadata.annotations[names.SELECTED_NODE]  # type: ignore[index]
        await world.restart(world.scheduler)
        await settle(60)
        assert phases(world) == {"p": "Running", "q": "Running"}
        assert (_node_of(world, "p"), _node_of(world, "q")) == (node, "node-3")


async def test_a_node_that_another_scheduler_selected_stands() -> None:
    async with _stage("2x1x80GiB") as (world, made):
        await create_claim(made, "data")
        # Another scheduler writes between our read and our write.
        other = strike(world, is_call("scheduler", "patch", "persistentvolumeclaims", None), Fault(delay_s=0.2)).met
        await create(world, mounting(pod("p", gpus=1), "data"))
        await other.wait()
        selected = {"metadata": {"annotations": {names.SELECTED_NODE: "node-1"}}}
        await made.api.patch(PERSISTENT_VOLUME_CLAIMS, "data", selected, namespace=TEAM)
        await settle(30)
        assert (phases(world), _node_of(world, "p")) == ({"p": "Running"}, "node-1")


async def test_a_volume_that_another_claim_took_meanwhile_is_left_to_it() -> None:
    async with _stage("2x1x80GiB") as (world, made):
        await create_volume(made, "pv1", node="node-0")
        await create_claim(made, "data", of=SLOW)
        theirs = {"spec": {"claimRef": {"namespace": "elsewhere", "name": "theirs", "uid": "u"}}}
        taken = strike(world, is_call("scheduler", "patch", "persistentvolumes", None), Fault(delay_s=0.2)).met
        await create(world, mounting(pod("p", gpus=1), "data"))
        await taken.wait()
        await made.api.patch(PERSISTENT_VOLUMES, "pv1", theirs)
        await create_volume(made, "pv2", node="node-1")
        await settle(30)
        volume = await made.api.get(PERSISTENT_VOLUMES, "pv1")
        assert volume.spec.claim_ref is not None
        assert volume.spec.claim_ref.name == "theirs"
        assert (phases(world), _node_of(world, "p")) == ({"p": "Running"}, "node-1")


async def test_a_pod_that_goes_while_its_claim_is_bound_gives_its_room_back() -> None:
    async with _stage("1x1x80GiB") as (world, made):
        made.is_off = True
        await create_claim(made, "data")
        await create(world, mounting(pod("p", gpus=1), "data"), pod("other", gpus=1))
        await settle(5)
        assert phases(world) == {"p": "Pending", "other": "Pending"}
        await world.api.delete(PODS, "p", namespace=TEAM)
        await settle(10)
        assert phases(world) == {"other": "Running"}


async def test_a_claim_that_is_to_be_deleted_is_waited_for_no_longer() -> None:
    async with _stage("1x1x80GiB") as (world, made):
        made.is_off = True
        await create_claim(made, "data")
        kept = {"metadata": {"finalizers": ["example.com/keep"]}}
        await made.api.patch(PERSISTENT_VOLUME_CLAIMS, "data", kept, namespace=TEAM)
        await create(world, mounting(pod("p", gpus=1), "data"), pod("other", gpus=1))
        await settle(5)
        assert bound(world) == set()
        await made.api.delete(PERSISTENT_VOLUME_CLAIMS, "data", namespace=TEAM)
        await settle(10)
        assert bound(world) == {"other"}
        assert 'persistentvolumeclaim "data" is being deleted' in waits_because(world, "p")


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
@pytest.mark.parametrize("plural", ["persistentvolumeclaims", "persistentvolumes"])
async def test_a_write_that_fails_in_any_way_is_written_in_the_end(plural: str, fault: Fault) -> None:
    async with _stage("2x1x80GiB") as (world, made):
        left = strike(world, is_call("scheduler", "patch", plural, None), fault).left
        await create_volume(made, "pv", node="node-1")
        await create_claim(made, "data", of="fast" if plural == "persistentvolumeclaims" else SLOW)
        await create(world, mounting(pod("p", gpus=1), "data"))
        await settle(100)
        assert (phases(world), left) == ({"p": "Running"}, [])


async def test_a_write_that_is_refused_for_good_is_told_and_tried_again_later() -> None:
    async with _stage("1x1x80GiB") as (world, made):
        world.server.faults.on_request.append(
            lambda call: (
                Fault(refuse_with=422)
                if (call.user, call.verb, call.kind.plural) == ("scheduler", "patch", "persistentvolumeclaims")
                else None
            )
        )
        await create_claim(made, "data")
        await create(world, mounting(pod("p", gpus=1), "data"))
        await settle(10)
        assert "Refused: claim data" in waits_because(world, "p")
        world.server.faults.clear()
        await settle(300)
        assert phases(world) == {"p": "Running"}


async def test_claims_that_may_not_be_written_hold_up_no_others() -> None:
    at_a_time = WorldSettings().scheduler.in_flight
    async with _stage(f"1x{at_a_time + 1}x80GiB") as (world, made):

        def strike(call: Call) -> Fault | None:
            is_meant = (call.user, call.verb, call.kind.plural) == ("scheduler", "patch", "persistentvolumeclaims")
            return Fault(refuse_with=403) if is_meant and call.name != "data" else None

        world.server.faults.on_request.append(strike)
        for number in range(at_a_time):
            await create_claim(made, f"refused-{number}")
            await create(world, mounting(pod(f"r{number}", gpus=1), f"refused-{number}"))
        await settle(5)
        await create_claim(made, "data")
        await create(world, mounting(pod("p", gpus=1), "data"))
        await settle(10)
        assert bound(world) == {"p"}


async def test_a_failure_that_is_seen_in_one_go_with_the_write_is_noticed() -> None:
    late = WorldSettings(seed=3, event_delay_s=5.0)
    async with stage.stage("3x1x80GiB", settings=late) as world, storage(world) as made:
        made.takes_s = 0.0
        made.fails = lambda _, node: node != "node-2"
        await create_claim(made, "data")
        await create(world, mounting(pod("p", gpus=1), "data"))
        await settle(60)
        assert (phases(world), _node_of(world, "p")) == ({"p": "Running"}, "node-2")
