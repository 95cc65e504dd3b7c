"""The driver's stub in this process, and a memory enforcer with an agent on its socket."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nodeagent.core.enforcement.messages import Frames, Report, read_report, write_caps
from nodeagent.core.enforcement.overuse import Key
from tools.nvml_stub.build import LIBRARY, build

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="session")
def stub_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("stub"))


@dataclass
class Machine:
    """The GPUs and their processes, as the driver's stub tells them."""

    file: Path
    cards: dict[str, int] = field(default_factory=dict)
    processes: list[str] = field(default_factory=list)
    more: list[str] = field(default_factory=list)

    def write(self) -> None:
        """Put it in place at once, so that nobody reads a half."""
        cards = [f"gpu {uuid} NVIDIA_H100 {mib} {number}" for number, (uuid, mib) in enumerate(self.cards.items())]
        beside = self.file.with_suffix(".new")
        beside.write_text("".join(f"{line}\n" for line in [*cards, *self.more, *self.processes]))
        beside.replace(self.file)

    def hold(self, pid: int, card: str, mib: int | str, sm: int = 0) -> None:
        self.processes.append(f"proc {pid} {card} {mib} {sm}")
        self.write()

    def forget(self, pid: int) -> None:
        self.processes = [line for line in self.processes if line.split()[1] != str(pid)]
        self.write()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stub_folder: Path) -> Machine:
    """pynvml finds the library that has been loaded by its name."""
    ctypes.CDLL(str(stub_folder / LIBRARY), mode=ctypes.RTLD_GLOBAL)
    made = Machine(tmp_path / "machine", {"GPU-a": 80_000, "GPU-b": 40_000})
    monkeypatch.setenv("FAKE_NVML_STATE", str(made.file))
    made.write()
    return made


@dataclass
class Run:
    """A memory enforcer, and an agent on its socket."""

    path: Path
    environ: dict[str, str]
    process: subprocess.Popen[str] | None = None
    frames: Frames = field(default_factory=Frames)

    def start(self, *options: str) -> None:
        command = [
            sys.executable,
            "-m",
            "nodeagent.enforcement.memory_enforcer.main",
            "--socket",
            str(self.path),
            *options,
        ]
        self.process = subprocess.Popen(command, cwd=ROOT, env=self.environ, stderr=subprocess.PIPE, text=True)
        assert "begun" in self.line()
        self.agent = socket.socket(socket.AF_UNIX)
        self.agent.settimeout(30)
        self.agent.connect(str(self.path))

    def line(self) -> str:
        assert self.process is not None
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def cap(self, caps: dict[Key, int]) -> None:
        self.agent.sendall(write_caps(caps))
        while self.report().caps != len(caps):
            pass

    def report(self) -> Report:
        """The next one."""
        while True:
            for message in self.frames.cut(self.agent.recv(1 << 20)):
                return read_report(message)

    def end(self) -> None:
        """Whatever has become of it."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        self.process.communicate(timeout=30)
        self.agent.close()
        return self.process.returncode


def environ_of(stub_folder: Path, machine: Machine) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "PYTHONPYCACHEPREFIX": str(stub_folder.parent / "bytecode"),
        "LD_LIBRARY_PATH": str(stub_folder),
        "FAKE_NVML_STATE": str(machine.file),
    }


@pytest.fixture
def run(machine: Machine, stub_folder: Path, tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path / "run" / "memory-enforcer.sock", environ_of(stub_folder, machine))
    yield made
    made.end()
