from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from trustme import CA

from tests.reservation.pod_server import NAME, NAMESPACE, PodServer, serving
from tools.nvml_stub.build import build

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def stub_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("stub"))


@pytest.fixture(scope="session")
def bytecode_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image ships compiled modules; here the first process writes them for the others."""
    return tmp_path_factory.mktemp("bytecode")


@pytest.fixture
def api() -> Iterator[PodServer]:
    with serving(PodServer()) as server:
        yield server


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A loopback port where nobody answers, and nobody else can begin to: it is bound, but does not listen."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@dataclass
class Launcher:
    """Starts reservation processes on a machine of its own (NVML state file) and ends those left over."""

    state_file: Path
    environ: dict[str, str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def machine(self, *lines: str) -> None:
        self.state_file.write_text("".join(f"{line}\n" for line in lines))

    def start(self, **environ: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "reservation.main"],
            cwd=ROOT,
            env={key: value for key, value in (self.environ | environ).items() if value},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def start_and_await_hold(self, **environ: str) -> subprocess.Popen[str]:
        """Return once the process says that it holds; the line is in the log of the failing test if it doesn't."""
        process = self.start(**environ)
        line = next_line(process)
        assert " holds " in line, line
        return process

    def run(self, **environ: str) -> tuple[int, str]:
        """Run a process that is to end by itself; its exit code and stderr."""
        process = self.start(**environ)
        _, stderr = process.communicate(timeout=60)
        return process.returncode, stderr


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline()


def stop(process: subprocess.Popen[str]) -> tuple[int, str]:
    """SIGTERM; the exit code and what was said from there on."""
    process.terminate()
    _, stderr = process.communicate(timeout=60)
    return process.returncode, stderr


@pytest.fixture
def launcher(tmp_path: Path, api: PodServer, stub_folder: Path, bytecode_folder: Path) -> Iterator[Launcher]:
    state_file = tmp_path / "machine"
    launcher = Launcher(
        state_file,
        {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "PYTHONPYCACHEPREFIX": str(bytecode_folder),
            "LD_LIBRARY_PATH": str(stub_folder),
            "FAKE_NVML_STATE": str(state_file),
            "POD_NAMESPACE": NAMESPACE,
            "POD_NAME": NAME,
            "MOORAGE_API_SERVER": api.url,
        },
    )
    yield launcher
    for process in launcher.started:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


@dataclass(frozen=True)
class Certificates:
    ca_file: Path
    server_context: ssl.SSLContext


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A certificate for 127.0.0.1, and the authority that signed it."""
    authority, ca_file = CA(), tmp_path_factory.mktemp("tls") / "ca.crt"
    authority.cert_pem.write_to_path(ca_file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return Certificates(ca_file, context)
