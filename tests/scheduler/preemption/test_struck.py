"""The real scheduler makes room, and is struck at each single write of it, in every way a write can go wrong.

Whatever was struck: the nominated pod runs in the end, the victims and nobody else are gone, what is free can be used,
nothing is written while there is nothing to do, and nothing is left over (tests/simulation/playing.py).
"""

from __future__ import annotations

import functools
import os
from typing import Any

import msgspec
import pytest

from kube.client.resources import PRIORITY_CLASSES, QUEUES
from scheduler.core.model.settings import Settings
from scheduler.settings import SchedulerSettings
from simulator.world import World, WorldSettings
from tests.scheduler.stage import create, create_gang, pod, share
from tests.simulation.playing import play
from tests.simulation.scenarios import RUNS, Scenario
from tests.simulation.striking import BLOWS, Blow, Write
from wire import names

IS_FULL = bool(os.environ.get("MOORAGE_ENUMERATE"))
#: By how much watch events are late at most.
LATE_S = (0.0, 0.5) if IS_FULL else (0.0,)
SETTINGS = WorldSettings(seed=1, scheduler=SchedulerSettings(decisions=Settings()))
DEADLIEST = {"killed before", "killed after", "killed, lands late", "times out, lands late", "refused with 409"}


def of(queue: str, wanted: dict[str, Any], **spec: Any) -> dict[str, Any]:
    wanted["metadata"]["labels"] = {names.QUEUE_LABEL: queue}
    wanted["spec"] |= spec
    return wanted


def urgent(wanted: dict[str, Any]) -> dict[str, Any]:
    return of("default-queue", wanted, priorityClassName="urgent")


async def two_queues(world: World) -> None:
    """Queue a is due nothing, and b is due all of it."""
    for name, quota in (("a", 0), ("b", 8), (names.DEFAULT_QUEUE, 8)):
        gpu = {"quota": quota, "limit": -1, "overQuotaWeight": 1}
        rest = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        resources = {"gpu": gpu, "cpu": rest, "memory": rest}
        await world.api.create(QUEUES, {"metadata": {"name": name}, "spec": {"resources": resources}})


def before(*pods: dict[str, Any]) -> Any:
    async def act(world: World) -> None:
        await world.api.create(PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 90})
        await two_queues(world)
        await create(world, *(msgspec.json.decode(msgspec.json.encode(each)) for each in pods))

    return act


def coming(*pods: dict[str, Any], gang: int = 0) -> Any:
    async def act(world: World) -> None:
        made = [msgspec.json.decode(msgspec.json.encode(each)) for each in pods]
        if gang:
            await create_gang(world, "g", gang, *made)
        else:
            await create(world, *made)

    return act


SCENARIOS = (
    Scenario(
        name="preempt",
        shapes=("1x1x80GiB",),
        before=before(pod("old", gpus=1)),
        act=coming(urgent(pod("h", gpus=1))),
        ends={"h": RUNS},
        settings=SETTINGS,
    ),
    Scenario(
        name="reclaim",
        shapes=("1x2x80GiB",),
        before=before(of("a", pod("old", gpus=2))),
        act=coming(of("b", pod("h", gpus=1))),
        ends={"h": RUNS},
        probe=(of("b", pod("probe", gpus=1)),),
        settings=SETTINGS,
    ),
    Scenario(
        name="two takers of one decision",
        shapes=("2x1x80GiB",),
        before=before(pod("old0", gpus=1), pod("old1", gpus=1)),
        act=coming(urgent(pod("h", gpus=1)), urgent(pod("i", gpus=1))),
        ends={"h": RUNS, "i": RUNS},
        settings=SETTINGS,
    ),
    Scenario(
        name="a gang takes",
        shapes=("1x2x80GiB",),
        before=before(pod("old0", gpus=1), pod("old1", gpus=1)),
        act=coming(urgent(pod("m0", gpus=1)), urgent(pod("m1", gpus=1)), gang=2),
        ends={"m0": RUNS, "m1": RUNS},
        settings=SETTINGS,
    ),
    Scenario(
        name="a share takes a share",
        shapes=("1x1x80GiB",),
        before=before(share("old"), share("stays", "0.4")),
        act=coming(urgent(share("h"))),
        ends={"h": RUNS, "stays": RUNS},
        settings=SETTINGS,
    ),
    Scenario(
        name="a whole GPU takes all shares of one",
        shapes=("1x1x80GiB",),
        before=before(share("old0"), share("old1")),
        act=coming(urgent(pod("h", gpus=1))),
        ends={"h": RUNS},
        settings=SETTINGS,
    ),
)


@functools.cache
def recorded(scenario: int, late_s: float = 0.0) -> tuple[Write, ...]:
    played = play(SCENARIOS[scenario], late_s=late_s)
    assert played.wrong == [], played.told(f"{SCENARIOS[scenario].name}, undisturbed")
    return tuple(played.writes)


def struck(scenario: int, blow: Blow, late_s: float) -> list[int]:
    """Numbers of the writes to strike; events are news for people."""
    worthy = [at for at, write in enumerate(recorded(scenario, late_s)) if write.what != "events"]
    stride = 1 if IS_FULL else 8 if blow.name in DEADLIEST else 32
    return worthy[BLOWS.index(blow) % min(stride, len(worthy)) :: stride]


@pytest.mark.parametrize("scenario", range(len(SCENARIOS)), ids=lambda number: SCENARIOS[number].name)
def test_who_goes_is_written_first_and_goes_once(scenario: int) -> None:
    writes = [write.what for write in recorded(scenario) if write.what in {"configmaps", "pods/eviction"}]
    assert writes[0] == "configmaps"
    assert "pods/eviction" in writes
    victims = [write.whom for write in recorded(scenario) if write.what == "pods/eviction"]
    assert len(set(victims)) == len(victims)


@pytest.mark.thorough
@pytest.mark.parametrize("late_s", LATE_S, ids=lambda late_s: f"late {late_s}")
@pytest.mark.parametrize("blow", BLOWS, ids=lambda blow: blow.name)
@pytest.mark.parametrize("scenario", range(len(SCENARIOS)), ids=lambda number: SCENARIOS[number].name)
def test_a_struck_write_makes_no_difference_in_the_end(scenario: int, blow: Blow, late_s: float) -> None:
    told = []
    for at in struck(scenario, blow, late_s):
        played = play(SCENARIOS[scenario], blow, at, late_s=late_s)
        if wrong := played.wrong:
            told.append(
                msgspec.structs.asdict(recorded(scenario, late_s)[at]).__str__()
                + "\n"
                + "\n".join([*wrong, *played.log])
            )
    assert not told, "\n".join(told)
