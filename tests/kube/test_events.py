from __future__ import annotations

import re
import tracemalloc
from collections import deque
from typing import Any

import anyio
import pytest

from kube.client import errors
from kube.client.resources import NODES, PODS
from kube.client.transport import Response
from kube.events import PREFIX, SLOW_S, WINDOW_S, Bursts, EventPace, EventRecorder, EventSettings, about, cut_utf8
from tests.background import in_background
from tests.kube.lead.test_lease import LoopClock
from tests.kube.scripted import Answer, Request, ScriptedTransport, api_over, hang, ok, refusal
from wire.api_groups import WARNING
from wire.core import ObjectMeta, ObjectReference

VIRTUAL_TIME = True

POD = about(PODS, ObjectMeta(name="a", namespace="ns", uid="u", resource_version="5"))
STORED = ok({"metadata": {"name": "e"}}, status=201)


def recording(*answers: Answer, **settings: Any) -> tuple[EventRecorder, ScriptedTransport]:
    transport = ScriptedTransport(deque(answers or [STORED] * 1000))
    recorder = EventRecorder(
        api_over(transport),
        clock=LoopClock(1_700_000_000 * 10**9),
        controller="kai-scheduler",
        instance="s-0",
        settings=EventSettings(**settings),
    )
    return recorder, transport


def say(recorder: EventRecorder, regarding: ObjectReference = POD, note: str = "bound to n1", **given: Any) -> None:
    recorder.record(regarding, **{"reason": "Scheduled", "action": "Binding", "note": note, **given})


async def run_for(recorder: EventRecorder, seconds: float) -> None:
    with anyio.move_on_after(seconds):
        await recorder.run()


async def test_an_event_is_written_as_the_server_demands() -> None:
    recorder, transport = recording()
    say(recorder, type=WARNING)
    await run_for(recorder, 1.0)
    assert transport.asked == [("POST", "/apis/events.k8s.io/v1/namespaces/ns/events")]
    body = transport.requests[0].body
    name = body.pop("metadata")["name"]
    assert re.fullmatch(r"a\.[0-9a-f]{16}", name)
    assert body == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": "2023-11-14T22:13:20.000000Z",
        "reportingController": "kai-scheduler",
        "reportingInstance": "s-0",
        "action": "Binding",
        "reason": "Scheduled",
        "type": "Warning",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "a", "namespace": "ns", "uid": "u"},
        "note": "bound to n1",
    }


async def test_an_event_about_a_node_goes_to_the_default_namespace() -> None:
    recorder, transport = recording()
    say(recorder, about(NODES, ObjectMeta(name="n1")))
    await run_for(recorder, 1.0)
    assert transport.requests[0].path == "/apis/events.k8s.io/v1/namespaces/default/events"


async def test_recording_waits_for_nobody() -> None:
    recorder, _ = recording(hang)
    async with in_background(recorder.run):
        await anyio.sleep(1.0)
        for number in range(100):
            say(recorder, note=str(number))
        assert anyio.current_time() == 1.0


async def test_the_same_event_said_again_becomes_a_count_written_once_a_minute() -> None:
    recorder, transport = recording()
    async with in_background(recorder.run):
        for _ in range(290):
            say(recorder)
            await anyio.sleep(1.0)
    first, *later = transport.requests
    assert first.method == "POST"
    assert "series" not in first.body
    assert [request.method for request in later] == ["PATCH"] * 4
    assert {request.path for request in later} == {f"{first.path}/{first.body['metadata']['name']}"}
    counts = [request.body["series"]["count"] for request in later]
    assert counts == sorted(counts)
    assert counts[-1] >= 230
    assert re.fullmatch(r"2023-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", later[0].body["series"]["lastObservedTime"])
    assert recorder.counts.bundled == 289


@pytest.mark.parametrize(("is_final", "kept"), [(True, 0), (False, 100)])
async def test_what_can_not_be_said_again_is_forgotten_when_it_is_written(*, is_final: bool, kept: int) -> None:
    recorder, transport = recording()
    for number in range(100):
        say(recorder, note=str(number), is_final=is_final)
    await run_for(recorder, 10.0)
    assert len(transport.requests) == 100
    assert len(recorder._bundles) == len(recorder._later) == kept


