"""The list: what is tried, what is expected, and how long it may take (docs/design/real-gpu.md).

A row comes to an outcome; the report of a run is JSON for programs, text for people.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final


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
        "warden-limits",
        "set through a read-only mount and read back; 3000 refused, 1000 passes",
        "wardenlimits.limits",
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
