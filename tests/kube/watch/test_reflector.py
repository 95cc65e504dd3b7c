from __future__ import annotations

import itertools
import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from kube.client import errors
from kube.client.resources import PODS
from kube.client.retry import BackoffRange
from kube.client.transport import Response
from kube.watch.reflector import (
    Bookmarked,
    Deleted,
    Failed,
    Garbled,
    Reflector,
    ReflectorSettings,
    Upserted,
    WatchDecoder,
)
from tests.background import in_background
from tests.kube.scripted import HEAD, Answer, Request, ScriptedTransport, Watch, api_over, ok, refusal
from tests.values import of_kind
from wire.core import Pod

VIRTUAL_TIME = True


def line(kind: str, obj: object) -> bytes:
    return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"


POD = {"metadata": {"name": "a", "namespace": "ns", "resourceVersion": "7"}, "spec": {"nodeName": "n1"}}
BAD = {"metadata": {"name": "bad", "namespace": "ns", "resourceVersion": "8"}, "spec": {"nodeName": 1}}


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED"])
def test_what_is_there_is_an_upsert(kind: str) -> None:
    event = of_kind(Upserted, WatchDecoder(PODS).decode(line(kind, POD)))
    assert (event.obj.spec.node_name, event.resource_version) == ("n1", "7")


def test_a_deletion_carries_the_last_state_and_its_own_version() -> None:
    event = of_kind(Deleted, WatchDecoder(PODS).decode(line("DELETED", POD)))
    assert (event.obj.metadata.name, event.resource_version) == ("a", "7")


@pytest.mark.parametrize("kind", ["BOOKMARK", "SOMETHING_OF_LATER_YEARS"])
def test_a_bookmark_is_its_version(kind: str) -> None:
    assert WatchDecoder(PODS).decode(line(kind, {"metadata": {"resourceVersion": "9"}})) == Bookmarked("9")