async def test_events_said_often_before_the_first_write_come_as_one_with_a_series() -> None:
    recorder, transport = recording()
    for _ in range(5):
        say(recorder)
    await run_for(recorder, 1.0)
    assert len(transport.requests) == 1
    assert transport.requests[0].body["series"]["count"] == 5


@pytest.mark.parametrize(
    "difference", [{"note": "bound to n2"}, {"reason": "Other"}, {"action": "Other"}, {"type": WARNING}]
)
async def test_events_that_differ_are_two(difference: dict[str, Any]) -> None:
    recorder, transport = recording()
    say(recorder)
    say(recorder, **difference)
    await run_for(recorder, 1.0)
    assert [request.method for request in transport.requests] == ["POST", "POST"]
    names = {request.body["metadata"]["name"] for request in transport.requests}
    assert len(names) == 2


async def test_what_was_not_said_for_a_window_is_forgotten_and_new_when_said_again() -> None:
    recorder, transport = recording()
    async with in_background(recorder.run):
        say(recorder)
        await anyio.sleep(130.0)
        say(recorder)
        await anyio.sleep(1.0)
    assert [request.method for request in transport.requests] == ["POST", "POST"]


def answered_in(seconds: float, answer: Response = STORED) -> Answer:
    async def answer_late(_request: Request) -> Response:
        await anyio.sleep(seconds)
        return answer

    return answer_late


@pytest.mark.thorough
async def test_twenty_thousand_events_are_written_as_fast_as_the_server_answers_and_none_is_lost() -> None:
    recorder, transport = recording(*[answered_in(0.01)] * 20_000)
    for number in range(20_000):
        say(recorder, note=str(number), is_final=True)
    started_at = anyio.current_time()
    async with in_background(recorder.run):
        await recorder.written()
        took_s = anyio.current_time() - started_at
    assert (recorder.counts.written, recorder.counts.lost) == (20_000, 0)
    assert len({request.body["note"] for request in transport.requests}) == 20_000
    # 16 in flight, 100 a second each: 12.5 s, and a moment until that many are allowed.
    assert took_s < 13.0
    assert not recorder._bundles


async def test_events_recorded_one_by_one_are_written_at_once() -> None:
    recorder, transport = recording()
    async with in_background(recorder.run):
        for number in range(300):
            say(recorder, note=str(number))
            await anyio.sleep(0.002)
    assert transport.times == pytest.approx([number * 0.002 for number in range(300)])


async def test_what_an_overloaded_server_turns_away_is_written_later_and_nothing_is_lost() -> None:
    busy = refusal(429, "TooManyRequests", headers={"retry-after": "3"})
    recorder, transport = recording(*[busy] * 4, *[STORED] * 50)
    for number in range(50):
        say(recorder, note=str(number), is_final=True)
    await run_for(recorder, 10.0)
    assert (recorder.counts.written, recorder.counts.refused, recorder.counts.lost) == (50, 0, 0)
    assert transport.times.count(0.0) == 4
    assert transport.times[4] >= 3.0


@pytest.mark.parametrize("answer", [refusal(500), refusal(503), errors.Unreachable(), errors.Timeout()])
async def test_an_outage_of_a_minute_loses_no_event_and_is_not_hammered(answer: Answer) -> None:
    async def away(_request: Request) -> Response:
        if anyio.current_time() < 60.0:
            if isinstance(answer, Exception):
                raise answer
            assert isinstance(answer, Response)
            return answer
        return STORED

    recorder, transport = recording(*[away] * 3000)
    for number in range(2000):
        say(recorder, note=str(number), is_final=True)
    await run_for(recorder, 90.0)
    assert recorder.counts.written == 2000
    assert len([at for at in transport.times if at < 60.0]) < 20


async def test_a_try_that_was_carried_out_though_its_answer_was_lost_is_not_written_twice() -> None:
    recorder, transport = recording(errors.Timeout(), refusal(409, "AlreadyExists"))
    say(recorder)
    await run_for(recorder, 30.0)
    assert [request.method for request in transport.requests] == ["POST", "POST"]
    assert len({request.body["metadata"]["name"] for request in transport.requests}) == 1
    assert (recorder.counts.written, recorder.counts.refused) == (1, 0)


