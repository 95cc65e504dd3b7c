"""Which devices pods get that ask for several, of unequal sizes or of several kinds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu.request import FractionAsk, MemoryAsk
from scheduler.core.model.plan import Alone
from scheduler.core.model.settings import Settings, Strategy
from tests.scheduler.core.objects import NANO, cluster, node, reservation
from tests.scheduler.core.stories.test_slices import LARGE, SLICE, asking

_SPREAD = Settings(gpu_strategy=Strategy.SPREAD)


def _share(percent: int, profile: str = "") -> FractionAsk:
    return FractionAsk(percent * NANO // 100, profile=profile)


def _held(name: str, on: str = "n1", *, free: int, mem_mib: int = 0, resource: str = "nvidia.com/gpu") -> Any:
    """A shared device with so many percent free."""
    book = {f"of-{name}": (100 - free) * NANO // 100} if free < 100 else {}
    return reservation(name, on, book=book, uuid=f"GPU-{name}", mem_mib=mem_mib, resource=resource)


@pytest.mark.parametrize(
    ("objects", "asks", "settings", "expected"),
    [
        pytest.param(
            [node(gpus=2), _held("a", free=90), _held("b", free=50)],
            (_share(10), _share(80)),
            _SPREAD,
            ["b", "a"],
            id="the largest ask chooses first",
        ),
        pytest.param(
            [node(gpus=2, mem_mib=80_000), _held("a", free=90, mem_mib=80_000), _held("b", free=50, mem_mib=80_000)],
            (MemoryAsk(10_000), MemoryAsk(60_000)),
            _SPREAD,
            ["b", "a"],
            id="the largest amount of memory chooses first",
        ),
        pytest.param(
            [node(gpus=2), _held("a", free=50), _held("b", free=20)],
            (_share(50), _share(10)),
            None,
            ["a", "b"],
            id="a smaller ask needs no device as large as the first",
        ),
        pytest.param(
            [node(gpus=2), _held("a", free=50, mem_mib=40_000), _held("b", free=60)],
            (_share(50), MemoryAsk(10_000)),
            None,
            ["b", "a"],
            id="memory goes where it is known how much there is",
        ),
        pytest.param(
            [
                node(gpus=0, extended={SLICE: 1, LARGE: 1}),
                _held("c", free=90, resource=LARGE),
                _held("s", free=20, resource=SLICE),
            ],
            (_share(90, "3g.40gb"), _share(20, "1g.10gb")),
            None,
            ["c", "s"],
            id="each kind of device has its own asks",
        ),
        pytest.param(
            [
                node(gpus=0, extended={SLICE: 1, LARGE: 1}),
                _held("c", free=20, resource=LARGE),
                _held("s", free=90, resource=SLICE),
            ],
            (_share(20, "3g.40gb"), _share(90, "1g.10gb")),
            None,
            ["c", "s"],
            id="each kind of device has its own asks, the slice the larger",
        ),
        pytest.param(
            [
                *(node("n1", 2), _held("a50", "n1", free=50), _held("a90", "n1", free=90)),
                *(node("n2", 4), _held("b50", "n2", free=50), _held("b60", "n2", free=60)),
            ],
            (_share(50), _share(50)),
            None,
            ["b50", "b60"],
            id="the tightest devices in all decide, not the tightest one",
        ),
        pytest.param([node(gpus=1)], (_share(10),), None, ["new"], id="the last device is opened"),
        pytest.param(
            [node(gpus=0, extended={SLICE: 1, LARGE: 1})],
            (_share(10, "3g.40gb"), _share(10, "1g.10gb")),
            None,
            ["new", "new"],
            id="the last of each kind is opened",
        ),
        pytest.param(
            [node(gpus=2), _held("a", free=40), _held("b", free=40)],
            (_share(50),),
            None,
            [],
            id="no device has room, and none is left to open",
        ),
    ],
)
def test_of_several_devices_each_ask_gets_one_that_holds_it(
    objects: list[Any], asks: tuple[Any, ...], settings: Settings | None, expected: list[str]
) -> None:
    known = {name for each in objects for name in [each.metadata.name.split("-")[2:3]] for name in name}
    made = cluster(*objects, asking(*asks), settings=settings)
    placed = [entry.placement for entry in made.decide(0).entries if isinstance(entry, Alone)]
    groups = [device.group if device.group in known else "new" for each in placed for device in each.devices]
    assert groups == expected


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        ({"cpu": "1500m"}, []),
        ({"cpu": "2"}, ["new", "new"]),
        ({"memory": "1500Mi"}, []),
        ({"memory": "2000Mi"}, ["new", "new"]),
        ({"pods": 2}, []),
        ({"pods": 3}, ["new", "new"]),
    ],
)
def test_a_share_and_an_amount_of_memory_open_as_many_devices_as_have_room_for_their_reservations(
    amounts: dict[str, Any], expected: list[str]
) -> None:
    """Which nodes are looked at is too hopeful there: each of the two could have the one device that may be opened."""
    requests = {"cpu": "1", "memory": "1000Mi"}
    waiting = asking(_share(50), MemoryAsk(10_000))
    resources = msgspec.structs.replace(waiting.spec.containers[0].resources, requests=requests)
    first = msgspec.structs.replace(waiting.spec.containers[0], resources=resources)
    spec = msgspec.structs.replace(waiting.spec, containers=[first, *waiting.spec.containers[1:]])
    there = node(mem_mib=40_000, **amounts)
    settings = Settings(reservation_cpu_milli=500, reservation_mem_mib=500)
    made = cluster(there, msgspec.structs.replace(waiting, spec=spec), settings=settings)
    placed = [entry.placement for entry in made.decide(0).entries if isinstance(entry, Alone)]
    assert ["new" for each in placed for _ in each.devices] == expected
