"""What queues used over time counts in who is next, and survives a restart."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kube.client.resources import CONFIG_MAPS, PODS, QUEUES
from scheduler.app import Scheduler
from scheduler.background.queue_use import NoAnswer
from scheduler.core.queues.use_over_time import Source, UseOverTime, UsePeriod, read
from scheduler.settings import Asked, SchedulerSettings, UseSource
from simulator.apiserver.faults import Fault
from simulator.world import World, WorldSettings
from tests.quick import few
from tests.scheduler import stage
from tests.scheduler.stage import bound, create, is_call, pod, settle, writes
from ui.queues import reader
from wire import names

HOUR_S = 3600
FORBIDDEN = Fault(refuse_with=403)
SETTINGS = WorldSettings(seed=1, scheduler=SchedulerSettings(queue_use=UsePeriod(window_s=2 * HOUR_S)))
UNLIMITED = {"quota": 0, "limit": -1, "overQuotaWeight": 1}


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


@pytest.mark.parametrize("text", few(["", "{", '{"at_s":1,"began_s":0,"now":{"of":{"a":[-1,0,0]}}}'], 3))
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


@pytest.mark.parametrize("verb", few(["get", "patch", "create"], 3))
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


# Use over time as Prometheus says it: it counts while it is fresh, then for nobody, and survives a restart.

STALE_S = 300


class Stored:
    """A Prometheus that knows what queues used of four GPUs, in percent. ``wrong``: why it does not answer."""

    def __init__(self, **used: int) -> None:
        self.used = used
        self.wrong = ""
        self.asked = 0

    @asynccontextmanager
    async def connect(self, _: UseSource) -> AsyncIterator[Asked]:
        yield self

    async def ask(self, query: str, at_s: int) -> bytes:
        self.asked += 1
        if self.wrong:
            raise NoAnswer(self.wrong)
        samples = self.used if "gpus" in query else {}
        if "kube_node_status_capacity" in query:
            samples = {"": 100}
        result = [{"metric": {"queue_name": name}, "value": [at_s, str(value)]} for name, value in samples.items()]
        return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()

    def settings(self, *, fetch_s: int = 60) -> WorldSettings:
        source = UseSource(url="http://p", fetch_s=fetch_s, staleness_period_s=STALE_S, asking=self.connect)
        return WorldSettings(seed=1, scheduler=SchedulerSettings(queue_use=UsePeriod(), use_source=source))


@asynccontextmanager
async def cluster(stored: Stored, *, fetch_s: int = 60) -> AsyncIterator[World]:
    async with stage.stage("1x4x80GiB", settings=stored.settings(fetch_s=fetch_s)) as world:
        await two_teams(world)
        await settle(120)
        yield world


def used(world: World) -> UseOverTime:
    scheduler = world.running["scheduler"]
    assert isinstance(scheduler, Scheduler)
    return scheduler.cache.cluster.queues.used


async def told(world: World) -> UseOverTime:
    """What programs read."""
    return (await reader.read(world.api)).snapshot.queues.used


@pytest.mark.parametrize(("wrong", "served"), [("", "bbbb"), ("gone", "aabb")])
async def test_who_used_much_by_prometheus_comes_after_who_did_not(wrong: str, served: str) -> None:
    stored = Stored(a=90)
    stored.wrong = wrong
    async with cluster(stored) as world:
        await submit(world, "a", "a1", "a2", "a3", "a4")
        await settle(5)
        await submit(world, "a", "a5", "a6", "a7", "a8")
        await submit(world, "b", "b1", "b2", "b3", "b4")
        await end(world, "a1", "a2", "a3", "a4")
        await settle(30)
        assert teams(world) == served


async def test_queues_that_are_no_objects_are_left_out_and_the_answer_is_told_to_programs() -> None:
    async with cluster(Stored(a=90, gone=10)) as world:
        assert used(world).of == {"a": (0, 0, 900_000_000)}
        assert (await told(world)).of == {}  # of the time when no queue was there
        await settle(STALE_S)
        assert await told(world) == used(world)


async def test_prometheus_is_asked_once_a_minute() -> None:
    stored = Stored(a=90)
    async with cluster(stored):
        await settle(30)  # between two times at which it is asked
        before = stored.asked
        await settle(600)
        assert stored.asked - before == 60


async def test_an_answer_counts_until_it_is_stale_and_again_when_there_is_one(caplog: pytest.LogCaptureFixture) -> None:
    stored = Stored(a=90)
    async with cluster(stored) as world:
        stored.wrong = "no answer within 10 s"
        await settle(STALE_S - 60)
        assert used(world).source is Source.PROMETHEUS
        await settle(120)
        assert (used(world).source, used(world).is_counted, used(world).of) == (Source.STALE, False, {})
        assert await told(world) == used(world)
        since_s = world.api.clock.now_ns() // 10**9 - used(world).since_s
        assert STALE_S < since_s < STALE_S + 180
        await settle(3600)
        stored.wrong = ""
        with caplog.at_level(logging.INFO):
            await settle(65)
        assert used(world).of == {"a": (0, 0, 900_000_000)}
        assert await told(world) == used(world)
    logged = [record.getMessage() for record in caplog.records if "Prometheus" in record.getMessage()]
    assert logged == [
        "Prometheus at http://p does not say what queues used over time: no answer within 10 s",
        "Prometheus at http://p answers again",
    ]


async def test_an_answer_is_stale_in_time_although_the_next_question_comes_later() -> None:
    stored = Stored(a=90)
    async with cluster(stored, fetch_s=3600) as world:
        await settle(STALE_S - 140)
        assert used(world).source is Source.PROMETHEUS
        await settle(40)
        assert used(world).source is Source.STALE
        assert await told(world) == used(world)
        await settle(3600 - STALE_S)
        assert used(world).source is Source.PROMETHEUS


async def test_before_the_first_answer_use_counts_for_nobody() -> None:
    stored = Stored(a=90)
    stored.wrong = "gone"
    async with cluster(stored) as world:
        assert used(world) == UseOverTime(source=Source.STALE)
        assert await told(world) == used(world)


async def test_a_scheduler_that_restarts_goes_by_the_last_answer_while_it_is_fresh() -> None:
    stored = Stored(a=90)
    async with cluster(stored) as world:
        await settle(STALE_S)
        stored.wrong = "gone"
        await world.restart(world.scheduler)
        await settle(5)
        assert used(world).of == {"a": (0, 0, 900_000_000)}
        await settle(STALE_S + 60)
        assert used(world).source is Source.STALE
        await world.restart(world.scheduler)
        await settle(5)
        assert (used(world).source, used(world).of) == (Source.STALE, {})


@pytest.mark.parametrize("answered", ["", "soon", "-1", "٣", "99999999999", "9" * 5000, "0"])
async def test_what_is_kept_of_no_known_time_does_not_count(answered: str) -> None:
    stored = Stored(a=90)
    stored.wrong = "gone"
    counts = '{"of":{"a":[0,0,900000000]},"source":"prometheus"}'
    async with cluster(stored) as world:
        data = {names.QUEUE_USE_COUNTS: counts, "answered": answered}
        await world.api.patch(CONFIG_MAPS, names.QUEUE_USE, {"data": data}, namespace=names.SYSTEM_NAMESPACE)
        await world.restart(world.scheduler)
        await settle(5)
        assert (used(world).source, used(world).of) == (Source.STALE, {})


async def test_it_is_written_every_five_minutes_and_when_it_begins_or_ceases_to_count() -> None:
    stored = Stored(a=90)
    async with cluster(stored) as world:
        before = len(writes(world, "scheduler", "configmaps"))
        await settle(3600)
        calm = len(writes(world, "scheduler", "configmaps")) - before
        assert 11 <= calm <= 13
        stored.wrong = "gone"
        await settle(STALE_S + 120)
        stored.wrong = ""
        await settle(61)
        assert len(writes(world, "scheduler", "configmaps")) - before - calm in {3, 4}
