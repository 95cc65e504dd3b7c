from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.core.mps.limits import read_wanted
from nodeagent.listener import Listener
from nodeagent.mps.mps_daemon.control import Control, Daemon
from nodeagent.mps.mps_daemon.loop import MpsDaemon
from nodeagent.processes import Processes
from tests.nodeagent.test_processes import NOBODYS, at, put

STUB = Path(__file__).with_name("mps_stub.py")


class Node:
    """An MPS daemon with the stub as NVIDIA's program; ``now_ns`` is its clock."""

    def __init__(self, folder: Path, *, patience_s: float = 30.0) -> None:
        self.folder, self.said, self.now_ns = folder, [""], 0
        self.program = folder / "nvidia-cuda-mps-control"
        self.program.write_text(f"#!{sys.executable} -SE\n{STUB.read_text()}")
        self.program.chmod(0o755)
        self.control = Control(str(self.program), pipes=folder / "mps", logs=folder, patience_s=patience_s)
        self.daemon = Daemon(self.control, say=self.said.append)
        self.listener = Listener(str(folder / "run" / "mps-daemon.sock"), read=read_wanted, say=self.said.append)
        (folder / "proc").mkdir()
        self.processes = Processes(str(folder / "proc"))
        self.mps_daemon = MpsDaemon(
            self.control,
            self.daemon,
            self.listener,
            interval_ns=10**9,
            processes=self.processes,
            say=self.said.append,
            clock_ns=lambda: self.now_ns,
        )

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "state.json").read_text())
        return found

    def change(self, **what: Any) -> None:
        """Change what the control daemon has, as its clients or its servers do."""
        (self.folder / "state.json").write_text(json.dumps(self.state | what))

    def program_of(self, pod: str, pid: int) -> None:
        """Have a process run in a container of a pod; "" for one of no pod."""
        put(self.folder / "proc", pid, cgroup=at(pod) if pod else NOBODYS)

    def behave(self, **how: Any) -> None:
        (self.folder / "behave").write_text(json.dumps(how))

    def serve(self) -> None:
        """Have the control daemon run and answer; it takes as long as a process takes to start."""
        for _ in range(3_000):
            if "does not answer" not in self.mps_daemon.turn().why:
                return
            os.sched_yield()
        raise AssertionError(self.said)

    def close(self) -> None:
        self.listener.close()
        self.daemon.stop()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: that of a namespace's socket is below it."""
    with tempfile.TemporaryDirectory(prefix="k") as made:
        yield Path(made)


@pytest.fixture
def node(folder: Path) -> Iterator[Node]:
    made = Node(folder)
    yield made
    made.close()
