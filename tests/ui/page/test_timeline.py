"""A recorded run at any moment: what a page would show that was told the lines up to there, whoever asked before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from runtime.text import BadInput
from tests.scheduler.core.objects import node
from tests.ui.page.test_frames import Client, Story, as_sets, drawn
from tests.whole import seeds
from ui.page.index import FORM, MOST_MARKS, Line, decode, marks, take
from ui.page.objects import MOST_EVENTS, Objects
from ui.page.recording import Recording
from ui.page.stream import Frames
from ui.page.timeline import FAR, MOST_PLACES, Recorded
from ui.page.values import EventLine, Mark

VIRTUAL_TIME = True


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run"


def warning(name: str, count: int = 1, **more: Any) -> EventLine:
    return EventLine(key=f"ns/{name}", namespace="ns", pod="p1", type="Warning", reason="R", count=count, **more)


def write(path: Path, *lines: Line) -> None:
    write_text(path, b"\n".join(map(msgspec.json.encode, (Line(form=FORM), *lines))) + b"\n")


def write_text(path: Path, text: bytes) -> None:
    path.write_bytes(text)


async def told(path: Path, seed: int, steps: int = 120) -> None:
    """A random story in a file; it is in step after some of it."""
    story = Story(seed)
    story.store = Recording(path, lambda: None)
    for number in range(steps):
        story.step()
        if story.rng.random() < 0.4:
            event = f"e{story.rng.randrange(9)}"
            story.store.put_event(warning(event, number))
        elif story.rng.random() < 0.1 and story.store.events:
            story.store.drop_event(story.rng.choice(list(story.store.events)))
        if number == 10:
            story.store.note_in_step()
        await anyio.sleep(story.rng.choice([0, 0, 0.1, 2.5]))
    story.store.close()


@contextmanager
def opened(path: Path) -> Iterator[Recorded]:
    with closing(Recorded(path)) as recorded:
        yield recorded


def afresh(path: Path, at_ms: int) -> Frames:
    """A page that was told the lines up to a moment."""
    objects = Objects()
    for line in map(decode, path.read_bytes().splitlines()):
        if line.at_ms <= at_ms:
            take(objects, line)
    frames = Frames(objects, "e")
    drawn(frames)
    return frames


def shown(frames: Frames) -> tuple[Any, ...]:
    """All that a page can be asked of it; events in their order."""
    whole = frames.whole()
    paths = {(line.namespace, line.name): frames.path(line.namespace, line.name) for line in whole.pods}
    return as_sets(whole), whole.events, paths


@pytest.mark.parametrize("seed", seeds(8))
async def test_a_moment_is_what_a_page_shows_that_was_told_the_lines_up_to_there(path: Path, seed: int) -> None:
    """Back and forth, by readers who know another moment, this one or none."""
    await told(path, seed)
    rng, readers = random.Random(seed), [Client() for _ in range(MOST_PLACES + 2)]
    at: list[int | None] = [None] * len(readers)
    with opened(path) as recorded:
        await recorded.read()
        assert 0 < recorded.from_ms < recorded.to_ms
        for _ in range(60):
            who = rng.randrange(len(readers))
            aim = rng.randint(recorded.from_ms, recorded.to_ms)
            async with recorded.at(aim, at[who]) as moment:
                if moment.changes is None:
                    readers[who] = Client()
                readers[who].take(moment.frames.whole() if moment.changes is None else moment.changes)
                expected = afresh(path, aim)
                assert shown(moment.frames) == shown(expected)
                assert readers[who].known == as_sets(expected.whole())
            at[who] = aim


async def test_a_reader_who_goes_on_is_told_what_changed_and_others_do_not_disturb_him(path: Path) -> None:
    await told(path, 3)
    with opened(path) as recorded:
        await recorded.read()
        where = recorded.from_ms
        async with recorded.at(where) as moment:
            assert moment.changes is None
        for step in range(5):
            async with recorded.at(recorded.to_ms - step):
                pass  # somebody else
            async with recorded.at(where + 1000, where) as moment:
                assert moment.changes is not None
                assert len(moment.changes) < len(moment.frames.whole())
            where += 1000


async def test_who_goes_far_leaves_what_is_drawn_where_he_was(path: Path) -> None:
    lines = [Line(at_ms=number, node=node(f"n{number % 7}", cordoned=number % 2 == 0)) for number in range(1, 3 * FAR)]
    write(path, Line(node=node()), Line(is_in_step=True), *lines)
    with opened(path) as recorded:
        await recorded.read()
        async with recorded.at(5):
            pass
        async with recorded.at(2 * FAR, 5) as moment:
            assert moment.changes is None
            assert shown(moment.frames) == shown(afresh(path, 2 * FAR))
        for known, aim in ((5, 9), (2 * FAR, 2 * FAR + 3), (9, 5)):
            async with recorded.at(aim, known) as moment:
                assert moment.changes is not None
                assert shown(moment.frames) == shown(afresh(path, aim))


async def test_readers_of_one_time_are_all_answered(path: Path) -> None:
    await told(path, 4)
    with opened(path) as recorded:
        await recorded.read()
        moments = [recorded.from_ms + 700 * number for number in range(3 * MOST_PLACES)]
        seen: dict[int, Any] = {}

        async def look(at_ms: int) -> None:
            async with recorded.at(at_ms) as moment:
                await anyio.sleep(1)
                seen[at_ms] = shown(moment.frames)

        async with anyio.create_task_group() as tasks:
            for at_ms in moments:
                tasks.start_soon(look, at_ms)
        assert seen == {at_ms: shown(afresh(path, min(at_ms, recorded.to_ms))) for at_ms in moments}


async def test_who_gives_up_in_the_middle_leaves_no_half_drawn_moment(path: Path) -> None:
    write(path, *(Line(node=node(f"n{number}")) for number in range(50)), Line(is_in_step=True))
    with opened(path) as recorded:
        await recorded.read()
        for _ in range(MOST_PLACES + 1):
            with anyio.CancelScope() as scope:
                scope.cancel()
                async with recorded.at(0):
                    pytest.fail("it was drawn at once")
        async with recorded.at(0) as moment:
            assert len(moment.frames.whole().nodes) == 50


async def test_events_that_made_room_for_others_are_there_again_before_that(path: Path) -> None:
    recording = Recording(path, lambda: None)
    recording.note_in_step()
    for number in range(MOST_EVENTS + 50):
        await anyio.sleep(1)
        recording.put_event(warning(f"e{number}"))
    recording.close()
    with opened(path) as recorded:
        await recorded.read()
        for at_s, first in ((MOST_EVENTS + 50, 50), (MOST_EVENTS, 0), (10, 0), (MOST_EVENTS + 1, 1)):
            async with recorded.at(at_s * 1000) as moment:
                keys = [event.key for event in moment.frames.whole().events]
                assert keys == [f"ns/e{number}" for number in range(first, at_s)]


async def test_a_moment_outside_the_run_is_the_nearest_one(path: Path) -> None:
    write(path, Line(node=node()), Line(at_ms=50, is_in_step=True), Line(at_ms=90, node=node("n2")))
    with opened(path) as recorded:
        await recorded.read()
        assert (recorded.from_ms, recorded.to_ms) == (50, 90)
        for asked, shown_ms, nodes in ((0, 50, ["n1"]), (10**9, 90, ["n1", "n2"])):
            async with recorded.at(asked) as moment:
                assert (moment.at_ms, sorted(moment.frames.nodes)) == (shown_ms, nodes)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}\n",
        b"no JSON\n",
        b'{"form":"moorage-run-2"}\n',
        b"[]\n",
        b'{"form":"\xff"}\n',
        b'{"x":' + b"[" * 100_000,
        b'{"form":"moorage-run-1","beganMs":9999999999999999999}\n',
    ],
)
async def test_a_file_that_is_no_run_is_refused(path: Path, text: bytes) -> None:
    write_text(path, text)
    with pytest.raises(BadInput, match="--open"):
        Recorded(path)


async def test_a_line_that_was_cut_ends_the_run_and_is_told(path: Path) -> None:
    lines = [msgspec.json.encode({"form": FORM}), msgspec.json.encode({"node": node()}), b'{"pod":{"meta']
    write_text(path, b"\n".join(lines))
    with opened(path) as recorded:
        await recorded.read()
        async with recorded.at(0) as moment:
            assert list(moment.frames.nodes) == ["n1"]
        assert recorded.troubles()[0].startswith("the recording from line 3 on: ")


@pytest.mark.parametrize(
    "damaged",
    [
        b'{"atMs":7,"goneNode":"\xff"}',
        b'{"atMs":7,"x":' + b"[" * 100_000,
        b'{"atMs":9223372036854775808,"goneNode":"n1"}',
        b'{"atMs":-1,"goneNode":"n1"}',
    ],
)
async def test_a_line_that_was_damaged_ends_the_run_and_is_told(path: Path, damaged: bytes) -> None:
    good = msgspec.json.encode({"form": FORM}), msgspec.json.encode({"node": node(), "atMs": 5})
    write_text(path, b"\n".join((*good, damaged, b'{"atMs":9,"isInStep":true}\n')))
    with opened(path) as recorded:
        await recorded.read()
        async with recorded.at(10) as moment:
            assert (moment.at_ms, list(moment.frames.nodes)) == (5, ["n1"])
        assert recorded.troubles()[0].startswith("the recording from line 3 on: ")


# --- what somebody will look for ----------------------------------------------------------------------------------


async def test_warnings_are_marked_where_they_came_and_not_those_that_were_there(path: Path) -> None:
    write(
        path,
        Line(event=warning("old")),
        Line(at_ms=10, is_in_step=True),
        Line(at_ms=20, event=warning("old")),
        Line(at_ms=30, event=warning("e")),
        Line(at_ms=50_000, event=warning("e", 2)),
        Line(at_ms=50_001, event=msgspec.structs.replace(warning("n"), type="Normal")),
        Line(at_ms=100_000, node=node()),
    )
    with opened(path) as recorded:
        await recorded.read()
        assert recorded.about(1.0).marks == (
            Mark(at_ms=30, reason="R", namespace="ns", pod="p1"),
            Mark(at_ms=50_000, reason="R", namespace="ns", pod="p1"),
        )


def test_what_is_warned_of_again_at_once_is_one_mark() -> None:
    many = [Mark(at_ms=1000 + number, reason=f"R{number % 2}") for number in range(10)]
    assert marks(many, 0, 1_000_000) == [Mark(at_ms=1000 + n, reason=f"R{n}", times=5) for n in range(2)]


@pytest.mark.parametrize("reasons", [1, 40, 5000])
def test_marks_are_few_whatever_was_warned_of(reasons: int) -> None:
    many = [Mark(at_ms=number + 1, reason=f"R{number % reasons}") for number in range(20_000)]
    made = marks(many, 0, 20_000)
    assert 0 < len(made) <= MOST_MARKS
    assert [mark.at_ms for mark in made] == sorted(mark.at_ms for mark in made)
