"""What once ended the scheduler, or held a pod for ever: slow conditions, requests in the way, gaps in a watch."""

from __future__ import annotations

from gpu import reservation as reservations
from gpu.book import Entry, Tenant
from gpu.reservation import Reservation
from kube import books
from kube.client.resources import BIND_REQUESTS, NODES, POD_GROUPS, PODS
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault, once
from simulator.nodes.shape import KubeletSettings
from simulator.world import World, WorldSettings
from tests.scheduler import stage
from tests.scheduler.stage import (
    BINDING,
    bound,
    cordon,
    create,
    create_gang,
    is_call,
    pod,
    settle,
    share,
    strike_all,
    waits_because,
)
from wire import names


async def test_a_condition_that_is_slow_to_be_written_stops_nothing() -> None:
    async with stage.stage("1x1x80GiB") as world:
        await create(world, pod("a", gpus=1))
        await settle(5)
        strike_all(world, is_call("scheduler", "patch", "pods", "status"), Fault(answer_delay_s=9.0))
        await create(world, pod("b", gpus=1))
        await settle(1)
        await cordon(world, "node-0")
        await settle(20)
        world.server.faults.clear()
        await create(world, pod("cpu"))
        await world.api.patch(NODES, "node-0", {"spec": {"unschedulable": False}})
        await settle(20)
        assert "cpu" in bound(world)


async def test_an_older_request_that_is_slow_to_go_stops_nothing() -> None:
    async with stage.stage("1x1x80GiB") as world:
        older = {
            "apiVersion": BIND_REQUESTS.api_version,
            "kind": BIND_REQUESTS.kind,
            "metadata": {"name": "a"},
            "spec": {"podName": "a", "selectedNode": "node-0"},
        }
        await stage.api_of(world, "scheduler").create(BIND_REQUESTS, older, namespace=stage.TEAM)
        strike_all(world, is_call("scheduler", "delete", "bindrequests"), Fault(refuse_with=500))
        await create(world, share("a"))
        await settle(30)
        world.server.faults.clear()
        await settle(60)
        assert bound(world) == {"a"}


async def test_a_first_share_that_can_not_be_handed_over_does_not_hold_up_the_others_of_its_device() -> None:
    async with stage.stage("1x1x80GiB") as world:
        asks = is_call("scheduler", "create", "bindrequests")
        world.server.faults.on_request.append(
            lambda call: Fault(refuse_with=500) if asks(call) and call.decoded()["metadata"]["name"] == "bad" else None
        )
        await create(world, share("bad"))
        await settle(1)
        await create(world, share("good"))
        await settle(20)
        assert bound(world) == {"good"}
        world.server.faults.clear()
        await settle(20)
        assert bound(world) == {"bad", "good"}


async def test_a_request_that_came_and_went_between_two_lists_does_not_hold_its_pod() -> None:
    async with stage.stage("1x1x80GiB") as world:
        await settle(10)
        world.server.faults.on_request.append(
            lambda call: Fault(refuse_with=500) if call.user == "scheduler" and _follows_requests(call) else None
        )
        world.server.cut_watches(lambda call: call.user == "scheduler" and _follows_requests(call))
        world.binder.crash()
        await create(world, share("a"))
        await settle(0.3)
        assert len((await world.api.list(BIND_REQUESTS)).items) == 1
        await world.api.delete(BIND_REQUESTS, "a", namespace=stage.TEAM)
        await settle(1)
        world.server.compact()
        world.server.faults.clear()
        await world.restart(world.binder)
        await settle(200)
        assert bound(world) == {"a"}


def _follows_requests(call: Call) -> bool:
    return call.verb in {"watch", "list"} and call.kind.plural == "bindrequests"


