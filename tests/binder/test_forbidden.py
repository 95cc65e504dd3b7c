"""A right that is missing: said once, asked for ever more rarely, and used when it is there."""

from __future__ import annotations

import logging

import anyio
import pytest

from gpu.book import Entry, Tenant
from gpu.reservation import Reservation
from kube import books
from kube.client.resources import EVENTS
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from tests.binder.cluster import BINDER, HALF, RESERVATIONS, TEAM, Cluster, cluster
from wire import names

HOUR_S = 3600.0


def _forbid_fences(it: Cluster) -> list[Call]:
    """From now on; returns the list of those that are asked for."""
    asked: list[Call] = []

    def rule(call: Call) -> Fault | None:
        if (call.user, call.verb, call.subresource) != (BINDER, "patch", "status"):
            return None
        asked.append(call)
        return Fault(refuse_with=403)

    it.server.faults.on_request.append(rule)
    return asked


def _told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_fence_that_is_forbidden_is_told_once_and_asked_for_every_five_minutes_in_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster() as it:
        asked = _forbid_fences(it)
        it.kubelet.rejects = 1
        await it.hand_over(await it.pod(), "g")
        await anyio.sleep(HOUR_S)
        before = len(asked)
        await anyio.sleep(HOUR_S)
        assert 11 <= len(asked) - before <= 13
        assert before <= 25
        assert len(_told(caplog)) == 1
        notes = [event for event in (await it.api.list(EVENTS, namespace=TEAM)).items if event.reason == "BindingError"]
        assert len(notes) == 1
        assert "before the binder may patch pods/status" in notes[0].note
        assert notes[0].regarding is not None
        assert notes[0].regarding.name == "p"
        it.server.faults.clear()
        await it.until(it.is_fenced, limit_s=301)
        await anyio.sleep(5)
        assert await it.requests() == []


async def test_an_entry_whose_fence_is_forbidden_does_not_keep_the_others_from_being_taken_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster() as it:
        await it.bound()
        await _abandoned(it, "q")
        asked = _forbid_fences(it)
        await anyio.sleep(60)
        await it.kubelet.status("p", namespace=TEAM, phase="Succeeded")
        await anyio.sleep(20)
        assert await it.tenants() == {"q"}
        await anyio.sleep(HOUR_S)
        before = len(asked)
        await anyio.sleep(HOUR_S)
        assert 10 <= len(asked) - before <= 13
        assert len(_told(caplog)) == 1
        it.server.faults.clear()
        await it.until(_is_fenced, it, "q", limit_s=310)


async def _is_fenced(it: Cluster, name: str) -> bool:
    return names.FENCED in ((await it.get(name)).metadata.annotations or {})


async def _abandoned(it: Cluster, name: str) -> None:
    """A direct entry whose scheduler died."""
    pod = (await it.pod(name)).metadata
    held = await books.read(it.api, RESERVATIONS, (await it.reservation()).metadata.name)
    assert held is not None
    entry = Entry(HALF, "direct", pod.resource_version, 0, f"{TEAM}/{name}")
    assert isinstance(await books.join(it.api, held, [Tenant(pod.uid, entry)]), Reservation)
