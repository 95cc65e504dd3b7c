"""The report of a run: JSON for programs, text for people."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.realgpu.outcome import Outcome, Verdict


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
