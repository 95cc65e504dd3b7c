"""What comes while the scheduler is busy is decided on together; what comes after a quiet time, at once."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from typing_extensions import override

from scheduler.app import Scheduler
from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import Plan
from scheduler.cycle import MOST_S, TIMES, BatchingWindow
from simulator.clock import VirtualTimeLoop
from simulator.components import Parts
from tests.scheduler.stage import create, phases, pod, settle, stage

LEAST_S = 0.004
TAKES_S = 0.02


@pytest.mark.parametrize(
    ("took_s", "after_s", "waits_s"),
    [
        (0.0, 0.0, LEAST_S),
        (0.001, 0.0, LEAST_S),
        (0.01, 0.0, TIMES * 0.01),
        (0.01, 0.01, TIMES * 0.01 - 0.01),
        (0.01, 60.0, LEAST_S),
        (5.0, 0.0, MOST_S),
    ],
)
def test_a_change_waits_by_what_the_last_decision_took(took_s: float, after_s: float, waits_s: float) -> None:
    gathering = BatchingWindow(LEAST_S)
    gathering.decided(0.0, took_s)
    assert gathering.left_s(took_s + after_s) == pytest.approx(waits_s)


def test_before_the_first_decision_a_change_waits_for_the_least_time() -> None:
    assert BatchingWindow(LEAST_S).left_s(0.0) == LEAST_S


class Busy(Cluster):
    """Takes its time for each decision that is not a repetition."""

    @override
    def decide(self, now_ns: int, *given: Any, **named: Any) -> Plan:
        if not self.is_decided(now_ns):
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualTimeLoop)
            loop.spend(TAKES_S)
        return super().decide(now_ns, *given, **named)


async def test_pods_that_keep_coming_are_decided_on_together_and_one_alone_at_once() -> None:
    made: list[Busy] = []

    def scheduler(api: Any, *, settings: Any, **given: Any) -> Scheduler:
        made.append(Busy(settings.decisions))
        return Scheduler(api, settings=settings, cluster=made[-1], **given)

    async with stage("4x8x80GiB", parts=Parts(scheduler=scheduler)) as world:
        await settle(10)
        before, count, each_s = made[-1].decisions, 30, 0.02
        for number in range(count):
            await create(world, pod(f"p{number}", gpus=1))
            await anyio.sleep(each_s)
        await settle(5)
        assert set(phases(world).values()) == {"Running"}
        assert made[-1].decisions - before <= 1.5 * count * each_s / (TAKES_S * (1 + TIMES)) + 5
        before = made[-1].decisions
        await create(world, pod("alone", gpus=1))
        await anyio.sleep(LEAST_S + TAKES_S + 0.02)
        assert made[-1].decisions == before + 1