async def test_a_pod_that_ends_slowly_keeps_its_share_though_the_binder_never_saw_it() -> None:
    settings = WorldSettings(seed=1, kubelet=KubeletSettings(stop_s=250.0))
    async with stage.stage("1x1x80GiB", settings=settings) as world:
        slow = share("slow", "0.6")
        slow["spec"]["terminationGracePeriodSeconds"] = 300
        await create(world, slow, share("keeper", "0.2"))
        await settle(20)
        world.binder.crash()
        world.nodes["node-0"].freeze()
        await world.api.delete(PODS, "slow", namespace=stage.TEAM, grace_s=0)
        await settle(5)
        world.nodes["node-0"].thaw()
        await world.restart(world.binder)
        await create(world, share("next", "0.6"))
        await settle(260)
        assert "next" not in bound(world)
        await settle(200)
        assert "next" in bound(world)


async def test_a_pod_whose_condition_came_due_while_it_was_on_its_way_is_told_in_the_end() -> None:
    async with stage.stage("1x1x80GiB") as world:
        await cordon(world, "node-0")
        await settle(2)
        tell, post = is_call("scheduler", "patch", "pods", "status"), BINDING
        world.server.faults.on_request.append(lambda call: Fault(refuse_with=409) if tell(call) else None)
        await create(world, pod("a", gpus=1))
        await settle(1)
        world.server.faults.on_request.append(lambda call: Fault(delay_s=8.0) if post(call) else None)
        await world.api.patch(NODES, "node-0", {"spec": {"unschedulable": False}})
        await settle(1)
        await cordon(world, "node-0")
        await world.api.patch(PODS, "a", {"metadata": {"annotations": {"note": "late"}}}, namespace=stage.TEAM)
        del world.server.faults.on_request[0]
        await settle(600)
        assert "unschedulable" in waits_because(world, "a")


# Members of direct gangs that somebody changes between their join and their Binding.

#: Longer than the binder's collector lets a book go unlooked at.
SLOW_S = 8.0


async def _held(world: World) -> Reservation:
    (found,) = (await world.api.list(PODS, namespace=names.RESERVATION_NAMESPACE)).items
    return reservations.read(found)


def _tenants(held: Reservation) -> set[str]:
    return {entry.pod.partition("/")[2] for entry in (held.book.entries.values() if held.book else ())}


async def _edit_on_its_way(world: World) -> None:
    """A gang joins a device that is known; the Binding of m1 takes its time, and m1 is changed meanwhile."""
    await create(world, share("first", "0.2"))
    await settle()
    slow = BINDING
    world.server.faults.on_request.append(
        once(Fault(delay_s=SLOW_S), when=lambda call: slow(call) and call.name == "m1")
    )
    await create_gang(world, "g", 2, share("m0", "0.3"), share("m1", "0.3"))
    await settle(1)
    assert bound(world) == {"first", "m0"}
    await world.api.patch(PODS, "m1", {"metadata": {"annotations": {"note": "changed"}}}, namespace=stage.TEAM)
    await settle(SLOW_S - 1.5)
    assert _tenants(await _held(world)) == {"first", "m0"}


async def test_a_member_whose_entry_the_collector_took_out_enters_the_book_anew() -> None:
    async with stage.stage("1x1x80GiB") as world:
        await _edit_on_its_way(world)
        await settle(5)
        assert bound(world) == {"first", "m0", "m1"}
        group = await world.api.get(POD_GROUPS, "g", namespace=stage.TEAM)
        assert names.PLAN in (group.metadata.annotations or {}), "the plan was taken back"
        held = await _held(world)
        assert held.book is not None
        assert held.book.total_nano == 800_000_000


async def test_a_member_whose_room_was_taken_meanwhile_gives_back_what_it_has() -> None:
    async with stage.stage("1x1x80GiB") as world:
        await _edit_on_its_way(world)
        held = await _held(world)
        stranger = Tenant("stranger", Entry(500_000_000, "another leader's", held.rv, 0, "team-a/stranger"))
        api = stage.api_of(world, "scheduler")
        joined = await books.join(api, held, [stranger])
        assert isinstance(joined, Reservation)
        await settle(5)
        assert bound(world) == {"first", "m0"}
        assert _tenants(await _held(world)) == {"first", "m0", "stranger"}
        await books.leave(api, joined, [stranger])
        await settle(30)
        assert bound(world) == {"first", "m0", "m1"}
