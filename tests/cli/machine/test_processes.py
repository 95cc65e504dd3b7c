"""Which processes live, by keys that outlive them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.machine.books import Processes, pid_of
from tests.cli.machine.launcher import ROOT

OWN = Processes().own_key()
PID, START, NAMESPACE = OWN.split(".")


def test_a_process_that_runs_lives() -> None:
    assert Processes().is_alive(OWN)
    assert pid_of(OWN) == os.getpid()


@pytest.mark.parametrize(
    "key",
    [
        f"{PID}.{int(START) + 1}.{NAMESPACE}",
        f"{PID}.{START}.{int(NAMESPACE) + 1}",
        f"4194304.{START}.{NAMESPACE}",
        f"9999999.{START}.{NAMESPACE}",
        f"0.{START}.{NAMESPACE}",
        f"-1.{START}.{NAMESPACE}",
        f"self.{START}.{NAMESPACE}",
        f"../{PID}.{START}.{NAMESPACE}",
        f"{PID}.{START}",
        "",
        "9" * 5000,
    ],
    ids=["used again", "namespace", "none", "large", "zero", "negative", "self", "path", "short", "empty", "long"],
)  # fmt: skip
def test_others_do_not(key: str) -> None:
    assert not Processes().is_alive(key)


def test_the_key_stays_behind_an_exec_and_a_process_that_nobody_waited_for_is_dead(tmp_path: Path) -> None:
    told = tmp_path / "key"
    program = (
        "import os, sys; from cli.machine.books import Processes; from pathlib import Path;"
        "Path(sys.argv[1]).write_text(Processes().own_key()); os.execv('/bin/cat', ['cat', sys.argv[1], '-'])"
    )
    command = [sys.executable, "-c", program, str(told)]
    started = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    key = started.stdout.read(len(OWN) - len(PID) + len(str(started.pid)))
    assert pid_of(key) == started.pid
    assert Processes().is_alive(key)
    started.kill()
    os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{started.pid}/stat").exists()
    assert not Processes().is_alive(key)
    started.communicate(timeout=60)
    assert not Processes().is_alive(key)


@pytest.mark.parametrize("key", ["", "a.b.c", "1.2", "99999999.1.1"])
def test_what_is_no_key_has_no_pid(key: str) -> None:
    assert pid_of(key) == 0
