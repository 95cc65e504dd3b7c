"""What a row of the list came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


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
