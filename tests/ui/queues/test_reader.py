"""What is read of a cluster for an explanation."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from kube.client.resources import CONFIG_MAPS, QUEUES
from runtime.options.selection import POD
from scheduler.core.model.settings import Settings
from scheduler.core.preemption import eviction_history
from scheduler.core.preemption.eviction_history import KEY, PIECES, Hour, Piece, Taken
from scheduler.core.preemption.nomination_record import Record, Texts, written
from scheduler.settings import SchedulerSettings
from simulator.world import WorldSettings
from tests.conftest import AnyioBackend
from tests.scheduler import stage
from ui.queues import reader
from ui.queues.pools import About
from wire import names

#: Its scheduler keeps no record of its own.
NO_ROOM = WorldSettings(seed=1, scheduler=SchedulerSettings(decisions=Settings(preemption=False)))
WALL_S = 1_767_225_700


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


@pytest.mark.parametrize("pool", ["", "blue"])
async def test_the_record_of_evictions_is_that_of_the_scheduler_that_decides(pool: str) -> None:
    async with stage.stage("1x2x80GiB", settings=NO_ROOM) as world:
        for of in ("", "blue"):
            metadata = {"name": of or "default-queue", "labels": {names.NODE_POOL_LABEL: of} if of else {}}
            await world.api.create(QUEUES, {"metadata": metadata, "spec": {}})
        await _create_record(world, f"-{pool}" if pool else "")
        await stage.create(world, stage.pod("plain"), _labelled(stage.pod("labelled")))
        await anyio.sleep(1.0)
        made: dict[str, tuple[bool, set[str]]] = {}
        for name in ("plain", "labelled"):
            about = About(kind=POD, name=name, namespace=stage.TEAM)
            known = await reader.read(world.api, wall_s=WALL_S, about=about)
            made[name] = known.snapshot.settings.preemption, set(known.snapshot.room_facts.evicted)
        has: tuple[bool, set[str]] = (True, {"owner"})
        none: tuple[bool, set[str]] = (False, set())
        assert made == ({"plain": none, "labelled": has} if pool else {"plain": has, "labelled": none})


async def _create_record(world: Any, suffix: str) -> None:
    piece = Piece(Hour().at(WALL_S).number, {"team": Taken({"owner": (WALL_S - 10,)})})
    at = f"{names.EVICTIONS}-{piece.number % PIECES}{suffix}"
    texts = (
        (f"{names.NOMINATIONS}{suffix}", "room", written(Record())),
        (at, KEY, eviction_history.written(piece, Texts())),
    )
    for name, key, text in texts:
        record = {"metadata": {"name": name}, "data": {key: text}}
        await world.api.create(CONFIG_MAPS, record, namespace=names.SYSTEM_NAMESPACE)


def _labelled(pod: dict[str, Any]) -> dict[str, Any]:
    pod["metadata"]["labels"] = {names.NODE_POOL_LABEL: "blue"}
    return pod