async def test_an_event_that_could_not_be_written_for_long_is_given_up() -> None:
    recorder, transport = recording(*[errors.Unreachable()] * 1000, give_up_s=100.0)
    say(recorder)
    await run_for(recorder, 1000.0)
    assert recorder.counts.refused == 1
    assert transport.times[-1] < 120.0
    assert not recorder._bundles


async def test_a_server_that_answers_late_gets_fewer_writes_at_once() -> None:
    flying = most = 0

    async def overloaded(_request: Request) -> Response:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        await anyio.sleep(2.0)
        flying -= 1
        return STORED

    recorder, _ = recording(*[answered_in(0.01)] * 1000, *[overloaded] * 500)
    for number in range(1500):
        say(recorder, note=str(number))
    with anyio.move_on_after(60.0):
        await recorder.run()
    assert most == 16
    assert flying == 1
    # The answers of two seconds each: 16 at once, then 8, 4, 2, and then one after the other.
    assert recorder.counts.written < 1000 + 16 + 8 + 4 + 2 + 30


@pytest.mark.thorough
async def test_a_hundred_thousand_events_are_kept() -> None:
    recorder, _ = recording()
    tracemalloc.start()
    try:
        for number in range(100_000):
            say(recorder, note=str(number), is_final=True)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert recorder.counts.lost == 0
    assert kept_bytes < 64 << 20
    say(recorder, note="one more")
    assert recorder.counts.lost == 1


async def test_who_waits_for_all_events_goes_on_when_the_last_is_written_or_refused() -> None:
    recorder, _ = recording(STORED, refusal(403, "Forbidden"), STORED)
    for number in range(3):
        say(recorder, note=str(number))
    with anyio.fail_after(10):
        async with in_background(recorder.run):
            await recorder.written()
            assert recorder.counts.written + recorder.counts.refused == 3
            await recorder.written()


async def test_events_that_are_written_make_room_for_new_ones() -> None:
    recorder, transport = recording(capacity=10)
    async with in_background(recorder.run):
        for number in range(25):
            say(recorder, note=str(number))
            await anyio.sleep(1.0)
    assert recorder.counts.lost == 0
    assert len(transport.requests) == 25
    assert len(recorder._bundles) == 10


async def test_a_full_queue_loses_the_new_and_counts_them() -> None:
    recorder, transport = recording(capacity=10)
    for number in range(25):
        say(recorder, note=str(number))
    assert recorder.counts.lost == 15
    await run_for(recorder, 1.0)
    assert len(transport.requests) == 10
    say(recorder, note="there is room again")
    await run_for(recorder, 1.0)
    assert recorder.counts.written == 11


@pytest.mark.parametrize("answer", [refusal(403, "Forbidden"), refusal(404), refusal(422)])
async def test_an_event_that_is_refused_is_lost_and_the_next_one_is_written(answer: Answer) -> None:
    recorder, _ = recording(answer, STORED)
    say(recorder, note="one")
    say(recorder, note="two")
    await run_for(recorder, 1.0)
    assert (recorder.counts.refused, recorder.counts.written) == (1, 1)


async def test_an_event_that_has_aged_away_is_written_anew() -> None:
    recorder, transport = recording(STORED, refusal(404, "NotFound"), STORED)
    async with in_background(recorder.run):
        for _ in range(3):
            say(recorder)
            await anyio.sleep(61.0)
    assert [request.method for request in transport.requests][-1] == "POST"


async def test_events_of_one_moment_have_names_of_their_own_right_behind_it() -> None:
    recorder, transport = recording()
    for number in range(3):
        say(recorder, reason=f"Scheduled{number}")
    await run_for(recorder, 1.0)
    stamps = sorted(int(request.body["metadata"]["name"].rpartition(".")[2], 16) for request in transport.requests)
    assert [stamp - stamps[0] for stamp in stamps] == [0, 1, 2]


async def test_the_longest_name_of_an_object_leaves_room_for_the_suffix() -> None:
    recorder, transport = recording()
    say(recorder, about(PODS, ObjectMeta(name="a" * 235 + "." + "b" * 17, namespace="ns")))
    await run_for(recorder, 1.0)
    name = transport.requests[0].body["metadata"]["name"]
    assert len(name) <= 253
    assert ".." not in name


