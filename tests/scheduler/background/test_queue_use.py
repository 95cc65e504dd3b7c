"""What queues used over time counts in who is next, and survives a restart."""

from __future__ import annotations

import pytest

from kube.client.resources import CONFIG_MAPS, PODS, QUEUES
from scheduler.core.queues.use_over_time import UsePeriod, read
from scheduler.settings import SchedulerSettings
from simulator.apiserver.faults import Fault
from simulator.world import World, WorldSettings
from tests.conftest import AnyioBackend
from tests.scheduler import stage
from tests.scheduler.stage import bound, create, is_call, pod, settle, writes
from ui.queues import reader
from wire import names

HOUR_S = 3600
FORBIDDEN = Fault(refuse_with=403)
SETTINGS = WorldSettings(seed=1, scheduler=SchedulerSettings(queue_use=UsePeriod(window_s=2 * HOUR_S)))
UNLIMITED = {"quota": 0, "limit": -1, "overQuotaWeight": 1}


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


async def two_teams(world: World) -> None:
    """Two queues that are due the same."""
    for name in ("a", "b"):
        spec = {"resources": dict.fromkeys(("cpu", "memory", "gpu"), UNLIMITED)}
        await world.api.create(QUEUES, {"metadata": {"name": name}, "spec": spec})


async def submit(world: World, queue: str, *pods: str) -> None:
    for name in pods:
        wanted = pod(name, gpus=1)
        wanted["metadata"]["labels"] = {names.QUEUE_LABEL: queue}
        await create(world, wanted)


async def end(world: World, *ended: str) -> None:
    for name in ended:
        await world.api.delete(PODS, name, namespace=stage.TEAM, grace_s=0)


async def use_for_an_hour(world: World) -> None:
    """Team a uses all four GPUs for an hour; then both teams want four, a first, and two GPUs come free."""
    await two_teams(world)
    await submit(world, "a", "a1", "a2", "a3", "a4")
    await settle(HOUR_S)
    await submit(world, "a", "a5", "a6", "a7", "a8")
    await submit(world, "b", "b1", "b2", "b3", "b4")


def teams(world: World) -> str:
    """Of each bound pod its team."""
    return "".join(sorted(name[0] for name in bound(world)))


async def recorded(world: World) -> set[str]:
    """Queues in the record that is kept."""
    found = await world.api.get(CONFIG_MAPS, names.QUEUE_USE, namespace=names.SYSTEM_NAMESPACE)
    kept = read((found.data or {})["use"])
    assert not isinstance(kept, str)
    return {*kept.now.of}


@pytest.mark.parametrize(
    ("settings", "served"),
    [
        # Half and half, though a had everything for an hour.
        (WorldSettings(seed=1), "aabb"),
        (SETTINGS, "bbbb"),
    ],
)
async def test_who_used_the_cluster_for_long_comes_after_who_did_not(settings: WorldSettings, served: str) -> None:
    async with stage.stage("1x4x80GiB", settings=settings) as world:
        await use_for_an_hour(world)
        await end(world, "a1", "a2", "a3", "a4")
        await settle(30)
        assert teams(world) == served


async def test_a_scheduler_that_restarts_goes_on_with_what_was_used() -> None:
    async with stage.stage("1x4x80GiB", settings=SETTINGS) as world:
        await use_for_an_hour(world)
        await world.restart(world.scheduler)
        await end(world, "a1", "a2", "a3", "a4")
        await settle(30)
        assert teams(world) == "bbbb"


async def test_the_record_is_written_every_five_minutes_and_bounded() -> None:
    async with stage.stage("1x4x80GiB", settings=SETTINGS) as world:
        await two_teams(world)
        await submit(world, "a", "a1", "a2")
        await submit(world, "no-such-queue", "lost")
        await settle(HOUR_S)
        assert 10 <= len(writes(world, "scheduler", "configmaps")) <= 13
        assert await recorded(world) == {"a"}


async def test_the_use_of_a_queue_that_is_deleted_is_forgotten() -> None:
    async with stage.stage("1x4x80GiB", settings=SETTINGS) as world:
        await two_teams(world)
        await submit(world, "a", "a1")
        await submit(world, "b", "b1")
        await settle(600)
        await end(world, "b1")
        await settle(5)
        await world.api.delete(QUEUES, "b")
        await settle(600)
        assert await recorded(world) == {"a"}


@pytest.mark.parametrize("text", ["", "{", '{"at_s":1,"began_s":0,"now":{"of":{"a":[-1,0,0]}}}'])
async def test_a_record_that_cannot_be_read_is_replaced(text: str) -> None:
    async with stage.stage("1x4x80GiB", settings=SETTINGS) as world:
        await world.api.create(
            CONFIG_MAPS,
            {"metadata": {"name": names.QUEUE_USE}, "data": {"use": text}},
            namespace=names.SYSTEM_NAMESPACE,
        )
        await world.restart(world.scheduler)
        await use_for_an_hour(world)
        assert await recorded(world) == {"a"}


@pytest.mark.parametrize("verb", ["get", "patch", "create"])
async def test_without_the_right_to_keep_it_use_counts_until_the_scheduler_restarts(verb: str) -> None:
    is_refused = is_call("scheduler", verb, "configmaps")

    def forbid(world: World) -> None:
        world.server.faults.on_request.append(lambda call: FORBIDDEN if is_refused(call) else None)

    async with stage.stage("1x4x80GiB", settings=SETTINGS, before=forbid) as world:
        await use_for_an_hour(world)
        await end(world, "a1", "a2", "a3", "a4")
        await settle(30)
        assert teams(world) == "bbbb"


async def test_programs_read_what_counts_now() -> None:
    async with stage.stage("1x4x80GiB", settings=SETTINGS) as world:
        await two_teams(world)
        await submit(world, "a", "a1", "a2")
        await settle(HOUR_S)
        known = await reader.read(world.api)
        assert round(known.snapshot.queues.used.of["a"][2] / 10**7) == 50
