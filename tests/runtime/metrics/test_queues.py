"""How queues stand, as a scraper sees it: KAI's names, KAI's units, and what is owed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kube.client.api import Api
from kube.client.resources import QUEUES as QUEUE_OBJECTS
from runtime.metrics.declared import QUEUES
from runtime.metrics.registry import Registry
from runtime.metrics.scheduler import show_queues
from scheduler.app import Scheduler
from scheduler.core.model.settings import Settings
from scheduler.core.queues.use_over_time import UsePeriod
from scheduler.settings import SchedulerSettings
from simulator.clock import VirtualClock
from simulator.components import Parts
from simulator.nodes import shape
from simulator.world import World, WorldSettings
from tests.runtime.metrics.exposed import every_sample_once, value, values
from tests.scheduler.conditions.queues import FREE, create_queue, gpus, use
from tests.scheduler.stage import settle

VIRTUAL_TIME = True


class Scraped:
    """A cluster whose queues are shown."""

    def __init__(self, *shapes: str, settings: SchedulerSettings | None = None) -> None:
        self.registry = Registry()
        clock = VirtualClock(asyncio.get_running_loop())
        self.world = World(
            shape.parse(shapes),
            clock=clock,
            settings=WorldSettings(seed=1, scheduler=settings or SchedulerSettings()),
            parts=Parts(scheduler=self._make),
        )

    def _make(self, api: Api, **given: Any) -> Scheduler:
        made = Scheduler(api, **given)
        self.registry = Registry()
        show_queues(self.registry, made.state)
        return made

    def of(self, name: str, queue: str, display_name: str = "") -> float | None:
        labels = {"queue_name": queue, "queue_metadata_name": queue, "queue_display_name": display_name}
        return value(self.registry, f"kai_queue_{name}", labels)


@asynccontextmanager
async def scraped(*shapes: str, settings: SchedulerSettings | None = None) -> AsyncIterator[Scraped]:
    made = Scraped(*shapes, settings=settings)
    async with made.world:
        yield made


async def test_queues_stand_under_kais_names_in_kais_units() -> None:
    resources = {
        "cpu": {"quota": 2500, "limit": 64000, "overQuotaWeight": 1},
        "memory": {"quota": 1.5, "limit": -1, "overQuotaWeight": 1},
        "gpu": {"quota": 2.5, "limit": 3, "overQuotaWeight": 1},
    }
    async with scraped("1x4x80GiB") as it:
        await create_queue(it.world, "a", displayName="Team A", resources=resources)
        await use(it.world, "a", "a0", gpu_count=2)
        await use(it.world, "a", "a1", gpu_count=2)
        await use(it.world, "a", "a2", is_fixed=True)
        await settle()
        expected = {
            "info": 1,
            "deserved_gpus": 2.5,
            "quota_cpu_cores": 2.5,
            "quota_memory_bytes": 1_500_000,
            "limit_gpus": 3,
            "limit_cpu_cores": 64,
            "limit_memory_bytes": -1,
            "allocated_gpus": 3,
            "allocated_cpu_cores": 0,
            "allocated_memory_bytes": 0,
            "allocated_non_preemptible_gpus": 1,
            "requested_gpus": 5,
            "fair_share_gpu": 3,
            "fair_share_cpu_cores": 0,
            "fair_share_memory_gb": 0,
        }
        assert {name: it.of(name, "a", "Team A") for name in expected} == expected
        assert every_sample_once(it.registry)


async def test_a_parent_shows_what_its_children_have() -> None:
    async with scraped("1x4x80GiB") as it:
        await create_queue(it.world, "top")
        await create_queue(it.world, "a", "top")
        await use(it.world, "a", "a0", "a1")
        await settle()
        assert (it.of("allocated_gpus", "top"), it.of("allocated_gpus", "a")) == (2, 2)


async def test_a_queue_that_cannot_be_used_shows_what_it_holds_and_no_share() -> None:
    async with scraped("1x4x80GiB") as it:
        await create_queue(it.world, "a", "gone")
        await use(it.world, "a", "a0")
        await settle()
        assert (it.of("requested_gpus", "a"), it.of("fair_share_gpu", "a")) == (1, None)


@pytest.mark.parametrize(
    ("period", "expected"),
    [(None, {"a": None, "b": None, "top": None}), (UsePeriod(), {"a": 0.75, "b": 0, "top": 0.75})],
)
async def test_use_over_time_is_a_part_of_the_cluster_where_it_counts(
    period: UsePeriod | None, expected: dict[str, float | None]
) -> None:
    async with scraped("1x4x80GiB", settings=SchedulerSettings(queue_use=period)) as it:
        await create_queue(it.world, "top")
        await create_queue(it.world, "a", "top")
        await create_queue(it.world, "b", "top")
        await use(it.world, "a", "a0", "a1", "a2")
        await settle(3_600)
        used = {name: it.of("gpu_usage", name) for name in expected}
        assert {name: each if each is None else round(each, 2) for name, each in used.items()} == expected
        idle = None if period is None else 0
        assert [it.of(f"{resource}_usage", "a") for resource in ("cpu", "memory")] == [idle, idle]
        assert every_sample_once(it.registry)


async def test_what_a_quota_guarantees_and_is_not_given_is_owed() -> None:
    settings = SchedulerSettings(decisions=Settings(preemption=False))
    async with scraped("1x4x80GiB", settings=settings) as it:
        await create_queue(it.world, "b")
        await use(it.world, "b", "b0", gpu_count=3)
        await settle()
        await create_queue(it.world, "a", resources=gpus(quota=2))
        await use(it.world, "a", "a0", "a1", "a2")
        await settle()
        owed = values(it.registry, "moorage_queue_owed_nano_gpus")
        assert owed == {("a",): 1_000_000_000, ("b",): 0}


async def test_a_queue_that_is_gone_or_whose_name_for_people_changed_leaves_no_series_behind() -> None:
    async with scraped("1x4x80GiB") as it:
        await create_queue(it.world, "a", displayName="Old")
        await settle()
        await it.world.api.patch(QUEUE_OBJECTS, "a", {"spec": {"displayName": "New"}})
        await settle()
        assert (it.of("info", "a", "Old"), it.of("info", "a", "New")) == (None, 1)
        await it.world.api.delete(QUEUE_OBJECTS, "a")
        await settle()
        assert values(it.registry, "kai_queue_info") == {}


async def test_who_does_not_lead_shows_no_queues() -> None:
    async with scraped("1x4x80GiB") as it:
        await create_queue(it.world, "a", resources={"cpu": FREE, "memory": FREE, "gpu": FREE})
        await settle()
        it.world.scheduler.crash()
        await settle()
        assert {name for metric in QUEUES for name in values(it.registry, metric.name)} == set()
