"""The list for a real GPU, tried on stubs of NVML and CUDA: what works here has no mistake of its own there."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.nodeagent.enforcement.memory_enforcer.conftest import ROOT
from tests.nodeagent.groups import hierarchy
from tests.nodeagent.mps.mps_daemon.conftest import STUB as MPS_STUB
from tools.nvml_stub.build import build
from tools.realgpu.rows import ROWS

pytestmark = pytest.mark.thorough

UUID = "GPU-5f2c1a90-0000-4000-8000-000000000001"
_SOURCE = Path(__file__).with_name("cuda_stub.c")


class Machine:
    """A GPU of a text file; processes that have ended hold nothing of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "machine"
        # A driver older than r615: the stub has limits, and its CUDA does not go by them.
        older = "".join(f"fail nvmlDevice{verb}MemoryLimits_v1 13\n" for verb in ("Get", "Set"))
        self.file.write_text(f"gpu {UUID} NVIDIA_H200 143771 0\n{older}")
        self.libraries = build(folder)
        command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]
        subprocess.run([*command, self.libraries / "libcuda.so.1", _SOURCE], check=True)
        self._is_over = threading.Event()
        self._sweeper = threading.Thread(target=self._sweep)
        self._sweeper.start()

    def close(self) -> None:
        self._is_over.set()
        self._sweeper.join()

    def _sweep(self) -> None:
        """A line is made a comment in its place, since others append to the file meanwhile."""
        while not self._is_over.wait(0.02):
            content = self.file.read_bytes() if self.file.is_file() else b""
            at = 0
            for line in content.splitlines(keepends=True):
                words = line.split()
                if words[:1] == [b"proc"] and not Path(f"/proc/{int(words[1])}").exists():
                    with self.file.open("r+b") as file:
                        file.seek(at)
                        file.write(b"#")
                at += len(line)

    def run(self, *arguments: str, **more: str) -> tuple[int, dict[str, dict[str, Any]]]:
        """The exit code, and the outcome of each row that was tried."""
        out = self.folder / "out"
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.libraries),
            "FAKE_NVML_STATE": str(self.file),
            "PYTHONPATH": str(ROOT),
            **more,
        }
        done = subprocess.run(
            [sys.executable, "-m", "tools.realgpu", "--out", str(out), *arguments],
            cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        report = json.loads((out / "report.json").read_text())
        assert done.stdout == (out / "report.txt").read_text(), done.stderr
        return done.returncode, {row["name"]: row["outcome"] for row in report["rows"]}


def commands() -> list[str]:
    """The command lines of this machine's processes."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.close()


def test_every_row_runs_and_the_emulated_gpu_is_as_expected_where_it_can_be(machine: Machine) -> None:
    began = time.monotonic()
    code, rows = machine.run()
    assert list(rows) == [row.name for row in ROWS]
    assert time.monotonic() - began < 170
    verdicts = {name: outcome["verdict"] for name, outcome in rows.items()}
    why = json.dumps(rows, indent=1)
    # A machine whose kubelet gives out GPUs refuses the share; tests run on none.
    for name in ("sample", "cost", "fault", "run"):
        assert verdicts[name] == "as expected", why
    assert verdicts["ending"] == ("as expected" if hierarchy() else "not possible"), why
    assert rows["sample"]["seen"]["context MiB"] == 300
    assert rows["fault"]["seen"]["XIDs"] == [31]
    assert rows["fault"]["seen"]["the program"].startswith("refused cuCtxSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS")
    assert f"0.500 of GPU 0 ({UUID})" in rows["run"]["seen"]["said"]
    assert rows["machine"]["seen"]["total MiB"] == 143771
    # The stub's driver tells neither recovery actions nor row remapping, and has no limits, MPS and profiles.
    assert verdicts["health"] == "not as expected", why
    for name in (
        "driver-limits",
        "enforcer-limits",
        "mps-limits",
        "mps-namespaces",
        "placements",
        "runtime-caps",
        "hami-core",
        "mps-modes",
        "mig-layout",
    ):
        assert verdicts[name] == "not possible", why
        assert rows[name]["why"]
    assert code == 1


ABOVE, ROOT_MEMORY, ROOT_PERCENT = (
    "an allocation above the namespace's limit is refused",
    "root can't raise its memory limit",
    "root can't raise its percentage",
)


@pytest.mark.parametrize(
    ("under_mps", "answers"),
    [
        ("", {ABOVE: "no", ROOT_MEMORY: "no", ROOT_PERCENT: "could not be asked"}),
        ("limited", dict.fromkeys((ABOVE, ROOT_MEMORY, ROOT_PERCENT), "yes")),
        ("broken", dict.fromkeys((ABOVE, ROOT_MEMORY, ROOT_PERCENT), "could not be asked")),
    ],
)
def test_each_question_about_mps_is_answered_or_said_not_to_have_been_asked(
    machine: Machine, under_mps: str, answers: dict[str, str]
) -> None:
    """NVIDIA's program is a stand-in. The stub of CUDA limits its clients, refuses them, or does neither."""
    program = machine.libraries / "nvidia-cuda-mps-control"
    program.write_text(f"#!{sys.executable} -SE\n{MPS_STUB.read_text()}")
    program.chmod(0o755)
    environment = {
        "PATH": f"{machine.libraries}:{os.environ['PATH']}",
        "FAKE_MPS_JOINS": "tools.realgpu.hold",
        "FAKE_CUDA_UNDER_MPS": under_mps,
    }
    code, rows = machine.run("mps-namespaces", **environment)
    found = rows["mps-namespaces"]
    if os.geteuid() != 0:
        assert found["verdict"] == "not possible"
        return
    seen = {question: answer.partition(":")[0] for question, answer in found["seen"].items()}
    servers, namespaces = found["seen"]["servers"], found["seen"]["namespaces"]
    assert ",Ready," in servers
    assert UUID in servers
    assert "4096M,25.00" in namespaces
    del seen["servers"], seen["namespaces"]
    assert set(seen.values()) <= {"yes", "no", "could not be asked"}
    assert seen["a server without clients is listed as Ready"] == "yes"
    assert seen["a limit of 24467 MiB is read back"] == "yes"
    assert {question: seen[question] for question in answers} == answers, found["seen"]
    assert seen["a client is listed by the host's PID"] != "no"
    # The stand-in removes all folders at its start.
    assert seen["folders stay when the control daemon starts again"] == "no"
    assert (found["verdict"], code) == ("not as expected", 1)
    assert not any(MPS_STUB.name in line or "mps-control -f" in line for line in commands())


def test_a_process_that_gets_no_memory_is_told_by_the_drivers_word(machine: Machine) -> None:
    machine.file.write_text(f"gpu {UUID} NVIDIA_H200 4000 0\n")
    code, rows = machine.run("sample")
    assert rows["sample"]["verdict"] == "not possible"
    assert "CUDA_ERROR_OUT_OF_MEMORY" in rows["sample"]["why"]
    assert code == 0


def test_a_driver_that_hangs_costs_its_row_and_no_row_begins_after_the_time(machine: Machine) -> None:
    machine.file.unlink()
    os.mkfifo(machine.file)
    code, rows = machine.run("machine", "health", "--within", "2")
    assert {name: outcome["verdict"] for name, outcome in rows.items()} == dict.fromkeys(rows, "no answer")
    assert rows["machine"]["why"].startswith("nothing within")
    assert rows["health"]["why"] == "no time was left"
    assert code == 1


def test_most_rows_need_no_package_but_nvidias(tmp_path: Path) -> None:
    """Without the packages of this environment: -S leaves them out."""
    (tmp_path / "pynvml.py").symlink_to(pynvml.__file__)
    modules = {row.what.partition(".")[0] for row in ROWS if row.what} - {"events"}
    program = "".join(f"import tools.realgpu.{one}\n" for one in {*modules, "hold", "__main__"})
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"{program}import nodeagent.enforcement.memory_enforcer.main"],
        cwd=ROOT, env={"PYTHONPATH": f"{tmp_path}:{ROOT}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert modules == {"sampling", "limits", "mpsnamespaces"}


def test_a_row_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.realgpu", "--out", str(tmp_path), "nonsense"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "nonsense: no such row; there are machine, health" in done.stderr
