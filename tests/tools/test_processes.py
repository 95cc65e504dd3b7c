from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tools.processes import Family, ProcessDied


def end_of(pid: int, *, within_s: float = 20.0) -> bool:
    """Wait until a process that need not be our child has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], within_s)[0])
    finally:
        os.close(handle)


def read_when_there(path: Path) -> str:
    """Wait for a line in a file that another process writes."""
    for _ in range(2000):
        if path.exists() and (text := path.read_text()).endswith("\n"):
            return text
        time.sleep(0.01)
    raise TimeoutError(path)


def test_a_program_that_ended_is_told_with_its_exit_code_and_the_end_of_its_log(tmp_path: Path) -> None:
    family = Family(tmp_path)
    child = family.start("boiler", ["sh", "-c", "echo no water; exit 3"])
    child.process.wait(20)
    with pytest.raises(ProcessDied, match=r"boiler ended with 3; its log ends:\n  no water"):
        family.check()
    family.stop()


def test_stopping_ends_what_the_programs_started_too(tmp_path: Path) -> None:
    family = Family(tmp_path)
    family.start("mother", ["sh", "-c", "sleep 600 & echo $! > daughter; exec sleep 600"])
    daughter = int(read_when_there(tmp_path / "daughter"))
    family.stop()
    assert end_of(daughter)


def test_when_the_owner_is_killed_its_programs_and_its_folder_go_too(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    owner = textwrap.dedent(
        f"""
        import pathlib, sys, time
        from tools.processes import Family
        family = Family(pathlib.Path({str(folder)!r}))
        print(family.start("sleeper", ["sleep", "600"]).process.pid, family._guard.pid, flush=True)
        time.sleep(600)
        """
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", owner], cwd=root, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        sleeper, guard = map(int, process.stdout.readline().split())
        process.send_signal(signal.SIGKILL)
    assert end_of(sleeper)
    assert end_of(guard)
    assert not folder.exists()


def test_memory_is_told_in_kib(tmp_path: Path) -> None:
    family = Family(tmp_path)
    script = "import time; held = b'x' * (64 << 20); print(file=open('holds', 'w')); time.sleep(600)"
    child = family.start("holder", [sys.executable, "-c", script])
    read_when_there(tmp_path / "holds")
    resident_kib = child.resident_kib()
    family.stop()
    assert 64 * 1024 < resident_kib < 128 * 1024


def test_after_a_stop_the_guard_is_gone_and_a_new_family_can_begin(tmp_path: Path) -> None:
    family = Family(tmp_path)
    for _ in range(2):
        child = family.start("sleeper", ["sleep", "600"])
        family.check()
        family.stop()
        assert child.process.returncode == -signal.SIGKILL
    assert tmp_path.exists()
