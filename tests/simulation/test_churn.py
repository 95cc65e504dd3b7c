"""Pods come and go: afterwards no table of the scheduler or the binder holds more than before.

Resident memory over 100,000 pods is measured by the bench (``python -m bench churn``); here what is kept is counted.
"""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import anyio
import msgspec
import pytest

from binder.app import Binder
from kube.client.api import Api
from kube.client.resources import PODS
from scheduler.app import Scheduler
from simulator.apiserver.transport import MemoryTransport
from simulator.clock import VirtualClock
from simulator.components import Parts
from simulator.nodes import shape
from simulator.replicas import SCHEDULER
from simulator.world import World, WorldSettings
from tests.scheduler.stage import TEAM, create, pod, share
from tests.whole import IS_WHOLE

VIRTUAL_TIME = True

pytestmark = pytest.mark.thorough

WAVES, WAVE = (5, 200) if IS_WHOLE else (4, 80)
#: What tables may differ by: some are kept a little larger than needed.
SLACK = 16
#: Longer than anybody may still speak of what is gone, and than a share may be waited for that nobody saw end.
_FORGOTTEN_WITHIN_S = 400
#: What is not theirs.
_BORDERS = (
    type,
    ModuleType,
    FunctionType,
    Api,
    MemoryTransport,
    asyncio.AbstractEventLoop,
    asyncio.Future,
    anyio.CancelScope,
)


def _sizes(root: object) -> dict[str, int]:
    """How much is in all tables of each kind that are reached from a component."""
    sizes: dict[str, int] = {}
    seen: set[int] = set()
    todo: list[Any] = [root]
    while todo:
        found = todo.pop()
        if id(found) in seen or isinstance(found, _BORDERS):
            continue
        seen.add(id(found))
        parts = list(_parts(found))
        if isinstance(found, dict | list | set | deque):
            nominee = next((type(part).__name__ for part in parts if isinstance(part, msgspec.Struct)), "plain")
            kind = f"{type(found).__name__} of {nominee}"
            sizes[kind] = sizes.get(kind, 0) + len(found)
        todo.extend(parts)
    return sizes


def _parts(found: Any) -> Iterator[Any]:
    if isinstance(found, msgspec.Struct):
        yield from (getattr(found, name) for name in found.__struct_fields__)
    else:
        yield from gc.get_referents(found)


async def _wave(world: World, number: int) -> None:
    """Shares, whole GPUs and pods that wait for ever; then all of them go."""
    pods = [share(f"w{number}-{i}", "0.25") for i in range(WAVE - 30)]
    pods += [pod(f"w{number}-whole-{i}", gpus=1) for i in range(20)]
    pods += [pod(f"w{number}-never-{i}", gpus=9) for i in range(10)]
    await create(world, *pods)
    await anyio.sleep(60)
    for each in pods:
        await world.api.delete(PODS, each["metadata"]["name"], namespace=TEAM)
    await anyio.sleep(_FORGOTTEN_WITHIN_S)
    assert world.pods == []


async def test_no_table_grows_with_the_pods_that_have_come_and_gone() -> None:
    binders: list[Binder] = []

    def binder(*arguments: Any, **named: Any) -> Binder:
        binders.append(Binder(*arguments, **named))
        return binders[-1]

    clock = VirtualClock(asyncio.get_running_loop())
    parts = Parts(binder=binder)
    async with World(shape.parse(["12x8x80GiB"]), clock=clock, settings=WorldSettings(seed=1), parts=parts) as world:
        for number in range(2):
            await _wave(world, number)
        scheduler = world.running[SCHEDULER]
        assert isinstance(scheduler, Scheduler)
        parts_of = {"scheduler": scheduler, "binder": binders[0]}
        before = {name: _sizes(component) for name, component in parts_of.items()}
        for number in range(2, WAVES):
            await _wave(world, number)
        grown = {
            f"{name}: {kind}": (before[name].get(kind, 0), size)
            for name, component in parts_of.items()
            for kind, size in _sizes(component).items()
            if size > before[name].get(kind, 0) + SLACK
        }
    assert grown == {}
