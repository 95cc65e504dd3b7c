"""Taking GPUs in virtual time: who waits, for how long, and what becomes of commands that ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from cli.machine.books import Folder, Processes, Site
from cli.machine.placement import Ask, Gpu, Shortfall, place, requested
from cli.run import print_list
from gpu.book import Book, Entry
from gpu.share import NANO_PER_DEVICE
from runtime.text import BadInput

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
    assert [gpu.book.free_nano for gpu in machine.site.gpus()] == [WHOLE, WHOLE]
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


# What a line of ``moorage run`` requests, and which GPUs that gets.

GIB = 1024
ENTRY = Entry(nano=0, attempt="boot", rv="", since=0, pod="a/train")


def gpu(index: int, *taken: int, mem_mib: int = 80 * GIB, why_closed: str = "") -> Gpu:
    entries = {
        f"{index}.{at}.1": Entry(nano=nano, attempt="b", rv="", since=0, pod="") for at, nano in enumerate(taken)
    }
    return Gpu(index, f"GPU-{index}", mem_mib, why_closed, Book(entries))


def placed(ask: Ask, *gpus: Gpu) -> list[tuple[int, int]]:
    found = place(ask, gpus, "key", ENTRY)
    assert not isinstance(found, Shortfall), found.shown()
    assert all(one.book.entries["key"].nano == one.charged_nano for one in found)
    return [(one.index, one.charged_nano) for one in found]


@pytest.mark.parametrize(
    ("gpus", "memory", "asks"),
    [
        ("0.5", None, Ask(1, 1, WHOLE // 2)),
        ("0.123456789", None, Ask(1, 1, 123_456_789)),
        ("500m", None, Ask(1, 1, WHOLE // 2)),
        ("1", None, Ask(1, 1, WHOLE)),
        ("1.0", None, Ask(1, 1, WHOLE)),
        ("2", None, Ask(2, 2, WHOLE)),
        ("1-4", None, Ask(1, 4, WHOLE)),
        ("3-3", None, Ask(3, 3, WHOLE)),
        (None, "4Gi", Ask(1, 1, 0, 4 * GIB)),
        (None, "1000000", Ask(1, 1, 0, 1)),
        ("0.5", "4Gi", Ask(1, 1, WHOLE // 2, 4 * GIB)),
        ("2", "40Gi", Ask(2, 2, WHOLE, 40 * GIB)),
    ],
)
def test_a_line_requests_a_part_or_whole_gpus(gpus: str | None, memory: str | None, asks: Ask) -> None:
    assert requested(gpus, memory) == asks


@pytest.mark.parametrize(
    ("gpus", "memory", "begins"),
    [
        (None, None, "--gpus: missing; give a part as in 0.5"),
        ("1.5", None, "--gpus: '1.5' is not a part as in 0.5"),
        ("0", None, "--gpus: '0' is not above 0"),
        ("-1", None, "--gpus: '-1' is not above 0"),
        ("4-1", None, "--gpus: '4-1' is not a part"),
        ("1000", None, "--gpus: '1000' is not a part"),
        ("0-2", None, "--gpus: '0-2' is not a part"),
        ("all", None, "--gpus: 'all' is not a part"),
        ("9" * 200, None, "--gpus: '99"),
        ("0.5", "lots", "--gpu-memory: 'lots' is not memory of one GPU"),
        (None, "0", "--gpu-memory: '0' is not above 0"),
    ],
)
def test_other_lines_are_refused_with_what_is_allowed(gpus: str | None, memory: str | None, begins: str) -> None:
    with pytest.raises(BadInput) as refused:
        requested(gpus, memory)
    told = str(refused.value).replace("quantity ", "")
    assert told.startswith(begins)
    assert len(told) < 260


@pytest.mark.parametrize(
    ("ask", "gpus", "expected"),
    [
        (Ask(1, 1, 500_000_000), [gpu(0), gpu(1, 400_000_000)], [(1, 500_000_000)]),
        (Ask(1, 1, 700_000_000), [gpu(0), gpu(1, 400_000_000)], [(0, 700_000_000)]),
        (Ask(1, 1, 500_000_000), [gpu(0), gpu(1)], [(0, 500_000_000)]),
        (Ask(2, 2, WHOLE), [gpu(0), gpu(1, 1), gpu(2)], [(0, WHOLE), (2, WHOLE)]),
        (Ask(1, 4, WHOLE), [gpu(0, 1), gpu(1), gpu(2)], [(1, WHOLE), (2, WHOLE)]),
        (Ask(1, 2, WHOLE), [gpu(0), gpu(1), gpu(2)], [(0, WHOLE), (1, WHOLE)]),
        (Ask(1, 1, 0, 20 * GIB), [gpu(0, mem_mib=16 * GIB), gpu(1)], [(1, WHOLE // 4)]),
        (Ask(1, 1, 0, 20 * GIB), [gpu(0), gpu(1, mem_mib=40 * GIB)], [(1, WHOLE // 2)]),
        (Ask(1, 1, 900_000_000, 20 * GIB), [gpu(0)], [(0, 900_000_000)]),
        (Ask(1, 1, 100_000_000, 20 * GIB), [gpu(0)], [(0, WHOLE // 4)]),
        (Ask(1, 2, WHOLE, 60 * GIB), [gpu(0, mem_mib=40 * GIB), gpu(1)], [(1, WHOLE)]),
        (Ask(1, 1, WHOLE), [gpu(0, why_closed="its MIG mode is on"), gpu(1)], [(1, WHOLE)]),
        (Ask(1, 1, 1), [gpu(0, mem_mib=0)], [(0, 1)]),
    ],
    ids=str,
)
def test_the_fullest_gpus_that_fit_come_first(ask: Ask, gpus: list[Gpu], expected: list[tuple[int, int]]) -> None:
    assert placed(ask, *gpus) == expected


@pytest.mark.parametrize(
    ("ask", "gpus", "told", "for_ever"),
    [
        (Ask(1, 1, WHOLE // 2), [gpu(0, 750_000_000), gpu(1, 800_000_000)],
         "0.5 of a GPU requested, no GPU has that free, the most is 0.25", False),
        (Ask(2, 2, WHOLE), [gpu(0), gpu(1, 1)], "2 whole GPUs requested, suitable GPUs: 2, free now: 1", False),
        (Ask(3, 4, WHOLE), [gpu(0), gpu(1)], "3 to 4 whole GPUs requested, suitable GPUs on this machine: 2", True),
        (Ask(1, 1, 0, 90 * GIB), [gpu(0)],
         "a part of a GPU with 92160 MiB requested, suitable GPUs on this machine: 0", True),
        (Ask(1, 1, WHOLE, 90 * GIB), [gpu(0)],
         "1 whole GPU with 92160 MiB requested, suitable GPUs on this machine: 0", True),
        (Ask(1, 1, 0, 1), [gpu(0, mem_mib=0)],
         "a part of a GPU with 1 MiB requested, suitable GPUs on this machine: 0", True),
        (Ask(1, 1, WHOLE), [gpu(0, 1), gpu(1, why_closed="its MIG mode is on")],
         "1 whole GPU requested, suitable GPUs: 1, free now: 0; GPU 1 is not used: its MIG mode is on", False),
        (Ask(1, 1, WHOLE), [], "1 whole GPU requested, suitable GPUs on this machine: 0", True),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_missing_is_told(ask: Ask, gpus: list[Gpu], told: str, for_ever: bool) -> None:
    found = place(ask, gpus, "key", ENTRY)
    assert isinstance(found, Shortfall)
    assert (found.shown(), found.is_for_ever) == (told, for_ever)


@given(
    taken=st.lists(st.lists(st.integers(1, WHOLE // 3), max_size=3), max_size=5),
    ask=st.builds(
        lambda least, more, nano, mem: Ask(least, least + more, nano, mem) if nano == WHOLE else Ask(1, 1, nano, mem),
        st.integers(1, 3),
        st.integers(0, 3),
        st.one_of(st.just(WHOLE), st.integers(1, WHOLE)),
        st.integers(0, 90 * GIB),
    ),
)
def test_no_gpu_is_ever_given_beyond_what_it_has(taken: list[list[int]], ask: Ask) -> None:
    """And what is refused is really not there: counted without books."""
    gpus = [gpu(index, *each) for index, each in enumerate(taken)]
    free = {index: WHOLE - sum(each) for index, each in enumerate(taken)}
    need = max(ask.nano, ask.mem_mib * WHOLE // (80 * GIB))
    fitting = [index for index in free if need <= free[index] and ask.mem_mib <= 80 * GIB]
    found = place(ask, gpus, "key", ENTRY)
    if isinstance(found, Shortfall):
        assert len(fitting) < ask.least
        return
    assert len(found) == min(ask.most, len(fitting))
    assert all(one.index in fitting and one.book.total_nano <= WHOLE for one in found)


# GPUs and commands as ``moorage run --list`` prints them.

SHARED = Book(
    {
        "20.1.1": Entry(nano=250_000_000, attempt="b", rv="", since=1_767_323_045, pod="ada/train"),
        "3.1.1": Entry(nano=500_000_000, attempt="b", rv="", since=10**15, pod="bob/\x1b[2J"),
        "nonsense": Entry(nano=1, attempt="b", rv="", since=-5, pod="eve/x"),
    }
)
LISTING_GPUS = [Gpu(0, "GPU-a", 46068, "", SHARED), Gpu(1, "GPU-b", 0), Gpu(2, "GPU-c", 80000, "its MIG mode is on")]


def test_people_get_a_line_for_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    print_list(LISTING_GPUS, form="table", has_headers=True)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "GPU   UUID    MEMORY      FREE          SHARE         PID   COMMAND              SINCE",
        "0     GPU-a   46068 MiB   0.249999999   0.000000001   0     eve/x                1970-01-01T00:00:00Z",
        "0     GPU-a   46068 MiB   0.249999999   0.5           3     bob/\\x1b[2J          3000-01-01T00:00:00Z",
        "0     GPU-a   46068 MiB   0.249999999   0.25          20    ada/train            2026-01-02T03:04:05Z",
        "1     GPU-b   -           1             -             -     -                    -",
        "2     GPU-c   80000 MiB   0             -             -     its MIG mode is on   -",
    ]


def test_programs_get_exact_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    print_list(LISTING_GPUS[:1], form="json", has_headers=True)
    (gpu,) = json.loads(capsys.readouterr().out)
    assert gpu.pop("commands")[2] == {
        "pid": 20,
        "command": "ada/train",
        "nano": 250_000_000,
        "since": "2026-01-02T03:04:05Z",
    }
    assert gpu == {"index": 0, "uuid": "GPU-a", "memMiB": 46068, "freeNano": 249_999_999, "whyClosed": ""}
