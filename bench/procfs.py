"""What the kernel says of a process: CPU seconds and memory (Linux)."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int | str) -> float:
    """User and system time of all its threads so far, in seconds (steps of 10 ms)."""
    # The name of the program, in parentheses, may hold anything; what follows it is fixed.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def main_thread_cpu_s(pid: int) -> float:
    """How long its first thread has been on a processor so far, in seconds (steps of 1 ns)."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


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