async def test_a_long_note_is_cut() -> None:
    recorder, transport = recording()
    say(recorder, note="ä" * 2000)
    await run_for(recorder, 1.0)
    assert len(transport.requests[0].body["note"].encode()) <= 1024


@pytest.mark.parametrize(
    ("text", "most", "cut"),
    [
        ("abc", 3, "abc"),
        ("abcdefgh", 7, "abcd…"),
        ("ääää", 7, "ää…"),
        ("ääää", 6, "ä…"),
        ("a😀😀😀", 12, "a😀😀…"),
        ("", 3, ""),
    ],
)
def test_a_text_is_cut_between_characters(text: str, most: int, cut: str) -> None:
    assert cut_utf8(text, most) == cut
    assert len(cut_utf8(text, most).encode()) <= most


def _of(namespace: str, number: int) -> ObjectReference:
    return about(PODS, ObjectMeta(name=f"p{number}", namespace=namespace, uid=f"{namespace}-{number}"))


async def test_a_namespace_whose_events_fill_the_queue_loses_its_own_and_no_other_does() -> None:
    recorder, transport = recording(capacity=100)
    for number in range(500):
        say(recorder, _of("loud", number))
    for number in range(30):
        say(recorder, _of("quiet", number))
    assert recorder.counts.lost == 400 + 30
    await run_for(recorder, 1.0)
    await recorder.written()
    written = [body["metadata"]["namespace"] for body in (request.body for request in transport.requests)]
    assert (written.count("quiet"), written.count("loud")) == (30, 70)


async def test_namespaces_take_turns_with_their_events() -> None:
    recorder, transport = recording(in_flight=1)
    for number in range(50):
        say(recorder, _of("loud", number))
    say(recorder, _of("quiet", 0))
    await run_for(recorder, 1.0)
    written = [body["metadata"]["namespace"] for body in (request.body for request in transport.requests)]
    assert written[:3] == ["loud", "quiet", "loud"]
    assert len(written) == 51


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


def at_most(most: int = 16) -> EventPace:
    pace = EventPace(most)
    for _ in range(1000):
        pace.answered(0.0, 0.01)
    return pace


def test_answers_in_time_allow_one_more_a_round_up_to_the_most() -> None:
    pace = EventPace(16)
    assert pace.in_flight == 4
    for _ in range(5):
        pace.answered(0.0, 0.01)
    assert pace.in_flight == 5
    assert at_most().in_flight == 16


def test_a_slow_answer_halves_what_is_allowed_down_to_one() -> None:
    pace, seen = at_most(), []
    for number in range(6):
        pace.answered(number * 10.0, number * 10.0 + SLOW_S + 0.1)
        seen.append(pace.in_flight)
    assert seen == [8, 4, 2, 1, 1, 1]
    assert pace.resume_at < 0.0


def test_an_answer_that_took_just_as_long_as_it_may_is_in_time() -> None:
    pace = EventPace(16)
    for _ in range(5):
        pace.answered(10.0, 10.0 + SLOW_S)
    assert pace.in_flight == 5


def test_writes_that_fail_together_count_once() -> None:
    pace = at_most()
    waits_s = {pace.failed(1.0, 1.5, retry_after_s=None) for _ in range(16)}
    assert pace.in_flight == 8
    assert waits_s == {0.25}


def test_pauses_double_while_rounds_fail_and_start_again_after_a_success() -> None:
    pace, waits_s, now = at_most(), [], 0.0
    for _ in range(8):
        now += 20.0
        waits_s.append(pace.failed(now, now, retry_after_s=None))
    assert waits_s == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    pace.answered(now + 20.0, now + 20.0)
    assert pace.failed(now + 40.0, now + 40.0, retry_after_s=None) == 0.25


@pytest.mark.parametrize(("asked_s", "waits_s"), [(None, 0.25), (0.1, 0.25), (3.0, 3.0)])
def test_the_pause_is_not_shorter_than_the_server_asks(asked_s: float | None, waits_s: float) -> None:
    pace = at_most()
    assert pace.failed(5.0, 5.0, retry_after_s=asked_s) == waits_s
    assert pace.resume_at == 5.0 + waits_s
