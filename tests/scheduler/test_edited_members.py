"""Members of direct gangs that somebody changes between their join and their Binding."""

from __future__ import annotations

from gpu import reservation as reservations
from gpu.book import Entry, Tenant
from gpu.reservation import Reservation
from kube import books
from kube.client.resources import POD_GROUPS, PODS
from simulator.apiserver.faults import Fault, once
from simulator.world import World
from tests.scheduler import stage
from tests.scheduler.stage import bound, create, create_gang, is_call, settle, share
from wire import names

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
    slow = is_call("scheduler", "create", "pods", "binding")
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
