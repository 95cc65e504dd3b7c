"""Every row of the translation table that asks for GPUs, placed: what its containers finally saw is what the row says.

The third way that all rows are read, behind the offline translation (tests/gpu/dialects) and admission on the real API
server (tests/cluster/test_dialects.py): the real admission, scheduler, binder and reservations on simulated machines.
What is seen is counted by the checker's own arithmetic (simulator/checks/shares.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

import pytest

from gpu.request import ContainerKind, ContainerRef, ContainerRequest, FractionAsk, MemoryAsk, MigAsk, WholeAsk
from simulator.checks import facts
from simulator.checks.shares import Part, Placed
from tests.simulation.rowsplayed import Asking, Seen, asking_rows, play
from wire import names

pytestmark = pytest.mark.thorough

_NANO: Final = 10**9
_NO_MIG: Final = "didn't have enough of mig profile"
_MEMORY: Final = "didn't have enough resources: GPU memory"
_GPUS: Final = "didn't have enough resources: GPUs"
_UNKNOWN: Final = "have no known GPU with an index or UUID that the Pod accepts"

#: Rows that wait on this cluster, and what their pods say then. No card is shared on a node with slices.
WAITS: Final[Mapping[str, str]] = {
    "A1 beside a MIG slice": _NO_MIG,
    "A3 more than any card (waits)": _MEMORY,
    "A12 MiB in a cluster of GiB (waits, hint remains)": _MEMORY,
    "C1 beside a MIG slice": _NO_MIG,
    "C11 all of it": _UNKNOWN,
    "H12-uuids": _UNKNOWN,
    "M1 beside a MIG slice": _NO_MIG,
    "M6 more than a node has (waits)": _GPUS,
    "K4 more than any card (waits)": _MEMORY,
    "C4 as many as a container can be given": _GPUS,
    "C9 slices of MIG stay what they are": _GPUS,  # no node has whole GPUs and such slices
    "I8 what no entry names is whole, beside a replica a whole share": _NO_MIG,
    "I8 a resource without an entry": _NO_MIG,
    "I6 parts of a card and of a slice are of two devices": _NO_MIG,
    "I6 half a slice beside a whole one and a whole GPU in other containers": _NO_MIG,
    "I8 an entry that changes nothing": _NO_MIG,
    "I4 more than all replicas (waits)": _GPUS,
    "I5 more than a card (waits)": _MEMORY,
}
ROWS: Final = asking_rows()


def _placed(*dialects: str) -> list[Any]:
    """Rows that run, of all dialects where none is named."""
    return [
        pytest.param(row, id=name)
        for name, row in ROWS.items()
        if name not in WAITS and row.translation.dialect in (dialects or {row.translation.dialect})
    ]


PLACED: Final = _placed()


@pytest.fixture(scope="module")
def played() -> dict[str, Seen]:
    return play(ROWS)


def test_the_rows_that_wait_are_rows_of_the_table() -> None:
    assert ROWS.keys() >= WAITS.keys()


@pytest.mark.parametrize("name", WAITS)
def test_a_row_that_waits_says_why(name: str, played: dict[str, Seen]) -> None:
    assert not played[name].devices
    assert WAITS[name] in played[name].reason


@pytest.mark.parametrize("row", PLACED)
def test_a_container_sees_the_devices_of_its_row_and_no_others(row: Asking, played: dict[str, Seen]) -> None:
    seen = played[row.case.name]
    assert seen.reason == ""
    asked = {each.container.name: each for each in row.translation.request.containers}
    assert seen.devices.keys() == seen.env.keys()
    for name, devices in seen.devices.items():
        told = seen.env[name][names.ENV_VISIBLE_DEVICES]
        if name not in asked:
            assert (told, devices) == (names.VISIBLE_DEVICES_NONE, ())
            continue
        asks = asked[name].asks
        assert sorted(told.split(",")) == sorted(devices)
        assert len(devices) == len(asks)
        assert seen.assigned[name] == (devices if any(isinstance(ask, WholeAsk | MigAsk) for ask in asks) else ())


@pytest.mark.parametrize("row", PLACED)
def test_a_seat_is_one_device_which_is_charged_what_is_used_of_it_at_one_time(
    row: Asking, played: dict[str, Seen]
) -> None:
    seen = played[row.case.name]
    seats: dict[str, str] = {}
    parts: dict[str, tuple[Part, ...]] = {}
    for part, uuid in _parts(row, seen):
        assert seats.setdefault(part.seat, uuid) == uuid
        parts[uuid] = (*parts.get(uuid, ()), part)
    assert len(parts) == len(seats)
    placed = Placed(parts, seen.cards)
    charged = {uuid: placed.share(uuid).least_nano(seen.cards[uuid].mem_mib) for uuid in parts}
    assert {grant.uuid: grant.nano for grant in facts.pod(seen.pod).grants} == charged
    assert all(0 < nano <= _NANO for nano in charged.values())


@pytest.mark.parametrize("row", PLACED)
def test_apps_of_its_system_read_what_was_given(row: Asking, played: dict[str, Seen]) -> None:
    seen = played[row.case.name]
    told = _TOLD.get(row.translation.dialect)
    for asking in row.translation.request.containers if told else ():
        assert told is not None
        expected = told(row, seen, asking)
        found = {**seen.env[asking.container.name], **seen.pod["metadata"]["annotations"]}
        assert {key: found.get(key) for key in expected} == expected


# --- what a row says, on the devices that were seen -------------------------------------------------------------------


def _parts(row: Asking, seen: Seen) -> Iterator[tuple[Part, str]]:
    """Each share that is asked, with its device: a container's are told in the order of its asks."""
    number = 0
    for asking in row.translation.request.containers:
        for ask, uuid in zip(asking.asks, _told(asking.container, seen), strict=True):
            if isinstance(ask, (FractionAsk, MemoryAsk)):
                number += 1
                nano = ask.nano if isinstance(ask, FractionAsk) else 0
                assert seen.cards[uuid].profile == ask.profile
                mem_mib = ask.mem_mib if isinstance(ask, MemoryAsk) else 0
                ref = asking.container
                seat = ask.seat or f"/{number}"
                yield Part(ref.key, ref.name, seat, Fraction(nano, _NANO), mem_mib, asking.is_sidecar), uuid


