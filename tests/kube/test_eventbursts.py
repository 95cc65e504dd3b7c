from __future__ import annotations

import anyio
import pytest

from kube.client.resources import PODS
from kube.events import PREFIX, WINDOW_S, Bursts, about
from tests.conftest import AnyioBackend
from tests.kube.test_events import recording, run_for
from wire.core import ObjectMeta, ObjectReference
from wire.events import WARNING


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


def pod(number: int) -> ObjectReference:
    return about(PODS, ObjectMeta(name=f"p{number}", namespace="ns", uid=f"u{number}"))


async def test_the_first_of_a_burst_have_an_event_each_and_the_others_one_together() -> None:
    recorder, transport = recording()
    bursts = Bursts(recorder, reason="Evict", action="Evicting")
    for number in range(10):
        bursts.record(pod(number), f"p{number} goes", alike="ns", most=3, type=WARNING)
    await run_for(recorder, 1.0)
    bodies = [request.body for request in transport.requests]
    notes = [(body["regarding"]["name"], body["note"]) for body in bodies]
    assert notes == [("p0", "p0 goes"), ("p1", "p1 goes"), ("p2", "p2 goes"), ("p3", f"{PREFIX}p3 goes")]
    assert bodies[-1]["series"]["count"] == 7
    assert {(body["reason"], body["action"], body["type"]) for body in bodies} == {("Evict", "Evicting", WARNING)}


async def test_what_is_not_alike_has_events_of_its_own() -> None:
    recorder, transport = recording()
    bursts = Bursts(recorder, reason="Evict", action="Evicting")
    for number in range(4):
        bursts.record(pod(number), f"p{number} goes", alike=number % 2, most=2)
    await run_for(recorder, 1.0)
    assert [request.body["note"] for request in transport.requests] == [f"p{number} goes" for number in range(4)]


async def test_a_burst_is_over_after_a_while_and_nothing_is_kept_of_it() -> None:
    recorder, transport = recording()
    bursts = Bursts(recorder, reason="Evict", action="Evicting")
    for number in range(3):
        bursts.record(pod(number), "goes", alike="ns", most=1)
    await anyio.sleep(WINDOW_S)
    bursts.record(pod(7), "goes", alike="other", most=1)
    assert list(bursts._bursts) == ["other"]
    bursts.record(pod(8), "goes", alike="ns", most=1)
    await run_for(recorder, 1.0)
    told = [(request.body["regarding"]["name"], request.body["note"]) for request in transport.requests]
    assert told == [("p0", "goes"), ("p1", f"{PREFIX}goes"), ("p7", "goes"), ("p8", "goes")]
