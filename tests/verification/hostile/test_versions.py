"""Replicas of an older version: what reaches them of a newer book, what comes back, and that pods get their places."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from binder.settings import BinderSettings
from gpu import bind_request, book, record
from gpu.book import Entry, MalformedBook
from gpu.limits import MemoryCaps
from gpu.translation import Refusal
from kube.client.resources import PODS
from kube.client.transport import JSON, Response
from scheduler.settings import SchedulerSettings
from simulator.apiserver.transport import HEADERS
from tests.verification.hostile.faults.grounds import NAMESPACE, Stage, stage
from verification.hostile.faults.processes import OlderVersion
from verification.hostile.versions import FIELDS
from verification.hostile.versions import OlderVersion as OlderWire
from wire import names

VIRTUAL_TIME = True

PLAIN = {"nano": 5, "attempt": "a", "rv": "7", "since": 1, "pod": "team/p"}
FULL = {**PLAIN, "grace_s": 60, "mode": "mps", "compute_percent": 50, "cap_mib": 1024, "cap_nano": 7}
HALF = 500_000_000
CAPS = ("cap_mib", "cap_nano")
RECORD = {"version": 1, "dialect": "hami", "asks": [{"container": "c0", "name": "main", "nano": 500_000_000}]}


def text(said: object) -> str:
    return json.dumps(said, separators=(",", ":"))


@dataclass
class Stored:
    """A server with one object, which it replaces by what is sent."""

    annotations: dict[str, str]
    lines: list[bytes] = field(default_factory=list)

    async def request(self, method: str, path: str, **rest: Any) -> Response:
        if rest.get("body"):
            self.annotations = msgspec.json.decode(rest["body"])["metadata"]["annotations"]
        return Response(200, HEADERS, msgspec.json.encode({"metadata": {"annotations": self.annotations}}))

    def stream(
        self, path: str, *, query: Mapping[str, str], accept: str = JSON, timeout_s: float
    ) -> AbstractAsyncContextManager[tuple[Response, AsyncIterator[bytes]]]:
        return self._stream()

    @asynccontextmanager
    async def _stream(self) -> AsyncIterator[tuple[Response, AsyncIterator[bytes]]]:
        async def lines() -> AsyncIterator[bytes]:
            yield msgspec.json.encode({"type": "ADDED", "object": {"metadata": {"annotations": self.annotations}}})

        yield Response(200, HEADERS, b""), lines()


async def read(stored: Stored, lacks: tuple[str, ...] = FIELDS) -> dict[str, str]:
    answer = await OlderWire(stored, lacks).request("GET", "/x", query={}, timeout_s=1)
    listed = msgspec.json.decode(answer.body)["metadata"]["annotations"]
    async with OlderWire(stored, lacks).stream("/x", query={}, timeout_s=1) as (_, lines):
        watched = [msgspec.json.decode(line)["object"]["metadata"]["annotations"] async for line in lines]
    assert watched == [listed]
    return dict(listed)


@pytest.mark.parametrize("lacks", [FIELDS[-1:], FIELDS[-2:], FIELDS])
async def test_a_newer_book_says_what_the_older_version_does_not_know(lacks: tuple[str, ...]) -> None:
    seen = await read(Stored({names.TENANTS: text({"u": PLAIN, "v": FULL})}), lacks)
    assert json.loads(seen[names.TENANTS])["u"] == PLAIN
    assert set(json.loads(seen[names.TENANTS])["v"]) - set(Entry.__struct_fields__) == {
        f"later_{name}" for name in lacks
    }
    with pytest.raises(MalformedBook):
        book.parse(seen[names.TENANTS])


async def test_a_book_without_the_newer_fields_is_read_as_it_is() -> None:
    assert (await read(Stored({names.TENANTS: text({"u": PLAIN})})))[names.TENANTS] == text({"u": PLAIN})


async def write(stored: Stored, annotations: dict[str, str]) -> None:
    body = msgspec.json.encode({"metadata": {"annotations": annotations}})
    await OlderWire(stored, FIELDS).request("PATCH", "/x", query={}, body=body, timeout_s=1)


async def test_what_is_kept_of_an_unknown_field_arrives_as_it_was() -> None:
    stored = Stored({names.TENANTS: text({"v": FULL})})
    await write(stored, await read(stored))
    assert stored.annotations == {names.TENANTS: text({"v": FULL})}


async def test_what_is_dropped_of_an_unknown_field_is_lost_and_the_older_version_writes_none_of_its_own() -> None:
    stored = Stored({names.TENANTS: text({"v": FULL})})
    kept = {
        name: value for name, value in json.loads((await read(stored))[names.TENANTS])["v"].items() if name in PLAIN
    }
    await write(stored, {names.TENANTS: text({"v": kept, "w": FULL})})
    assert stored.annotations == {names.TENANTS: text({"v": PLAIN, "w": PLAIN})}


async def test_a_hand_over_and_a_record_that_ask_for_more_are_left_to_a_newer_version() -> None:
    device = bind_request.PlannedDevice("g", 5, mode="mps")
    seen = await read(
        Stored(
            {
                names.HANDOVER: bind_request.render(bind_request.Handover("7", (device,))),
                names.GPU_RECORD: text({**RECORD, "wishes": {"mode": "mps"}}),
            }
        )
    )
    with pytest.raises(bind_request.MalformedHandover, match="later_mode is not known here"):
        bind_request.parse(seen[names.HANDOVER])
    assert isinstance(record.read(seen[names.GPU_RECORD]), Refusal)


async def test_a_record_that_asks_for_nothing_newer_is_read() -> None:
    seen = await read(Stored({names.GPU_RECORD: text(RECORD)}))
    assert seen == {names.GPU_RECORD: text(RECORD)}


async def _make(on: Stage, name: str) -> None:
    container = {"name": "main", "image": "work"}
    spec = {"schedulerName": "kai-scheduler", "containers": [container], "terminationGracePeriodSeconds": 60}
    metadata = {"name": name, "annotations": {names.GPU_FRACTION: "0.5"}}
    await on.world.api.create(PODS, {"metadata": metadata, "spec": spec}, namespace=NAMESPACE)


async def _book(on: Stage) -> dict[str, int]:
    """Pod -> grace period, as the only book says it."""
    (held,) = await on.ground.reservations()
    entries = json.loads((held.metadata.annotations or {})[names.TENANTS]).values()
    return {entry["pod"]: entry["grace_s"] for entry in entries}


async def test_an_older_version_joins_no_newer_book_and_a_newer_one_finds_it_as_it_was() -> None:
    async with stage("1x1x40GiB") as on:
        await _make(on, "p")
        await on.until(30)
        for component in ("scheduler", "binder"):
            on.strike(OlderVersion(at_s=30, for_s=120, component=component))
        await on.until(35)
        await _make(on, "q")
        await on.until(149)
        assert [await on.phase(name) for name in "pq"] == ["Running", "Pending"]
        assert await _book(on) == {"team/p": 60}
        await on.until(300)
        assert await on.phase("q") == "Running"
        assert await _book(on) == {"team/p": 60, "team/q": 60}


def _capped(which: MemoryCaps) -> dict[str, Any]:
    """Both components write these caps."""
    return {"scheduler": SchedulerSettings(memory_caps=which), "binder": BinderSettings(memory_caps=which)}


async def _caps(on: Stage) -> dict[str, tuple[int, int]]:
    """Pod -> its cap in MiB and in nano-GPU, as the only book says it."""
    (held,) = await on.ground.reservations()
    entries = book.parse((held.metadata.annotations or {})[names.TENANTS]).entries.values()
    return {entry.pod: (entry.cap_mib, entry.cap_nano) for entry in entries}


@pytest.mark.parametrize("older", [("scheduler", "binder"), ("binder",), ("scheduler",)], ids="+".join)
async def test_versions_without_caps_work_beside_newer_ones_until_caps_are_switched_on(older: tuple[str, ...]) -> None:
    """In whichever order they are upgraded, and when both have been."""
    async with stage("1x1x40GiB") as on:
        for component in older:
            on.strike(OlderVersion(at_s=0, for_s=120, component=component, lacks=len(CAPS)))
        await on.until(5)
        for name in "pq":
            await _make(on, name)
        await on.until(60)
        assert [await on.phase(name) for name in "pq"] == ["Running", "Running"]
        assert await _caps(on) == {"team/p": (0, 0), "team/q": (0, 0)}


@pytest.mark.parametrize("older", [("scheduler", "binder"), ("binder",)], ids="+".join)
async def test_with_caps_switched_on_an_older_version_joins_no_book_that_has_them(older: tuple[str, ...]) -> None:
    """A rollback before caps are off again: what runs goes on, and further shares wait for the newer version."""
    async with stage("1x1x40GiB", **_capped(MemoryCaps.ALL)) as on:
        await _make(on, "p")
        await on.until(30)
        assert await _caps(on) == {"team/p": (0, HALF)}
        for component in older:
            on.strike(OlderVersion(at_s=30, for_s=120, component=component, lacks=len(CAPS)))
        await on.until(35)
        await _make(on, "q")
        await on.until(149)
        assert await on.phase("p") == "Running"
        assert (await _caps(on))["team/p"] == (0, HALF)
        await on.until(300)
        assert [await on.phase(name) for name in "pq"] == ["Running", "Running"]
        assert await _caps(on) == {"team/p": (0, HALF), "team/q": (0, HALF)}


@pytest.mark.parametrize(("which", "cap_nano"), [(MemoryCaps.NONE, 0), (MemoryCaps.WISHED, 0), (MemoryCaps.ALL, HALF)])
async def test_caps_are_written_of_those_that_the_setting_names(which: MemoryCaps, cap_nano: int) -> None:
    """KAI's plain fraction wishes none. The first share is entered by the binder, the second by the scheduler."""
    async with stage("1x1x40GiB", **_capped(which)) as on:
        for name in "pq":
            await _make(on, name)
            await on.until(on.now_s + 30)
        assert await _caps(on) == {"team/p": (0, cap_nano), "team/q": (0, cap_nano)}
