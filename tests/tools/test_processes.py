from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tools.processes import Family, ProcessDied


def end_of(pid: int, *, within_s: float = 60.0) -> bool:
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
    for _ in range(6000):
        if path.exists() and (text := path.read_text()).endswith("\n"):
            return text
        time.sleep(0.01)
    raise TimeoutError(path)


def test_a_program_that_ended_is_told_with_its_exit_code_and_the_end_of_its_log(tmp_path: Path) -> None:
    family = Family(tmp_path)
    child = family.start("boiler", ["sh", "-c", "echo no water; exit 3"])
    child.process.wait(60)
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


#: Listens, and has so much memory that its end takes a moment.
_LARGE = """
import pathlib, socket, sys, time
held = bytearray(b"x") * (256 << 20)
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], file=pathlib.Path("port").open("w"), flush=True)
    time.sleep(600)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_when_a_program_is_killed_what_it_has_started_has_ended_and_its_ports_are_free(
    tmp_path: Path, end: str
) -> None:
    family = Family(tmp_path)
    # Like nsenter: the shell waits for the program, and ends before it.
    child = family.start("mother", ["sh", "-c", '"$0" -c "$1"; true', sys.executable, _LARGE])
    port = int(read_when_there(tmp_path / "port"))
    if end == "kill":
        family.kill(child)
    else:
        family.stop()
    with socket.socket() as next_one:
        next_one.bind(("127.0.0.1", port))
    family.stop()
