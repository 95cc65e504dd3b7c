"""What a scheduler and a binder count while they work, in a whole simulated cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from binder.app import Binder
from kube.client.api import Api
from runtime.metrics import scheduler as scheduling
from runtime.metrics.declared import BINDER, SCHEDULER
from runtime.metrics.registry import Registry
from runtime.processes import binder as binding
from scheduler.app import Scheduler
from scheduler.core.report.fragmentation import Cause
from scheduler.report.state import ON_ITS_WAY
from simulator.clock import VirtualClock
from simulator.components import Parts
from simulator.nodes import shape
from simulator.world import World, WorldSettings
from tests.conftest import AnyioBackend
from tests.runtime.metrics.exposed import every_sample_once, value, values
from tests.scheduler.stage import create, create_gang, pod, settle, share

NANO = 1_000_000_000


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


class Counted:
    """A cluster whose components are counted."""

    def __init__(self, shapes: Sequence[str]) -> None:
        self.scheduler, self.binder = Registry(), Registry()
        parts = Parts(scheduler=self.make_scheduler, binder=self.make_binder)
        clock = VirtualClock(asyncio.get_running_loop())
        self.world = World(shape.parse(shapes), clock=clock, settings=WorldSettings(seed=1), parts=parts)

    def make_scheduler(self, api: Api, **given: Any) -> Scheduler:
        made = Scheduler(api, **given, observer=scheduling.SchedulingCounted(self.scheduler))
        scheduling.show_standing(self.scheduler, made.standing)
        return made

    def make_binder(self, api: Api, **given: Any) -> Binder:
        made = Binder(api, **given, observer=binding.BindingCounted(self.binder))
        binding.show_standing(self.binder, made.standing)
        return made


@asynccontextmanager
async def counted(*shapes: str) -> AsyncIterator[Counted]:
    made = Counted(shapes)
    async with made.world:
        yield made


async def test_placements_are_counted_by_how_they_are_made_and_end() -> None:
    async with counted("1x2x80GiB") as it:
        await create(it.world, share("a"))
        await settle()
        await create(it.world, share("b", "0.25"), pod("w", gpus=1))
        await settle()
        decided = values(it.scheduler, "moorage_decisions_total")
        assert {kind: count for (kind,), count in decided.items() if count} == {"attempt": 1, "join": 1, "bind": 1}
        assert values(it.scheduler, "moorage_direct_binds_total")["bound",] == 2
        assert value(it.scheduler, "moorage_pod_scheduling_duration_seconds_count") == 3
        for stage in ("decide", "charge", "bind", "join", "hand-over"):
            assert value(it.scheduler, "moorage_scheduling_stage_duration_seconds_count", {"stage": stage}), stage
        assert values(it.binder, "moorage_binds_total")["bound",] == 1
        assert value(it.binder, "moorage_bind_duration_seconds_count", {"outcome": "bound"}) == 1
        for stage in ("join", "learn", "verify", "bind", "drop-request"):
            assert value(it.binder, "moorage_bind_stage_duration_seconds_count", {"stage": stage}) == 1, stage
        learned_s = value(it.binder, "moorage_bind_stage_duration_seconds_sum", {"stage": "learn"})
        assert 0.0 < (learned_s or 0.0) < 10.0


async def test_latencies_stand_under_kais_names_in_kais_unit_too() -> None:
    async with counted("1x2x80GiB") as it:
        await create(it.world, share("a"), pod("w", gpus=1))
        await settle()
        seconds = value(it.scheduler, "moorage_pod_scheduling_duration_seconds_sum")
        assert value(it.scheduler, "kai_task_scheduling_latency_milliseconds_sum") == pytest.approx(
            1000 * (seconds or 0)
        )
        assert value(it.scheduler, "kai_task_bind_latency_milliseconds_count") == 2
        assert value(it.scheduler, "kai_e2e_scheduling_latency_milliseconds") is not None


async def test_how_gpus_are_used_is_read_to_the_nano() -> None:
    async with counted("2x2x80GiB") as it:
        await create(it.world, share("a"), pod("w", gpus=1))
        await settle()
        pools = values(it.scheduler, "moorage_pool_nano_gpus")
        use = {state: nano for (*_, state), nano in pools.items()}
        assert use == {"used": 1.5 * NANO, "free": 2 * NANO, "pieces": 0.5 * NANO, "stranded": 0.0}
        assert set(values(it.scheduler, "moorage_unusable_nano_gpus").values()) == {0}
        assert value(it.binder, "moorage_gpu_groups") == value(it.binder, "moorage_gpu_tenants") == 1
        assert values(it.binder, "moorage_reservations")["shared",] == 1
        assert set(values(it.binder, "moorage_ledger_drift_pods").values()) == {0}
        assert value(it.scheduler, "moorage_ledger_differences_total") == 0
        assert every_sample_once(it.scheduler)
        assert every_sample_once(it.binder)


async def test_what_is_free_and_fits_no_pod_that_waits_is_read_by_cause() -> None:
    async with counted("1x2x80GiB") as it:
        await create(it.world, share("a", "0.75"), pod("w", gpus=2))
        await settle()
        unusable = values(it.scheduler, "moorage_unusable_nano_gpus")
        assert {cause: nano for (cause, *_), nano in unusable.items() if nano} == {"pieces": 1.25 * NANO}
        assert {cause for cause, *_ in unusable} == {cause.value for cause in Cause}


async def test_why_pods_wait_is_counted_once_each_and_read_as_it_is() -> None:
    async with counted("1x1x80GiB") as it:
        await create(it.world, pod("w", gpus=1))
        await settle()
        await create(it.world, pod("x", gpus=1), pod("y", gpus=1))
        await create_gang(it.world, "few", 3, share("m"))
        await settle(60)
        waiting = {why: count for (why,), count in values(it.scheduler, "moorage_waiting_pods").items() if count}
        assert waiting == {"NoNodeFits": 2, "GangNotReady": 1}
        verdicts = {why: count for (why,), count in values(it.scheduler, "moorage_verdicts_total").items() if count}
        assert verdicts == {"NoNodeFits": 2, "GangNotReady": 1}


async def test_a_pod_on_its_way_waits_for_no_reason() -> None:
    async with counted("1x1x80GiB") as it:
        await create(it.world, share("a"))
        await settle(0.1)
        waiting = {why: count for (why,), count in values(it.scheduler, "moorage_waiting_pods").items() if count}
        assert waiting == {ON_ITS_WAY: 1}


def test_what_was_never_counted_is_there_as_zero_so_that_a_rate_sees_the_first() -> None:
    scheduler, binder = Registry(), Registry()
    scheduling.SchedulingCounted(scheduler)
    binding.BindingCounted(binder)
    assert set(values(scheduler, "moorage_verdicts_total").values()) == {0}
    assert values(scheduler, "moorage_direct_binds_total")["Refused",] == 0
    assert values(binder, "moorage_binds_total")["ReservationSilent",] == 0
    counters = {metric.name for metric in (*scheduler.metrics, *binder.metrics)}
    assert counters < {metric.name for metric in (*SCHEDULER, *BINDER)}
