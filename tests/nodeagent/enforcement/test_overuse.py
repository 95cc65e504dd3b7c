"""The agent's end of the socket, with the real other end."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from admission.node_policies import CAP_NOTE
from nodeagent.core.enforcement.messages import Done, Report, framed, read_caps, write_report
from nodeagent.core.enforcement.overuse import MIB, Action, Key, Kill, Process, Sample
from nodeagent.enforcement.memory import EnforcerLink, note
from nodeagent.enforcement.memory_enforcer import loop
from nodeagent.listener import Listener

ABOVE = "1500 MiB of GPU-1 are in use, the cap is 1000 MiB"


def done(*outcomes: str, names: tuple[str, ...] = ("train",), dry: bool = False) -> Done:
    victims = tuple(Process(number, 1, 1500 * MIB, None, "uid", name=name) for number, name in enumerate(names))
    return Done(Kill("uid", "GPU-1", 1500 * MIB + 1, 1000, Action.END_LARGEST, victims, dry), outcomes)


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (done("ended"), f"{ABOVE}: process train was killed"),
        (done("ended", "ended", "gone", names=("a", "b", "c")), f"{ABOVE}: process a was killed; so for 2 more"),
        (done(dry=True), f"{ABOVE}: process train would be killed; the memory enforcer is in dry run and kills nobody"),
        (done("ended", names=("",)), f"{ABOVE}: process without a name was killed"),
        (done("ended", names=("a\nb\u202ec",)), f"{ABOVE}: process a?b?c was killed"),
        (done(names=()), ABOVE),
        (done("a word of a later version"), f"{ABOVE}: process train is in an unknown state"),
    ],
)
def test_use_cap_and_what_became_of_the_largest_process_are_said(of: Done, said: str) -> None:
    assert note(of) == said


@pytest.mark.parametrize("word", [loop.ENDED, loop.ASKED, loop.GONE, loop.OTHER, loop.REFUSED])
def test_each_outcome_of_the_enforcer_has_words(word: str) -> None:
    assert "unknown" not in note(done(word))


@pytest.mark.parametrize("word", [loop.ENDED, loop.ASKED, loop.GONE, loop.OTHER, loop.REFUSED, "?"])
@pytest.mark.parametrize("is_dry", [False, True])
def test_every_note_is_of_the_form_that_the_policy_of_events_allows(word: str, *, is_dry: bool) -> None:
    for names in ((), ("a: b" * 16,), ("\n" * 64, *["x"] * 10_000)):
        assert re.match(CAP_NOTE, note(done(word, names=names, dry=is_dry))) is not None


POD = "3f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e"
CAPS: dict[Key, int] = {(POD, "GPU-1"): 1024}


@dataclass
class Both:
    """``turn`` lets both ends work until something holds; the test fails by its deadline."""

    path: Path
    heard: list[Report] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    happened: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.link = EnforcerLink(self.path, on_report=self._hear, say=self._say)
        self.listener = self.listen()

    def _hear(self, report: Report) -> None:
        self.heard.append(report)
        self.happened.set()

    def _say(self, what: str) -> None:
        self.said.append(what)
        self.happened.set()

    def listen(self) -> Listener[dict[Key, int]]:
        return Listener(str(self.path), read=read_caps, say=self.said.append)

    async def until_capped(self, caps: dict[Key, int]) -> None:
        with anyio.fail_after(30):
            while self.listener.said != caps:
                self.listener.wait(0)
                await anyio.sleep(0.001)

    async def report(self, said: bytes) -> None:
        """Send it, and let the other end hear it."""
        self.happened = anyio.Event()
        assert self.listener.send(said)
        with anyio.fail_after(30):
            await self.happened.wait()


@asynccontextmanager
async def both(path: Path) -> AsyncIterator[Both]:
    made = Both(path / "memory-enforcer.sock")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.link.run)
        yield made
        tasks.cancel_scope.cancel()
    made.listener.close()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_caps_go_down_when_they_change(tmp_path: Path) -> None:
    async with both(tmp_path) as on:
        await on.until_capped({})
        on.link.cap(CAPS)
        await on.until_capped(CAPS)
        on.link.cap({})
        await on.until_capped({})


async def test_an_enforcer_that_was_started_again_is_sent_the_caps_again(tmp_path: Path) -> None:
    async with both(tmp_path) as on:
        on.link.cap(CAPS)
        await on.until_capped(CAPS)
        on.listener.close()
        on.listener = on.listen()
        assert on.listener.said is None
        await on.until_capped(CAPS)
        assert on.said == ["no memory enforcer: it closed the connection"]


async def test_reports_come_up(tmp_path: Path) -> None:
    async with both(tmp_path) as on:
        await on.until_capped({})
        reports = [Report(Sample(time.monotonic_ns())), Report(Sample(time.monotonic_ns()), caps=0)]
        for report in reports:
            await on.report(write_report(report))
        assert on.heard == reports


async def test_what_is_no_report_ends_the_connection_and_the_next_one_works(tmp_path: Path) -> None:
    async with both(tmp_path) as on:
        await on.until_capped({})
        await on.report(framed({"at": "now"}))
        assert on.said[0].startswith("no memory enforcer: what it sent is no report")
        on.link.cap(CAPS)
        await on.until_capped(CAPS)
