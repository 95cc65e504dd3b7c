"""What the invariant checker found, by invariant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

#: Safety (docs/design/invariants.md), judged after every event, and liveness, judged when a run is at rest.
SAFETY: Final = tuple(f"S{number}" for number in range(1, 20))
LIVENESS: Final = tuple(f"L{number}" for number in range(1, 8))
CHECKED: Final = (*SAFETY, *LIVENESS)

HELD: Final = "held"
#: Said of what is judged at rest only, in a run that was not looked at there.
NOT_JUDGED: Final = "not judged"
#: What may be said of an invariant that is not broken.
SOUND: Final = frozenset({HELD, NOT_JUDGED})


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that did not hold: when, and for people, how."""

    invariant: str
    at_s: float
    text: str


@dataclass(slots=True, eq=False)
class Excuse:
    """Invariants that nobody can hold for a time; ``is_over``: what made it so has passed."""

    invariants: frozenset[str]
    is_over: bool = False


@dataclass(slots=True)
class Findings:
    """Violations in the order in which they were found; each is kept once, however long it lasts.

    ``start_s``: the event loop's time from which reports count. ``judged``: those of LIVENESS that were looked at.
    """

    start_s: float = 0.0
    found: dict[tuple[str, str], Violation] = field(default_factory=dict)
    judged: set[str] = field(default_factory=set)
    #: What is not judged at the moment.
    _excuses: list[Excuse] = field(default_factory=list)

    def add(self, invariant: str, at_s: float, text: str) -> None:
        """Take down a violation, unless it is known, or excused at the moment."""
        if any(invariant in excuse.invariants for excuse in self._excuses):
            return
        self.found.setdefault((invariant, text), Violation(invariant, at_s, text))

    @contextmanager
    def excusing(self, invariants: frozenset[str]) -> Iterator[Excuse]:
        """Do not judge these inside of the block, nor later unless ``is_over`` is true at its end."""
        excuse = Excuse(invariants)
        self._excuses.append(excuse)
        try:
            yield excuse
        finally:
            if excuse.is_over:
                self._excuses.remove(excuse)

    @property
    def all_held(self) -> bool:
        """Whether nothing was found."""
        return not self.found

    def broken(self, *invariants: str) -> bool:
        """Whether one of these was broken."""
        return any(violation.invariant in invariants for violation in self.found.values())

    def report(self) -> Mapping[str, str]:
        """Say of each invariant what became of it: one of SOUND, or its first violation and the number of others."""
        return {invariant: self._told(invariant) for invariant in CHECKED}

    def _told(self, invariant: str) -> str:
        ours = [violation for violation in self.found.values() if violation.invariant == invariant]
        if ours:
            more = f" (and {len(ours) - 1} more)" if len(ours) > 1 else ""
            return f"at {ours[0].at_s - self.start_s:.3f} s: {ours[0].text}{more}"
        return NOT_JUDGED if invariant in LIVENESS and invariant not in self.judged else HELD
