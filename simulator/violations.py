"""What the invariant checker found, by invariant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

#: The invariants that the checker judges (docs/design/invariants.md).
CHECKED: Final = ("S1", "S2", "S3", "S4", "S5", "S9")
HELD: Final = "held"


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that did not hold: when, and for people, how."""

    invariant: str
    at_s: float
    text: str


@dataclass(slots=True)
class Findings:
    """Violations in the order in which they were found; each is kept once, however long it lasts.

    ``start_s``: the event loop's time from which reports count.
    """

    start_s: float = 0.0
    found: dict[tuple[str, str], Violation] = field(default_factory=dict)

    def add(self, invariant: str, at_s: float, text: str) -> None:
        """Take down a violation, unless it is known."""
        self.found.setdefault((invariant, text), Violation(invariant, at_s, text))

    @property
    def all_held(self) -> bool:
        """Whether nothing was found."""
        return not self.found

    def report(self) -> Mapping[str, str]:
        """Return "held" or the first violation of each invariant, with the number of further ones."""
        report = {}
        for invariant in CHECKED:
            ours = [violation for violation in self.found.values() if violation.invariant == invariant]
            more = f" (and {len(ours) - 1} more)" if len(ours) > 1 else ""
            report[invariant] = f"at {ours[0].at_s - self.start_s:.3f} s: {ours[0].text}{more}" if ours else HELD
        return report
