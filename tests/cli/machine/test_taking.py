"""Taking GPUs in virtual time: who waits, for how long, and what becomes of commands that ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typing_extensions import override

from cli.machine.books import Folder, Processes, Site
from cli.machine.placement import Ask, Gpu, Shortfall
from gpu.book import Book, Entry
from gpu.share import NANO_PER_DEVICE

WHOLE = NANO_PER_DEVICE
HALF = Ask(1, 1, WHOLE // 2)
GPUS = [Gpu(0, "GPU-a", 1000), Gpu(1, "GPU-b", 1000)]


class Told(Processes):
    """Processes of which a test says who lives."""

    def __init__(self, *alive: str, boot: str = "today") -> None:
        super().__init__()
        self.boot = boot
        self.alive = set(alive)

    @override
    def is_alive(self, key: str) -> bool:
        return key in self.alive


class Hours:
    """Time that passes only where somebody sleeps. ``then``: what happens at a time."""

    def __init__(self, then: dict[float, Callable[[], object]] | None = None) -> None:
        self.now_s = 100.0
        self.then = then or {}

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        for at in [at for at in self.then if 100 + at <= self.now_s]:
            self.then.pop(at)()


class Machine:
    """Two GPUs in a folder."""

    def __init__(self, path: Path) -> None:
        self.folder = Folder(path)
        self.processes = Told("1.1.1", "2.2.2")
        self.site = Site(GPUS, self.folder, self.processes)
        self.told: list[str] = []

    def has(self, uuid: str, key: str, nano: int, *, boot: str = "today") -> None:
        entries = dict(self.folder.book(uuid).entries)
        entries[key] = Entry(nano=nano, attempt=boot, rv="", since=0, pod="a/b")
        self.folder.write(uuid, Book(entries))

    def take(self, ask: Ask, wait_s: float = 0, hours: Hours | None = None) -> list[int] | Shortfall:
        hours = hours or Hours()
        found = self.site.take(
            ask, "me/train", 7, wait_s=wait_s, tell=self.told.append, now=hours.now, sleep=hours.sleep
        )
        return found if isinstance(found, Shortfall) else [gpu.index for gpu in found]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_command_is_written_into_the_book_of_its_gpu(machine: Machine) -> None:
    assert machine.take(HALF) == [0]
    entry = Entry(nano=WHOLE // 2, attempt="today", rv="", since=7, pod="me/train")
    key = machine.processes.own_key()
    assert machine.folder.book("GPU-a").entries == {key: entry}
    assert machine.folder.is_held(key)


def test_who_ended_counts_no_more(machine: Machine) -> None:
    machine.has("GPU-a", "1.1.1", WHOLE)
    machine.has("GPU-b", "2.2.2", WHOLE)
    assert isinstance(machine.take(HALF), Shortfall)
    machine.processes.alive.discard("2.2.2")
    assert machine.take(HALF) == [1]
    assert list(machine.folder.book("GPU-b").entries) == [machine.processes.own_key()]


def test_after_a_reboot_all_is_free_though_the_same_keys_live(machine: Machine) -> None:
    """The folder may be on a disk, and the first processes of a boot have the same PIDs and start times each time."""
    machine.has("GPU-a", "1.1.1", WHOLE, boot="yesterday")
    machine.has("GPU-b", machine.processes.own_key(), WHOLE, boot="yesterday")
    assert [gpu.book.free_nano for gpu in machine.site.standing()] == [WHOLE, WHOLE]
    assert machine.take(Ask(2, 2, WHOLE)) == [0, 1]


def test_who_waits_gets_it_at_the_next_look_and_says_why_it_waits_once_a_reason(machine: Machine) -> None:
    machine.has("GPU-a", "1.1.1", WHOLE)
    machine.has("GPU-b", "2.2.2", WHOLE)
    hours = Hours({
        20: lambda: machine.has("GPU-b", "2.2.2", WHOLE * 3 // 4),
        60: lambda: machine.processes.alive.discard("1.1.1"),
    })  # fmt: skip
    assert machine.take(HALF, 600, hours) == [0]
    assert hours.now_s == 160
    assert machine.told == [
        "waiting: 0.5 of a GPU requested, no GPU has that free, the most is 0",
        "waiting: 0.5 of a GPU requested, no GPU has that free, the most is 0.25",
    ]


@pytest.mark.parametrize("wait_s", [0, 10.25])
def test_the_wait_ends_when_its_time_is_over(machine: Machine, wait_s: float) -> None:
    machine.has("GPU-a", "1.1.1", WHOLE)
    hours = Hours()
    assert isinstance(machine.take(Ask(2, 2, WHOLE), wait_s, hours), Shortfall)
    assert hours.now_s == 100 + wait_s
    assert list(machine.folder.book("GPU-b").entries) == []


def test_what_the_machine_can_never_give_is_not_waited_for(machine: Machine) -> None:
    found = machine.take(Ask(3, 3, WHOLE), 600)
    assert isinstance(found, Shortfall)
    assert found.is_for_ever
    assert machine.told == []


def test_a_gpu_with_a_book_that_cannot_be_read_is_left_alone(machine: Machine) -> None:
    (machine.folder.path / "GPU-a.json").write_text("{")
    assert machine.take(HALF) == [1]
    found = machine.take(Ask(2, 2, WHOLE))
    assert isinstance(found, Shortfall)
    assert found.shown().startswith(
        "2 whole GPUs requested, suitable GPUs on this machine: 1; GPU 0 is not used: GPU-a.json can't be read ("
    )
    assert (machine.folder.path / "GPU-a.json").read_text() == "{"


def test_files_of_commands_that_ended_are_swept(machine: Machine) -> None:
    (machine.folder.path / "3.3.3.held").touch()
    machine.take(HALF)
    assert [each.name for each in machine.folder.path.glob("*.held")] == [f"{machine.processes.own_key()}.held"]
