"""Tenants that create the largest and the most different pods that the API server stores, and one that wants its turn.

Each pod of the crowd asks something else and fits nowhere, so none is decided on like another. Some are as large as
are decided on, some larger. When all of them wait, a tenant of another namespace creates a pod that fits: what it
costs until it runs, and the longest turn before, are judged (verification/hostile/metering.py).
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

import anyio

from kube.client import errors
from kube.client.api import Api
from kube.client.resources import PODS
from scheduler.core.model.settings import Settings
from scheduler.settings import SchedulerSettings
from simulator.clock import VirtualClock, VirtualTimeLoop
from simulator.components import PRODUCT, Parts
from simulator.nodes import shape
from simulator.world import World, WorldSettings
from verification.hostile.actions import CreatePod
from verification.hostile.metering import Budget, Meter

#: Measured beside 600 pods: 394,000 in a turn and 11,800 for a pod, as beside 30 (on 2026-11-23).
BUDGET: Final = Budget(turn=600_000, pod=16_000)
#: Where pods are evicted for others. A pod that no empty node holds is searched for once: measured beside 300 pods,
#: 16,700 for a pod (209,000 where room was searched again for each that waits; on 2026-11-27).
WITH_ROOM: Final = Budget(turn=600_000, pod=24_000)

_NAMESPACES: Final = ("greedy-a", "greedy-b", "greedy-c")
_SMALL: Final = "modest"
_CALM_S: Final = 900.0
_RUNS_S: Final = 60.0


def crowded(
    pods: int, *, budget: Budget = BUDGET, parts: Parts = PRODUCT, seed: int = 0, makes_room: bool = False
) -> Meter:
    """Run a cluster beside ``pods`` pods that wait; return what was counted.

    ``makes_room``: room is looked for; none of the crowd needs another search when a pod starts.
    """
    meter = Meter(budget)
    settings = WorldSettings(scheduler=SchedulerSettings(decisions=Settings(makes_room=makes_room)))

    async def live() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        async with World(shape.parse(["4x4x80GiB"]), clock=clock, settings=settings, parts=parts) as world:
            with meter.counting():
                await _crowd(world.api, pods, random.Random(seed))
                await anyio.sleep(_CALM_S)
                await _modest(world.api, "first")
                with meter.of_one_pod(f"{_SMALL}/second"):
                    await _modest(world.api, "second")

    anyio.run(live, backend_options={"loop_factory": VirtualTimeLoop})
    return meter


async def _crowd(api: Api, pods: int, rng: random.Random) -> None:
    for number in range(pods):
        body = _different(number) if number % 10 else _largest(number, rng)
        try:
            await api.create(PODS, body, namespace=_NAMESPACES[number % len(_NAMESPACES)])
        except errors.ApiError:
            continue


def _different(number: int) -> dict[str, Any]:
    """Eight devices of which no node has as many, in a part and with CPU that nobody else asks."""
    annotations = {"gpu-fraction": f"0.{500 + number}", "gpu-fraction-num-devices": "8"}
    return CreatePod(at_s=0, name=f"p-{number}", annotations=annotations, cpu_milli=number + 1).manifest


def _largest(number: int, rng: random.Random) -> dict[str, Any]:
    """Nearly as many labels and names of resources as are decided on; every other one has too many for admission."""
    too_many = number % 20 == 0
    body = CreatePod(at_s=0, name=f"p-{number}", gpus=64, cpu_milli=number + 1).manifest
    labels = {f"example.com/l{rng.getrandbits(32):x}": str(index) for index in range(20_000 if too_many else 250)}
    body["metadata"]["labels"] = labels
    asked = {f"example.com/r{number}-{index}": "1" for index in range(15_000 if too_many else 90)}
    body["spec"]["containers"][0]["resources"]["limits"].update(asked)
    return body


async def _modest(api: Api, name: str) -> None:
    """Create a pod that fits, and wait until it runs. Raises TimeoutError where it does not."""
    body = CreatePod(at_s=0, name=name, annotations={"gpu-fraction": "0.5"}).manifest
    await api.create(PODS, body, namespace=_SMALL)
    with anyio.fail_after(_RUNS_S):
        while (await api.get(PODS, name, namespace=_SMALL)).status.phase != "Running":  # noqa: ASYNC110 - polled as a user does
            await anyio.sleep(0.1)
