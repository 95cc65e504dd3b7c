"""The list: what is tried, what is expected, and how long it may take (docs/design/real-gpu.md).

A row comes to an outcome; the report of a run is JSON for programs, text for people. For as long as a row needs them,
processes hold memory of the GPU.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

#: A context of a GPU that was not used for a while takes seconds.
_STARTS_WITHIN_S: Final = 20.0


class Holder:
    """``tools.realgpu.hold`` in a process of its own. ``group``: the control group that it is in from the start.

    ``under``: a program that starts it.
    """

    def __init__(
        self,
        mib: int,
        *options: str,
        group: Path | None = None,
        environment: Mapping[str, str] | None = None,
        under: Sequence[str] = (),
    ) -> None:
        command = [*under, sys.executable, "-m", "tools.realgpu.hold", str(mib), *options]
        if group is not None:
            command = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *command]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self.told = self._line()

    def _line(self) -> str:
        output = self.process.stdout
        assert output is not None
        if not select.select([output], [], [], _STARTS_WITHIN_S)[0]:
            return f"nothing within {_STARTS_WITHIN_S:.0f} s"
        return output.readline().strip()

    @property
    def holds(self) -> bool:
        """Whether it got its memory."""
        return self.told.startswith("held ")

    def rest(self, within_s: float) -> str:
        """Wait for its end, and return what else it has printed. Raises subprocess.TimeoutExpired."""
        self.process.wait(timeout=within_s)
        assert self.process.stdout is not None
        return self.process.stdout.read().strip()

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def holding(*sizes_mib: int) -> Iterator[list[Holder]]:
    """Hold memory in as many processes as sizes are given; all end with the block."""
    holders: list[Holder] = []
    try:
        holders.extend(Holder(mib) for mib in sizes_mib)
        yield holders
    finally:
        for holder in holders:
            holder.end()


@contextlib.contextmanager
def group(path: Path) -> Iterator[Path]:
    """A control group, and those above it that are missing; removed in the end. Raises OSError."""
    made: list[Path] = []
    try:
        for folder in (*reversed(path.parents), path):
            if not folder.exists():
                folder.mkdir()
                made.append(folder)
        yield path
    finally:
        for folder in reversed(made):
            with contextlib.suppress(OSError):  # a process in it has not quite ended
                folder.rmdir()


class Verdict(Enum):
    """How a row ended."""

    AS_EXPECTED = "as expected"
    NOT_AS_EXPECTED = "not as expected"
    #: Nothing was expected: what was seen is what one wanted to know.
    SEEN = "seen"
    #: This machine, or this program, can't try it; the reason says what is missing.
    NOT_POSSIBLE = "not possible"
    #: It took longer than it may, or it failed.
    NO_ANSWER = "no answer"


@dataclass(frozen=True, slots=True)
class Outcome:
    """``seen``: facts for a report, by name. ``why``: of a row without facts, the reason."""

    verdict: Verdict
    seen: Mapping[str, object] = field(default_factory=dict)
    why: str = ""


def judged(seen: Mapping[str, object], *, is_as_expected: bool) -> Outcome:
    """Return the outcome of a row that has expected something."""
    return Outcome(Verdict.AS_EXPECTED if is_as_expected else Verdict.NOT_AS_EXPECTED, seen)


def not_possible(why: str, **seen: object) -> Outcome:
    """Return the outcome of a row that can't be tried here."""
    return Outcome(Verdict.NOT_POSSIBLE, seen, why)


@dataclass(frozen=True, slots=True)
class Row:
    """``what``: a function of this package, which runs in a process that is ended after ``limit_s``.

    It is imported there, so a package that is missing costs the rows that need it. ``why_not``: why it is not tried.
    """

    name: str
    expected: str
    what: str = ""
    limit_s: float = 15.0
    why_not: str = ""

    def try_it(self) -> Outcome:
        """Try it in this process."""
        if self.why_not:
            return not_possible(self.why_not)
        module, _, function = self.what.partition(".")
        try:
            found = importlib.import_module(f"tools.realgpu.{module}")
        except ModuleNotFoundError as error:
            return not_possible(f"it needs the package {error.name}")
        outcome: Outcome = getattr(found, function)()
        return outcome


#: The cheap ones first: what takes long may find no time left.
ROWS: Final = (
    Row("machine", "which limits this machine can have", "limits.machine"),
    Row("health", "GPUs answer, and tell recovery action and row remapping", "events.health"),
    Row("sample", "the process by its own PID, 4096 MiB and a context", "sampling.sample", 30),
    Row("namespace", "own PIDs, none, or the host's", "sampling.namespace", 30),
    Row("cost", "at most 5 ms of CPU a look", "sampling.cost", 60),
    Row("driver-limits", "read back; 9000 refused; of two with 5000 the second refused", "limits.driver", 60),
    Row(
        "enforcer-limits",
        "set through a read-only mount and read back; 3000 refused, 1000 passes",
        "limits.memory_enforcer",
        60,
    ),
    Row("mps-limits", "5000 refused; two of 3000 pass", "limits.mps", 45),
    Row("mps-namespaces", "yes to each question that could be asked", "mpsnamespaces.answers", 100),
    Row("ending", "ended within 2 s by signal 9, the neighbour lives", "limits.ending", 45),
    Row("fault", "XID 31, which does not count; the GPU answers", "events.fault", 45),
    Row("run", "half of the GPU by UUID, and 1024 MiB of it", "events.share", 40),
    Row("placements", "as NVIDIA documents them", "limits.placements"),
    Row(
        "runtime-caps",
        "containers are held to NVIDIA_GPU_MEMORY_LIMIT",
        why_not="it needs a container runtime with NVIDIA's hook",
    ),
    Row(
        "hami-core",
        "an allocation beyond the limit is refused, and the file says the limit",
        why_not="it needs HAMi-core's library, which is the administrator's",
    ),
    Row(
        "mps-modes",
        "clients without a daemon are refused",
        why_not="it would set the compute mode of the GPU, which this program leaves alone",
    ),
    Row(
        "mig-layout",
        "slices are made and removed beside one that works",
        why_not="it would change the layout of the GPU, which this program leaves alone",
    ),
)


@dataclass(frozen=True, slots=True)
class Tried:
    """A row that was tried, and how long that took."""

    name: str
    expected: str
    outcome: Outcome
    took_s: float


def as_json(tried: Sequence[Tried]) -> str:
    """Return the whole report."""
    rows = [{**dataclasses.asdict(one), "outcome": outcome_data(one.outcome)} for one in tried]
    return json.dumps({"rows": rows, "counts": counts(tried)}, indent=1) + "\n"


def as_text(tried: Sequence[Tried]) -> str:
    """Return a table, and what was seen below it."""
    lines = [f"{one.name:14} {one.outcome.verdict.value:16} {one.took_s:6.1f} s  {one.outcome.why}" for one in tried]
    for one in tried:
        lines += ["", f"{one.name}: {one.expected}"]
        lines += [f"  {name}: {json.dumps(fact)}" for name, fact in one.outcome.seen.items()]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def counts(tried: Sequence[Tried]) -> dict[str, int]:
    """Count rows by verdict."""
    return {
        verdict.value: number for verdict in Verdict if (number := sum(one.outcome.verdict is verdict for one in tried))
    }


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as data of JSON."""
    return {"verdict": outcome.verdict.value, "why": outcome.why, "seen": dict(outcome.seen)}


def outcome_of(data: Mapping[str, Any]) -> Outcome:
    """Read what ``outcome_data`` has made."""
    return Outcome(Verdict(data["verdict"]), data["seen"], data["why"])
