from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodeagent.core.enforcement.overuse import Seen
from nodeagent.processes import Known, Processes, Seat
from tests.nodeagent.groups import Groups

POD = "3f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e"
OTHER = "00000000-1111-4222-8333-444444444444"
ID = "ab" * 32
NOBODYS = "0::/init.scope\n"


def put(proc: Path, pid: int, *, started: int = 500, name: str = "python", cgroup: str = NOBODYS) -> None:
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    before = " ".join(["S", "1", "1", "1", *["0"] * 15])
    (folder / "stat").write_text(f"{pid} ({name}) {before} {started} 9 9\n")
    (folder / "cgroup").write_text(cgroup)


def at(pod: str, container: str = ID) -> str:
    return f"0::/kubepods/burstable/pod{pod}/{container}\n"


def test_a_process_is_known_by_start_time_seat_and_name(tmp_path: Path) -> None:
    put(tmp_path, 7, cgroup=at(POD))
    put(tmp_path, 8)
    processes = Processes(str(tmp_path))
    assert processes.known(7) == Known(500, Seat(POD, ID), "python")
    assert processes.known(8) == Known(500, None, "python")
    assert processes.known(9) is None
    assert processes.seen(7) == Seen(500, POD)
    assert processes.seen(8) == Seen(500, "")
    assert processes.seen(9) is None


@pytest.mark.parametrize(
    ("name", "shown"), [("a) S 1 1 (b", "a) S 1 1 (b"), ("a\nb", "a?b"), (")", ")"), ("", ""), ("\x1b[31m", "?[31m")]
)
def test_a_process_may_call_itself_anything(tmp_path: Path, name: str, shown: str) -> None:
    put(tmp_path, 7, name=name)
    assert Processes(str(tmp_path)).known(7) == Known(500, None, shown)


@pytest.mark.parametrize("stat", ["", "7", "7 (a) S 1", "7 (a) " + "x " * 30])
def test_a_status_that_can_not_be_read_is_no_process(tmp_path: Path, stat: str) -> None:
    put(tmp_path, 7)
    (tmp_path / "7" / "stat").write_text(stat)
    assert Processes(str(tmp_path)).known(7) is None
    assert Processes(str(tmp_path)).seen(7) is None


def test_where_it_sits_is_kept_while_it_lives_and_looked_up_anew_for_another(tmp_path: Path) -> None:
    processes = Processes(str(tmp_path))
    put(tmp_path, 7, cgroup=at(POD))
    processes.known(7)
    (tmp_path / "7" / "cgroup").write_text(at(OTHER))
    assert processes.known(7) == Known(500, Seat(POD, ID), "python")
    assert processes.seen(7) == Seen(500, OTHER)
    put(tmp_path, 7, started=501, cgroup=at(OTHER))
    assert processes.known(7) == Known(501, Seat(OTHER, ID), "python")


def test_who_is_nobodys_yet_is_looked_up_again(tmp_path: Path) -> None:
    """A runtime starts a process, and then puts it into its group."""
    processes = Processes(str(tmp_path))
    put(tmp_path, 7)
    processes.known(7)
    (tmp_path / "7" / "cgroup").write_text(at(POD))
    assert processes.known(7) == Known(500, Seat(POD, ID), "python")


def test_nothing_is_kept_of_processes_without_a_gpu(tmp_path: Path) -> None:
    processes = Processes(str(tmp_path))
    for pid in (7, 8):
        put(tmp_path, pid, cgroup=at(POD))
        processes.known(pid)
    processes.forget_others({8})
    (tmp_path / "7" / "cgroup").write_text(at(OTHER))
    assert processes.known(7) == Known(500, Seat(OTHER, ID), "python")


def test_this_process_is_found_as_the_kernel_tells_it(groups: Groups, pod: str) -> None:
    one = groups.start(groups.container(pod, ID))
    known = Processes().known(one.pid)
    assert known == Known(known.started if known else 0, Seat(pod, ID), "sleep")
    mine = Processes().seen(os.getpid())
    assert mine is not None
    assert known is not None
    assert 0 < mine.started <= known.started
