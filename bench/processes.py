"""Processes that are measured: their bytecode, CPU seconds and memory (Linux), and parts that are programs of their
own.

Without bytecode, as an installed program has it, each start would compile every module, and that would be measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.result import Figures

_EVERYTHING = (
    "import cli.main, runtime.processes.scheduler, runtime.processes.binder, runtime.processes.admission, "
    "runtime.processes.nodeagent, "
    "runtime.processes.device_plugin, nodeagent.enforcement.memory_enforcer.main"
)


@contextmanager
def bytecode() -> Iterator[None]:
    """Let child processes keep their bytecode in a folder of their own, and fill it."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="moorage-bytecode-") as folder:
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        try:
            subprocess.run([sys.executable, "-c", _EVERYTHING], check=True)
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int | str) -> float:
    """User and system time of all its threads so far, in seconds (steps of 10 ms)."""
    # The name of the program, in parentheses, may hold anything; what follows it is fixed.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def cores() -> list[int]:
    """The numbers of the cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def pin(pid: int, core: int) -> None:
    """Keep all threads that a process has, and those that they start, on one core."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


def memory_mib(pid: int | str = "self") -> dict[str, float]:
    """Resident memory now and at its peak."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return {
        "resident_mib": round(int(lines["VmRSS"].split()[0]) / 1024, 1),
        "peak_mib": round(int(lines["VmHWM"].split()[0]) / 1024, 1),
    }


def child_named(program: str) -> int:
    """The process id of the child of this process that runs ``program``. Raises LookupError."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == os.getpid() and Path(words[0].decode()).name == program:
            return int(folder.name)
    raise LookupError(f"no child process runs {program}")


_WITHIN_S = 1800.0


def divisor(about: str, arguments: Sequence[str] | None = None) -> int:
    """Read the command line of a program of its own: by what its sizes are divided."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, to see that it runs")
    return 10 if parser.parse_args(arguments).quick else 1


def report(name: str, **figures: object) -> None:
    """Print figures as ``measure_standalone`` reads them."""
    sys.stdout.write(json.dumps({"bench": name, **figures}) + "\n")
    sys.stdout.flush()


def seconds(work: Callable[[], object]) -> float:
    """CPU time of this process for a piece of work."""
    start = time.process_time()
    work()
    return time.process_time() - start


def us(seconds: float) -> float:
    """Microseconds, as they are printed."""
    return round(seconds * 1e6, 1)


def ms(seconds: float) -> float:
    """Milliseconds, as they are printed."""
    return round(seconds * 1e3, 2)


def measure_standalone(part: str) -> Figures:
    """Run ``python -m bench.PART``. Raises subprocess.CalledProcessError when it fails."""
    command = [sys.executable, "-m", f"bench.{part}"]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=_WITHIN_S).stdout
    return Figures(sizes={}, figures=_by_name(msgspec.json.decode(b"[" + _joined(told) + b"]")))


def _joined(told: bytes) -> bytes:
    """One object, or one a line, as the elements of a list."""
    if told.lstrip().startswith(b"{\n"):
        return told
    return b",".join(line for line in told.splitlines() if line.strip())


def _by_name(found: list[dict[str, Any]]) -> dict[str, Any]:
    """A single object is the figures; several are named by their ``bench``, numbered where a name comes again."""
    if len(found) == 1:
        return found[0]
    figures: dict[str, Any] = {}
    for one in found:
        name = str(one.pop("bench", "")).rpartition(".")[2]
        figures[name if name not in figures else f"{name}_{sum(key.startswith(name) for key in figures) + 1}"] = one
    return figures
