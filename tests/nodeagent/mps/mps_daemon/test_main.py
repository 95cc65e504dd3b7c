"""The MPS daemon's own process with the stub of NVIDIA's program, and who speaks to its socket."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.core.enforcement.messages import Frames, framed
from nodeagent.core.mps.control import Wanted
from nodeagent.core.mps.limits import Held, Report, read_report, write_wanted
from tests.nodeagent.core.mps.test_mpssteps import GPU, POD
from tests.nodeagent.enforcement.memory_enforcer.conftest import ROOT
from tests.nodeagent.mps.mps_daemon.conftest import Node

pytestmark = pytest.mark.thorough

MINE = Wanted(POD, GPU, 5_120, 30)


class Process:
    def __init__(self, folder: Path) -> None:
        Node(folder).close()
        self.folder, self.path = folder, folder / "run" / "mps-daemon.sock"
        command = [sys.executable, "-m", "cli.main", "mps-daemon", f"--socket={self.path}", f"--pipes={folder}/mps"]
        command += [f"--logs={folder}", f"--control={folder}/nvidia-cuda-mps-control", "--interval-s=1"]
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        assert self.process.stderr.readline().startswith("begun: pipe directory")

    def agent(self) -> socket.socket:
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(60)
        peer.connect(str(self.path))
        return peer

    def stop(self) -> int:
        self.process.terminate()
        self.process.communicate(timeout=60)
        return self.process.returncode


@pytest.fixture
def running(folder: Path) -> Iterator[Process]:
    made = Process(folder)
    yield made
    # Not killed: the control daemon would outlive it, and hold its output open.
    if made.process.poll() is None:
        made.stop()


def reports(peer: socket.socket) -> Iterator[Report]:
    frames = Frames()
    while read := peer.recv(1 << 16):
        yield from map(read_report, frames.cut(read))


def test_an_agent_sends_tenants_and_is_told_when_they_are_held_and_the_daemon_ends_with_its_mps_daemon(
    running: Process,
) -> None:
    with running.agent() as peer:
        peer.sendall(write_wanted([MINE]))
        assert next(report for report in reports(peer) if report.held) == Report((Held(MINE),))
    daemon = json.loads((running.folder / "state.json").read_text())["pid"]
    assert b"mps-control" in Path(f"/proc/{daemon}/cmdline").read_bytes()
    assert running.stop() == 0
    assert not Path(f"/proc/{daemon}").exists()


def test_an_mps_daemon_whose_daemon_hangs_stops(running: Process) -> None:
    with running.agent() as peer:
        peer.sendall(write_wanted([MINE]))
        next(report for report in reports(peer) if report.held)
        (running.folder / "behave").write_text(json.dumps({"hang": ""}))
        assert next(report for report in reports(peer) if report.is_down).why.startswith(
            "the MPS control daemon does not"
        )
    assert running.stop() == 0


def test_the_socket_is_for_one_user_and_takes_no_commands(running: Process) -> None:
    assert stat.S_IMODE(running.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(running.path.parent.stat().st_mode) == 0o700
    with running.agent() as peer:
        peer.sendall(write_wanted([MINE]))
        next(report for report in reports(peer) if report.held)
    for said in ({"tenants": [[POD, f"{GPU} --force", 1, 1]]}, {"tenants": [["x --force", GPU, 1, 1]]}, {"quit": True}):
        with running.agent() as attacker:
            attacker.sendall(framed(said))
            while attacker.recv(1 << 16):
                pass
    with running.agent() as attacker:
        attacker.sendall(b"\xff" * 100)
        while attacker.recv(1 << 16):
            pass
    with running.agent() as peer:
        assert next(reports(peer)) == Report((Held(MINE),))


def test_an_agent_of_a_later_version_gets_its_tenants_held(running: Process) -> None:
    with running.agent() as peer:
        peer.sendall(framed({"tenants": [[POD, GPU, 5_120, 30]], "later": {"x": 1}}))
        assert next(report for report in reports(peer) if report.held) == Report((Held(MINE),))


def test_a_socket_that_can_not_be_made_is_refused(folder: Path) -> None:
    (folder / "file").write_text("")
    command = [sys.executable, "-m", "nodeagent.mps.mps_daemon.main", f"--socket={folder}/file/mps-daemon.sock"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        f"--socket: {folder}/file/mps-daemon.sock: File exists; name a file in a folder that can be written\n",
    )