def _told(container: ContainerRef, seen: Seen) -> list[str]:
    return seen.env[container.name][names.ENV_VISIBLE_DEVICES].split(",")


# --- what apps and tools of the systems read, as the systems' documents have it ---------------------------------------

Told = Callable[[Asking, Seen, ContainerRequest], dict[str, str]]


def _aliyun(row: Asking, seen: Seen, asking: ContainerRequest) -> dict[str, str]:
    """Cards by index; amounts in units of the cluster."""
    unit_mib = row.case.settings.aliyun.unit_mib
    amounts = [ask.mem_mib for ask in asking.asks if isinstance(ask, MemoryAsk)]
    if not amounts:
        return {}
    cards = [seen.cards[uuid] for uuid in _told(asking.container, seen)]
    return {
        "ALIYUN_COM_GPU_MEM_DEV": str(cards[0].mem_mib // unit_mib),
        "ALIYUN_COM_GPU_MEM_CONTAINER": str(sum(amounts) // unit_mib),
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
    }


def _clearml(_row: Asking, _seen: Seen, asking: ContainerRequest) -> dict[str, str]:
    """The share of one device to three places, or more where it has more; 1.000 for whole ones however many."""
    nanos = [ask.nano for ask in asking.asks if isinstance(ask, FractionAsk)] or [_NANO]
    if any(isinstance(ask, MemoryAsk) for ask in asking.asks):
        return {}
    return {"CLEARML_AGENT_GPU_FRACTIONS": ",".join(_decimal(nano) for nano in nanos)}


def _decimal(nano: int) -> str:
    text = f"{nano / _NANO:.9f}".rstrip("0")
    return text + "0" * max(0, 3 - len(text.partition(".")[2]))


def _metagpu(row: Asking, seen: Seen, asking: ContainerRequest) -> dict[str, str]:
    """One name a unit, with index and UUID of its card; a unit is worth the same whole part of each card's memory."""
    units = row.case.settings.metagpu.units
    shares = [ask.nano for ask in asking.asks if isinstance(ask, FractionAsk)]
    if not shares:
        return {}
    cards = [seen.cards[uuid] for uuid in _told(asking.container, seen)]
    counted = [(card, -(-nano * units // _NANO)) for card, nano in zip(cards, shares, strict=True)]
    return {
        "CNVRG_META_GPU_DEVICES": ",".join(
            f"cnvrg-meta-{card.index}-{number}-{card.uuid}" for card, count in counted for number in range(count)
        ),
        "METAGPU_MAX_MEM": str(sum(card.mem_mib // units * count for card, count in counted)),
    }


def _limits(_row: Asking, seen: Seen, asking: ContainerRequest) -> dict[str, str]:
    """HAMi-core's cap on the memory of each device, in MiB, in the order in which they are shown."""
    caps = {}
    for number, (ask, uuid) in enumerate(zip(asking.asks, _told(asking.container, seen), strict=True)):
        if isinstance(ask, (FractionAsk, MemoryAsk)):
            card_mib = seen.cards[uuid].mem_mib
            mib = ask.mem_mib if isinstance(ask, MemoryAsk) else ask.nano * card_mib // _NANO
            caps[f"CUDA_DEVICE_MEMORY_LIMIT_{number}"] = f"{mib}m"
            caps["CUDA_DEVICE_SM_LIMIT"] = str(ask.compute_percent)
    return caps


def _volcano_share(_row: Asking, seen: Seen, asking: ContainerRequest) -> dict[str, str]:
    amounts = [ask.mem_mib for ask in asking.asks if isinstance(ask, MemoryAsk)]
    if not amounts or asking.container.kind is ContainerKind.INIT:
        return {}
    card = seen.cards[_told(asking.container, seen)[0]]
    return {
        "volcano.sh/gpu-index": str(card.index),
        "VOLCANO_GPU_ALLOCATED": str(sum(amounts)),
        "VOLCANO_GPU_TOTAL": str(card.mem_mib),
    }


def _nvfractions(_row: Asking, seen: Seen, asking: ContainerRequest) -> dict[str, str]:
    """The devices of the container, by its name."""
    key = f"nvidia.com/container.{asking.container.name}.gpus.devices"
    return {key: ",".join(_told(asking.container, seen))}


_TOLD: Final[Mapping[str, Told]] = {
    "aliyun": _aliyun,
    "clearml": _clearml,
    "metagpu": _metagpu,
    "hami": _limits,
    "volcano": _limits,
    "volcano-share": _volcano_share,
    "nvfractions": _nvfractions,
}


@pytest.mark.parametrize("row", _placed("koordinator"))
def test_koordinators_tools_read_the_minors_of_the_devices(row: Asking, played: dict[str, Seen]) -> None:
    seen = played[row.case.name]
    if not any(True for _ in _parts(row, seen)):
        return
    told = json.loads(seen.pod["metadata"]["annotations"]["scheduling.koordinator.sh/device-allocated"])
    devices = list(dict.fromkeys(uuid for _, uuid in _parts(row, seen)))
    assert [each["minor"] for each in told["gpu"]] == [seen.cards[uuid].index for uuid in devices]


@pytest.mark.parametrize("row", _placed("aliyun"))
def test_aliyuns_indices_are_those_of_the_devices_seen(row: Asking, played: dict[str, Seen]) -> None:
    seen = played[row.case.name]
    for asking in row.translation.request.containers:
        if any(isinstance(ask, MemoryAsk) for ask in asking.asks):
            indices = ",".join(str(seen.cards[uuid].index) for uuid in _told(asking.container, seen))
            assert seen.env[asking.container.name]["ALIYUN_COM_GPU_MEM_IDX"] == indices
