"""What a scheduler and a binder count while they work, in a whole simulated cluster."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client.exposition import generate_latest

from binder.app import Binder
from kube.client.api import Api
from nodeagent.core.enforcement.caps import Tenancy
from nodeagent.core.enforcement.overuse import MIB, Device, Process, Sample
from nodeagent.core.enforcement.tenants import Measures, measures
from runtime.metrics import scheduler as scheduling
from runtime.metrics.declared import BINDER, COMPONENTS, SCHEDULER, Kind, Metric, gauge
from runtime.metrics.nodeagent import COMPAT, HAMI, METAGPU, show_compat
from runtime.metrics.registry import Registry
from runtime.processes import binder as binding
from scheduler.app import Scheduler
from scheduler.core.report.fragmentation import Cause
from scheduler.report.state import ON_ITS_WAY
from simulator.clock import VirtualClock
from simulator.components import Parts
from simulator.nodes import shape
from simulator.world import World, WorldSettings
from tests.runtime.metrics.exposed import every_sample_once, value, values
from tests.scheduler.stage import create, create_gang, pod, settle, share
from tools.metricspage import PAGE, rendered

VIRTUAL_TIME = True

NANO = 1_000_000_000


class Counted:
    """A cluster whose components are counted."""

    def __init__(self, shapes: Sequence[str]) -> None:
        self.scheduler, self.binder = Registry(), Registry()
        parts = Parts(scheduler=self.make_scheduler, binder=self.make_binder)
        clock = VirtualClock(asyncio.get_running_loop())
        self.world = World(shape.parse(shapes), clock=clock, settings=WorldSettings(seed=1), parts=parts)

    def make_scheduler(self, api: Api, **given: Any) -> Scheduler:
        made = Scheduler(api, **given, emit=scheduling.SchedulerMetrics(self.scheduler).take)
        scheduling.show_state(self.scheduler, made.state)
        return made

    def make_binder(self, api: Api, **given: Any) -> Binder:
        made = Binder(api, **given, emit=binding.BinderMetrics(self.binder).take)
        binding.show_state(self.binder, made.state)
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
    scheduling.SchedulerMetrics(scheduler)
    binding.BinderMetrics(binder)
    assert set(values(scheduler, "moorage_verdicts_total").values()) == {0}
    assert values(scheduler, "moorage_direct_binds_total")["Refused",] == 0
    assert values(binder, "moorage_binds_total")["ReservationSilent",] == 0
    counters = {metric.name for metric in (*scheduler.metrics, *binder.metrics)}
    assert counters < {metric.name for metric in (*SCHEDULER, *BINDER)}


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_metric_of_a_component_is_declared_once_and_told(component: str) -> None:
    metrics = COMPONENTS[component]
    assert [name for name, times in Counter(metric.name for metric in metrics).items() if times > 1] == []
    for metric in metrics:
        assert metric.help.endswith(".")
        assert all(metric.labels.values())


def test_what_two_components_call_the_same_is_the_same() -> None:
    by_name: dict[str, Metric] = {}
    for metrics in COMPONENTS.values():
        for metric in metrics:
            assert by_name.setdefault(metric.name, metric) == metric


@pytest.mark.parametrize("component", COMPONENTS)
def test_no_label_names_a_pod_a_user_a_namespace_or_a_node(component: str) -> None:
    labels = {label for metric in COMPONENTS[component] for label in metric.labels}
    assert not labels & {"pod", "user", "namespace", "node", "name", "uid", "group", "instance", "job"}


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        ({"name": "moorage_things", "kind": Kind.COUNTER}, "counters end in _total"),
        ({"name": "moorage_things_total"}, "counters end in _total"),
        ({"name": "things"}, "moorage_... or kai_..."),
        ({"name": "moorage_Things"}, "moorage_... or kai_..."),
        ({"labels": {"le": "x"}}, "labels are snake_case"),
        ({"labels": {"Kind": "x"}}, "labels are snake_case"),
        ({"kind": Kind.HISTOGRAM}, "rising buckets"),
        ({"kind": Kind.HISTOGRAM, "buckets": (2.0, 1.0)}, "rising buckets"),
        ({"buckets": (1.0,)}, "rising buckets"),
    ],
    ids=str,
)
def test_what_prometheus_would_not_call_so_is_refused(declared: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Metric(**{"name": "moorage_things", "kind": Kind.GAUGE, "help": "Things.", **declared})


def test_nothing_is_counted_as_another_kind_than_it_is_declared() -> None:
    with pytest.raises(ValueError, match="moorage_things is declared as a gauge, not as a counter"):
        Registry().counter(gauge("moorage_things", "Things."))


def test_nothing_is_counted_twice_under_one_name() -> None:
    registry, metric = Registry(), gauge("moorage_things", "Things.")
    registry.gauge(metric)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.gauge(metric)


HELD = [
    Tenancy("uid-p", "team/p", "GPU-1", 250_000_000, 1000, 1500),
    Tenancy("uid-q", "team/q", "GPU-1", 500_000_000, 2000),
]
MINE = Process(1, 1, 900 * MIB, 10, "uid-p"), Process(2, 1, None, None, "uid-q")
FOUND = measures(Sample(0, (Device("GPU-1", 4000 * MIB, 1000 * MIB, MINE, 40),)), HELD)
DEVICE = '{device_index="3",device_uuid="GPU-1",node_name="n1",resource_name="nvidia.com/gpu"}'


def tenant(pod: str) -> str:
    labels = {
        "cmdline": "-", "node_name": "n1", "pid": "-", "pod_name": pod, "pod_namespace": "team",
        "resource_name": "nvidia.com/gpu", "user": "-", "uuid": "GPU-1",
    }  # fmt: skip
    return "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"


def hami(pod: str) -> str:
    return f'{{container="-",device_uuid="GPU-1",namespace="team",pod="{pod}",vdevice_index="-"}}'


def shown(*systems: str, found: Measures = FOUND) -> set[str]:
    registry = Registry()
    show_compat(registry, systems, lambda: found, node="n1", index_of={"GPU-1": 3}.get)
    assert {metric.name for metric in registry.metrics} <= {metric.name for metric in COMPAT}
    lines = generate_latest(registry.collectors).decode().splitlines()
    return {line for line in lines if line.startswith(("hami_", "metagpu_"))}


def test_hamis_names_have_memory_and_cap_of_each_tenant() -> None:
    assert shown(HAMI) == {
        f"hami_vgpu_memory_used_bytes{hami('p')} 9.437184e+08",
        f"hami_vgpu_memory_limit_bytes{hami('p')} 1.572864e+09",
    }


def test_metagpus_names_have_devices_and_what_tenants_use_of_their_shares() -> None:
    assert shown(METAGPU) == {
        f"metagpu_device_shares{DEVICE} 100.0",
        f"metagpu_device_memory_total{DEVICE} 4000.0",
        f"metagpu_device_memory_free{DEVICE} 3000.0",
        f"metagpu_device_memory_used{DEVICE} 1000.0",
        f"metagpu_device_memory_share_size{DEVICE} 40.0",
        f"metagpu_process_max_allowed_metagpu_memory{tenant('p')} 1000.0",
        f"metagpu_process_absolute_gpu_utilization{tenant('p')} 10.0",
        f"metagpu_process_metagpu_relative_gpu_utilization{tenant('p')} 40.0",
        f"metagpu_process_memory_usage{tenant('p')} 900.0",
        f"metagpu_process_metagpu_relative_memory_utilization{tenant('p')} 90.0",
        f"metagpu_process_max_allowed_metagpu_memory{tenant('q')} 2000.0",
    }


@pytest.mark.parametrize("systems", [(), (HAMI, METAGPU)])
def test_without_an_enforcer_or_without_a_wish_there_is_nothing(systems: tuple[str, ...]) -> None:
    assert shown(*systems, found=FOUND if not systems else Measures()) == set()


def test_the_page_tells_every_metric_as_it_is_declared() -> None:
    assert PAGE.read_text() == rendered(PAGE.read_text()), "renew it: make metrics"
