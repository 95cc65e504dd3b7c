"""Whole ways of pods through a simulated cluster, as a collector is told them: one trace each, well formed."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from admission.tracing import PodTraces
from binder.app import Binder
from kube.client.resources import PODS
from kube.telemetry.tracing import Tracer
from runtime.tracing.exporter import Exporting
from scheduler.app import Scheduler
from simulator.apiserver.faults import Fault, once
from simulator.checks.violations import SOUND
from simulator.clock import VirtualClock
from simulator.components import Parts
from simulator.nodes import shape
from simulator.world import World, WorldSettings
from tests.scheduler.stage import create, create_gang, find, is_call, phases, pod, share
from tests.scheduler.test_leaders import LEASE, leader_of
from tests.tracing.collector import Collector, collecting
from tests.tracing.reading import ADMISSION, BINDER, SCHEDULER, assert_sound, names_of, the
from wire import names, traceparent

VIRTUAL_TIME = True

pytestmark = pytest.mark.thorough


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


@asynccontextmanager
async def traced(
    collector: Collector,
    *shapes: str,
    settings: WorldSettings | None = None,
    ratio_nano: int = traceparent.ALL,
    is_admitting: bool = True,
) -> AsyncIterator[World]:
    """A cluster whose components send what they trace to the collector; it has all of it when this ends."""
    clock = VirtualClock(asyncio.get_running_loop())
    sinks = {
        name: Exporting(f"{collector.url}/v1/traces", resource={"service.name": name}, headers={})
        for name in (ADMISSION, SCHEDULER, BINDER)
    }

    def scheduler(api: Any, **given: Any) -> Scheduler:
        return Scheduler(api, tracer=Tracer(sinks[SCHEDULER], clock=clock, ratio_nano=ratio_nano), **given)

    def binder(api: Any, **given: Any) -> Binder:
        return Binder(api, tracer=Tracer(sinks[BINDER], clock=clock, ratio_nano=ratio_nano), **given)

    admits = PodTraces(Tracer(sinks[ADMISSION], clock=clock, ratio_nano=ratio_nano), rng=random.Random(7))
    parts = Parts(scheduler=scheduler, binder=binder, traces=admits)
    if not is_admitting:
        parts = dataclasses.replace(parts, hooks=lambda _: ())
    made = settings or WorldSettings(seed=1)
    try:
        async with World(shape.parse(list(shapes) or ["1x2x80GiB"]), clock=clock, settings=made, parts=parts) as world:
            await anyio.sleep(1)  # the record of evictions is there
            yield world
            broken = {key: told for key, told in world.finish().items() if told not in SOUND}
            assert broken == {}
    finally:
        for sink in sinks.values():
            sink.close(60.0)
    assert sum(sink.counts()["exported"] for sink in sinks.values()) == len(collector.spans)


async def test_a_first_share_goes_through_the_binder(collector: Collector) -> None:
    async with traced(collector) as world:
        await create(world, share("first"))
        assert await world.until_idle()
    spans = collector.of("first")
    assert_sound(spans)
    attempt = the(spans, "attempt")
    assert attempt.service == BINDER
    assert attempt.attributes["gpus_nano"] == 500_000_000
    below = [span.name for span in spans if span.parent == attempt.span]
    assert below[0] == "reserve"
    assert {"verify", "bind", "drop-request"} <= set(below)
    assert the(spans, "reserve").end_ns - the(spans, "reserve").start_ns > 500_000_000, "a machine starts a pod"
    assert {"admit", "wait", "decide", "hand-over", "start", "pod"} <= set(names_of(spans))


async def test_each_pod_of_a_gang_has_a_trace_and_waits_for_the_others(collector: Collector) -> None:
    async with traced(collector, "2x2x80GiB") as world:
        await create_gang(world, "gang", 3, share("one", "0.9"), pod("two", gpus=1), pod("three", gpus=1))
        assert await world.until_idle()
        assert set(phases(world).values()) == {"Running"}
    for member in ("one", "two", "three"):
        spans = collector.of(member)
        assert_sound(spans)
        assert the(spans, "decide").attributes["kind"] == "gang"
        assert the(spans, "attempt").service == BINDER
    assert len({collector.of(member)[0].trace for member in ("one", "two", "three")}) == 3


async def test_why_a_pod_waits_are_events_of_its_wait(collector: Collector) -> None:
    async with traced(collector, "1x1x80GiB") as world:
        await create(world, pod("before", gpus=1))
        await world.until_idle()
        await create(world, pod("late", gpus=1))
        await anyio.sleep(20)
        await world.api.delete(PODS, "before", namespace="team-a")
        assert await world.until_idle()
        assert phases(world)["late"] == "Running"
    spans = collector.of("late")
    assert_sound(spans)
    wait = the(spans, "wait")
    assert wait.events == ("NoNodeFits",)
    assert wait.end_ns - wait.start_ns > 19e9


async def test_an_attempt_that_fails_and_the_next_one_are_in_one_trace(collector: Collector) -> None:
    async with traced(collector, "2x1x80GiB") as world:
        refused = Fault(refuse_with=403)
        world.server.faults.on_request.append(once(refused, when=is_call("scheduler", "create", "pods", "binding")))
        await create(world, pod("again", gpus=1))
        assert await world.until_idle()
        assert phases(world)["again"] == "Running"
    spans = collector.of("again")
    assert_sound(spans)
    attempts = [span for span in spans if span.name == "attempt"]
    assert [span.error for span in attempts] == ["Refused", ""]
    assert attempts[0].end_ns <= attempts[1].start_ns
    assert len([span for span in spans if span.name == "wait"]) == 2


@pytest.mark.parametrize("role", ["scheduler", "binder"])
async def test_a_leader_that_is_killed_midway_leaves_one_trace(collector: Collector, role: str) -> None:
    settings = WorldSettings(seed=2, schedulers=2, binders=2, election=LEASE)
    async with traced(collector, settings=settings) as world:
        await create(world, share("before"))
        assert await world.until_idle()
        await create(world, share("midway", "0.9"))
        await anyio.sleep(0.3)
        leader_of(world, role).crash()
        assert await world.until_idle()
        assert phases(world)["midway"] == "Running"
    spans = collector.of("midway")
    assert_sound(spans)
    assert {"admit", "decide", "attempt", "start", "pod"} <= set(names_of(spans))


@pytest.mark.parametrize("seed", range(2))
async def test_whoever_is_killed_and_when_each_pod_that_runs_has_one_trace(collector: Collector, seed: int) -> None:
    """The last seconds before a leader was lost may be told by two, as the same spans (docs/design/tracing.md)."""
    rng = random.Random(seed)
    settings = WorldSettings(seed=seed, schedulers=2, binders=2, election=LEASE, event_delay_s=0.05)
    made = [f"pod-{number}" for number in range(12)]
    async with traced(collector, "2x4x80GiB", settings=settings) as world:
        for name in made:
            wanted = share(name, rng.choice(["0.5", "0.25", "0.9"])) if rng.random() < 0.7 else pod(name, gpus=1)
            await create(world, wanted)
            await anyio.sleep(2 * rng.random())
            if rng.random() < 0.25:
                leader_of(world, rng.choice(["scheduler", "binder"])).crash()
        await world.until_idle(limit_s=600)
        run = [name for name, phase in phases(world).items() if phase == "Running"]
    assert len(run) >= len(made) // 2
    for name in run:
        assert_sound(list({span.span: span for span in collector.of(name)}.values()))


@pytest.mark.parametrize("annotation", ["", "nonsense", "00-" + "0" * 32 + "-" + "1" * 16 + "-01", "x" * 100_000])
async def test_a_pod_that_admission_did_not_see_is_traced_by_its_uid(collector: Collector, annotation: str) -> None:
    async with traced(collector, is_admitting=False) as world:
        made = pod("unseen", gpus=1)
        if annotation:
            made["metadata"]["annotations"][names.TRACEPARENT] = annotation
        await create(world, made)
        assert await world.until_idle()
        uid = find(world, "unseen")["metadata"]["uid"]
    spans = collector.of("unseen")
    assert_sound(spans)
    assert "admit" not in names_of(spans)
    assert the(spans, "pod").attributes["pod_uid"] == uid