def test_an_error_is_its_status() -> None:
    event = WatchDecoder(PODS).decode(line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"}))
    assert isinstance(event, Failed)
    assert (event.status.code, event.status.reason) == (410, "Expired")


def test_an_error_that_does_not_decode_is_an_error_still() -> None:
    assert isinstance(WatchDecoder(PODS).decode(line("ERROR", {"code": "many"})), Failed)


@pytest.mark.parametrize(("kind", "is_deletion"), [("ADDED", False), ("MODIFIED", False), ("DELETED", True)])
def test_an_object_that_does_not_decode_is_named_with_its_version(kind: str, is_deletion: bool) -> None:
    event = of_kind(Garbled, WatchDecoder(PODS).decode(line(kind, BAD)))
    assert (event.key, event.resource_version, event.is_deletion) == ("ns/bad", "8", is_deletion)
    assert "nodeName" in event.error


@pytest.mark.parametrize("garbage", [b"", b"{", b"null\n", b"[1]\n", b'{"type": "ADDED"}\n', b"\xff\xfe\n"])
def test_a_line_that_is_no_event_is_an_event_without_version(garbage: bytes) -> None:
    event = of_kind(Garbled, WatchDecoder(PODS).decode(garbage))
    assert event.resource_version == ""


def test_a_decoded_object_does_not_keep_its_line_alive() -> None:
    event = of_kind(Upserted, WatchDecoder(PODS).decode(line("ADDED", {**POD, "status": {"message": "x" * 100_000}})))
    assert type(event.obj.spec.node_name) is str


FOREVER = Watch()


@dataclass(slots=True)
class Cache:
    """A sink that is a dict, and the log of what it was told."""

    pods: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def keep(self, obj: Pod) -> tuple[str, str]:
        return obj.metadata.name, obj.metadata.resource_version

    async def replace(self, kept: Sequence[tuple[str, str]]) -> None:
        self.pods = dict(kept)
        self.told.append("replace")

    def upsert(self, obj: Pod) -> None:
        self.pods[obj.metadata.name] = obj.metadata.resource_version
        self.told.append(f"upsert {obj.metadata.name}")

    def delete(self, obj: Pod) -> None:
        del self.pods[obj.metadata.name]
        self.told.append(f"delete {obj.metadata.name}")


@dataclass(slots=True)
class Bench:
    """A reflector over a script."""

    transport: ScriptedTransport
    cache: Cache
    reflector: Reflector[Pod]

    async def run(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self.reflector.run()

    def watched(self, parameter: str = "resourceVersion") -> list[str]:
        return [request.query[parameter] for request in self.transport.requests if request.method == "WATCH"]

    def gaps(self) -> list[float]:
        times = self.transport.times
        return [round(later - earlier, 3) for earlier, later in itertools.pairwise(times)]


def bench(*answers: Answer, watches: Sequence[Watch] = (FOREVER,), **settings: Any) -> Bench:
    transport, cache = ScriptedTransport(deque(answers), deque(watches)), Cache()
    reflector = Reflector(
        api_over(transport),
        PODS,
        cache,
        label_selector="app=x",
        rng=random.Random(3),
        settings=ReflectorSettings(**settings),
    )
    return Bench(transport, cache, reflector)


def pod(name: str, version: int, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns", "resourceVersion": str(version)}, "spec": spec}


def listing(version: int, *items: dict[str, Any]) -> Response:
    return ok({"metadata": {"resourceVersion": str(version)}, "items": list(items)})


def bookmark(version: int) -> bytes:
    return line("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


EXPIRED = line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"})
BROKEN = errors.Unreachable("connection reset")


async def test_a_list_fills_the_sink_and_the_watch_goes_on_from_it() -> None:
    events = [line("ADDED", pod("b", 11)), line("MODIFIED", pod("a", 12)), line("DELETED", pod("b", 13))]
    made = bench(listing(10, pod("a", 5)), watches=[Watch(events)])
    await made.run(1.0)
    assert made.cache.told == ["replace", "upsert b", "upsert a", "delete b"]
    assert made.cache.pods == {"a": "12"}
    watch = made.transport.requests[1]
    assert watch.query["resourceVersion"] == "10"
    assert watch.query["allowWatchBookmarks"] == "true"
    assert watch.query["watch"] == "true"
    assert watch.query["labelSelector"] == "app=x"


async def test_a_watch_that_is_refused_for_want_of_a_right_says_so_until_one_is_granted() -> None:
    refused = Watch(head=refusal(403, "Forbidden"))
    made = bench(listing(10, pod("a", 5)), watches=[refused, refused, Watch(end="eof"), FOREVER])
    said: list[str] = []
    async with in_background(made.reflector.run):
        while len(made.transport.requests) < 5:
            await anyio.sleep(0.01)
            if made.reflector.trouble not in said[-1:]:
                said.append(made.reflector.trouble)
    assert said[-2:] == ["Forbidden", ""]
    assert made.cache.pods == {"a": "5"}


async def test_it_has_started_once_the_first_list_is_in_the_sink() -> None:
    made = bench(refusal(403, "Forbidden"), listing(10, pod("a", 5)))
    async with anyio.create_task_group() as tasks:
        assert not made.reflector.synced.is_set()
        await tasks.start(made.reflector.run)
        assert made.reflector.synced.is_set()
        assert made.cache.pods == {"a": "5"}
        tasks.cancel_scope.cancel()


async def test_the_server_is_asked_to_end_watches_at_random_times() -> None:
    made = bench(listing(10), watches=[Watch(pauses_s=10.0, lines=[bookmark(11)], end="eof") for _ in range(20)])
    await made.run(199.0)
    asked = [int(seconds) for seconds in made.watched("timeoutSeconds")]
    assert len(set(asked)) > 10
    assert all(240 <= seconds <= 480 for seconds in asked)


@pytest.mark.parametrize(
    "gone",
    [Watch([line("ADDED", pod("b", 11)), EXPIRED]), Watch(head=refusal(410, "Expired"))],
    ids=["error event", "status"],
)
async def test_410_relists_with_a_fresh_version(gone: Watch) -> None:
    made = bench(listing(10, pod("a", 5)), listing(50, pod("c", 45)), watches=[gone, FOREVER])
    await made.run(5.0)
    assert made.watched() == ["10", "50"]
    assert made.cache.pods == {"c": "45"}


async def test_a_line_that_is_too_long_relists() -> None:
    too_long = errors.TooLarge("WATCH /api/v1/pods: the answer is longer than 16778240 bytes")
    made = bench(listing(10, pod("a", 5)), listing(50, pod("c", 45)), watches=[Watch(end=too_long), FOREVER])
    await made.run(5.0)
    assert made.watched() == ["10", "50"]
    assert made.cache.pods == {"c": "45"}


async def test_repeated_410_backs_off() -> None:
    made = bench(*(listing(10) for _ in range(30)), watches=[Watch([EXPIRED]) for _ in range(30)])
    await made.run(60.0)
    assert 4 <= made.reflector.counts.lists <= 9


async def test_eof_resumes_from_the_last_version_without_a_list() -> None:
    ended = Watch([line("ADDED", pod("b", 11))], pauses_s=6.0, end="eof")
    made = bench(listing(10), watches=[ended, FOREVER])
    await made.run(60.0)
    assert made.watched() == ["10", "11"]
    assert made.cache.told == ["replace", "upsert b"]
    assert made.gaps()[-1] == 6.0


async def test_a_broken_connection_resumes_after_a_moment() -> None:
    broken = Watch([line("ADDED", pod("b", 11))], pauses_s=6.0, end=BROKEN)
    made = bench(listing(10), watches=[broken, FOREVER])
    await made.run(60.0)
    assert made.watched() == ["10", "11"]
    assert 6.2 < made.gaps()[-1] <= 6.5


async def test_early_close_backs_off() -> None:
    made = bench(listing(10), watches=[Watch(end="eof") for _ in range(30)])
    await made.run(60.0)
    waits = made.gaps()[1:]
    assert made.reflector.counts.lists == 1
    assert len(waits) <= 8
    assert all(
        0.5 * nominal <= wait <= nominal for wait, nominal in zip(waits, (0.5, 1, 2, 4, 8, 16, 30, 30), strict=False)
    )


async def test_a_watch_that_lasts_ends_the_back_off() -> None:
    early, lasting = Watch(end="eof"), Watch([bookmark(20)], pauses_s=6.0, end="eof")
    made = bench(listing(10), watches=[early, early, early, lasting, early, FOREVER])
    await made.run(60.0)
    assert made.gaps()[-1] <= 0.5


async def test_silence_reconnects_from_the_last_version() -> None:
    made = bench(listing(10), watches=[Watch([bookmark(11)]), FOREVER], silence_s=90.0)
    await made.run(100.0)
    assert made.watched() == ["10", "11"]
    assert made.gaps() == [0.0, 90.0]


async def test_bookmarks_break_the_silence() -> None:
    made = bench(listing(10), watches=[Watch([bookmark(11 + n) for n in range(10)], pauses_s=60.0)], silence_s=90.0)
    await made.run(600.0)
    assert made.reflector.counts.watches == 1


async def test_a_bookmark_moves_the_version_and_touches_no_object() -> None:
    made = bench(listing(10, pod("a", 5)), watches=[Watch([bookmark(99)], pauses_s=6.0, end="eof"), FOREVER])
    await made.run(60.0)
    assert made.watched() == ["10", "99"]
    assert made.cache.told == ["replace"]


async def test_a_busy_server_is_left_alone_for_as_long_as_it_asks() -> None:
    busy = Watch(head=refusal(429, headers={"retry-after": "7"}))
    made = bench(listing(10), watches=[busy, FOREVER])
    await made.run(60.0)
    assert made.gaps()[-1] >= 7.0
    assert made.watched() == ["10", "10"]


@pytest.mark.parametrize("code", [401, 403])
async def test_missing_rights_are_waited_for(code: int, caplog: pytest.LogCaptureFixture) -> None:
    answers = [refusal(code, "no") for _ in range(50)]
    made = bench(*answers)
    await made.run(120.0)
    assert len(made.transport.requests) < 12
    assert "list of pods: no" in caplog.text


async def test_a_resource_that_is_not_there_yet_is_waited_for() -> None:
    made = bench(refusal(404, "NotFound"), refusal(404, "NotFound"), listing(10, pod("a", 5)))
    await made.run(10.0)
    assert made.cache.pods == {"a": "5"}


async def test_a_server_that_was_away_is_not_greeted_with_a_list() -> None:
    made = bench(listing(10), watches=[*(Watch(head=HEAD, end=BROKEN) for _ in range(8)), FOREVER])
    await made.run(140.0)
    assert made.reflector.counts.lists == 1
    assert made.reflector.counts.watches == 9


async def test_a_version_that_the_server_keeps_failing_on_is_given_up() -> None:
    made = bench(
        listing(9000), listing(12), watches=[*(Watch(head=refusal(504, "Timeout")) for _ in range(4)), FOREVER]
    )
    await made.run(60.0)
    assert made.watched() == ["9000"] * 4 + ["12"]


async def test_a_list_that_breaks_off_changes_nothing() -> None:
    begun = ok({"metadata": {"resourceVersion": "50", "continue": "t"}, "items": [pod("half", 45)]})
    failing = [BROKEN] * 5  # one page, with its retries
    made = bench(
        listing(10, pod("a", 5)), begun, *failing, listing(60, pod("c", 55)), watches=[Watch([EXPIRED]), FOREVER]
    )
    await made.run(60.0)
    assert made.cache.told == ["replace", "replace"]
    assert made.cache.pods == {"c": "55"}


# --- objects that do not decode -----------------------------------------------------------------------------------
async def test_an_object_that_does_not_decode_is_named_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    events = [line("ADDED", pod("bad", 11, nodeName=1)), line("ADDED", pod("b", 12))]
    made = bench(listing(10), watches=[Watch(events)])
    await made.run(1.0)
    assert made.cache.told == ["replace", "upsert b"]
    assert list(made.reflector.undecodable) == ["ns/bad"]
    assert made.reflector.counts.undecodable == 1
    assert "Pod ns/bad can't be read" in caplog.text
    assert made.reflector.counts.watches == 1


async def test_a_resume_does_not_stumble_over_it_again() -> None:
    garbled = Watch([line("ADDED", pod("bad", 11, nodeName=1))], pauses_s=6.0, end="eof")
    made = bench(listing(10), watches=[garbled, FOREVER])
    await made.run(60.0)
    assert made.watched() == ["10", "11"]


async def test_a_list_does_not_hide_what_does_not_decode() -> None:
    made = bench(
        listing(10, pod("bad", 5, nodeName=1), pod("a", 6)),
        listing(50, pod("bad", 5, nodeName=1)),
        watches=[Watch([EXPIRED]), FOREVER],
    )
    await made.run(5.0)
    assert made.reflector.counts.lists == 2
    assert made.reflector.counts.undecodable == 2
    assert list(made.reflector.undecodable) == ["ns/bad"]


@pytest.mark.parametrize("kind", ["MODIFIED", "DELETED"])
async def test_it_is_forgotten_when_it_decodes_again_or_is_gone(kind: str) -> None:
    made = bench(
        listing(10, pod("a", 5)),
        watches=[Watch([line("MODIFIED", pod("a", 11, nodeName=1)), line(kind, pod("a", 12))])],
    )
    await made.run(1.0)
    assert made.reflector.undecodable == {}
    assert made.cache.pods == ({"a": "12"} if kind == "MODIFIED" else {})


async def test_a_deletion_that_does_not_decode_is_seen_through_a_list() -> None:
    garbled = Watch([line("DELETED", pod("a", 11, nodeName=1))])
    made = bench(listing(10, pod("a", 5)), listing(12), watches=[garbled, FOREVER])
    await made.run(5.0)
    assert made.cache.pods == {}
    assert made.watched() == ["10", "12"]


async def test_a_stream_of_garbage_is_relisted_with_back_off() -> None:
    made = bench(*(listing(10) for _ in range(30)), watches=[Watch([b"<html>\n"]) for _ in range(30)])
    await made.run(60.0)
    assert 4 <= made.reflector.counts.lists <= 9


async def test_a_burst_leaves_turns_to_others() -> None:
    burst = Watch([line("ADDED", pod("a", 11 + n)) for n in range(3000)])
    made = bench(listing(10), watches=[burst])
    turns = 0

    async def count() -> None:
        nonlocal turns
        while len(made.cache.told) < 3001:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with in_background(made.reflector.run):
        await count()
    assert turns >= 3000 // 256


# --- catching up --------------------------------------------------------------------------------------------------
async def catch_up(it: Bench, *, after_s: float) -> float:
    """Run the reflector, have it catch up after a while, and return when it had."""
    caught_up: list[float] = []
    async with in_background(it.reflector.run):
        await anyio.sleep(after_s)
        await it.reflector.catch_up()
        caught_up.append(anyio.current_time())
        await anyio.sleep(1.0)
    return caught_up[0]


async def test_catching_up_lists_at_once_and_watches_from_there() -> None:
    it = bench(listing(10, pod("a", 3)), listing(20, pod("b", 15)), watches=[FOREVER, FOREVER])
    assert await catch_up(it, after_s=7.0) == pytest.approx(7.0)
    assert it.cache.pods == {"b": "15"}
    assert it.watched() == ["10", "20"]


async def test_a_list_that_had_begun_before_is_not_enough() -> None:
    async def slow(_: Request) -> Response:
        await anyio.sleep(5.0)
        return listing(10, pod("a", 3))

    it = bench(slow, listing(20, pod("b", 15)))
    assert await catch_up(it, after_s=1.0) == pytest.approx(5.0)
    assert it.cache.pods == {"b": "15"}


async def test_catching_up_does_not_wait_for_a_back_off_but_for_the_server() -> None:
    failing = [errors.Unreachable()] * 5  # one list, with its retries
    it = bench(*failing, *failing, listing(20, pod("b", 15)), backoff=BackoffRange(first_s=25.0, most_s=30.0))
    at = await catch_up(it, after_s=10.0)
    assert 10.0 in it.transport.times
    assert 20.0 < at < 50.0
    assert it.cache.pods == {"b": "15"}


async def test_a_resource_is_unknown_until_the_server_knows_it_and_not_for_want_of_a_right() -> None:
    made = bench(refusal(404, "NotFound"), refusal(403, "Forbidden"), listing(10))
    said: list[bool] = []
    async with in_background(made.reflector.run):
        for count in (1, 2, 3):
            while len(made.transport.requests) < count:  # noqa: ASYNC110 - virtual time
                await anyio.sleep(0.01)
            await anyio.sleep(0.01)
            said.append(made.reflector.is_unknown)
    assert said == [True, False, False]


async def test_a_list_is_heard_when_it_is_in_the_sink() -> None:
    made = bench(listing(10), watches=[FOREVER])
    assert made.reflector.heard_at == -math.inf
    await made.reflector.relist()
    assert made.reflector.heard_at == anyio.current_time()


@pytest.mark.parametrize(("headers", "least_s"), [({"retry-after": "7"}, 7.0), ({}, 0.0)])
async def test_a_busy_server_is_listed_again_when_it_says_or_after_the_usual_pause(
    headers: dict[str, str], least_s: float
) -> None:
    made = bench(refusal(429, headers=headers), listing(10, pod("a", 5)))
    await made.run(20.0)
    assert made.cache.pods == {"a": "5"}
    assert least_s <= made.gaps()[0] < least_s + 5.0


@pytest.mark.parametrize(("headers", "least_s"), [({"retry-after": "7"}, 7.0), ({}, 0.0)])
async def test_a_watch_that_a_busy_server_refuses_is_tried_again_when_it_says_or_after_the_usual_pause(
    headers: dict[str, str], least_s: float
) -> None:
    busy = Watch(head=refusal(429, headers=headers))
    made = bench(listing(10, pod("a", 5)), watches=[busy, FOREVER])
    await made.run(20.0)
    assert made.watched() == ["10", "10"]
    assert least_s < made.gaps()[1] < least_s + 1.0


JUMP = 1_000_000_000


@pytest.mark.parametrize(
    ("watched", "listed", "expected"),
    [
        ([], 12, []),
        ([], 10 + JUMP, [(10 + JUMP, 10)]),
        ([bookmark(JUMP)], 12 + JUMP, []),  # the watch brought it there, so the server did
        ([bookmark(15)], 9 + JUMP, [(9 + JUMP, 15)]),
    ],
)
async def test_a_list_whose_version_has_jumped_says_that_history_was_set_back(
    watched: list[bytes], listed: int, expected: list[tuple[int, int]]
) -> None:
    made, told = bench(listing(10), listing(listed), watches=[Watch([*watched, EXPIRED]), FOREVER]), []
    made.reflector.on_set_back = lambda now, before: told.append((int(now), int(before)))
    await made.run(5.0)
    assert made.cache.told == ["replace", "replace"]
    assert told == expected
