"""The steps of one division, noted while it is made, for people who ask why a queue gets its share.

The division notes them itself (division.py), so what is shown is what was computed. Without a record it notes nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class StepKind(enum.Enum):
    """What a step of a division gives."""

    #: Quotas, as far as they are asked for.
    QUOTA = "quota"
    #: What is left, by weight, to the queues of one priority.
    ROUND = "round"
    #: Units that rounds cut off, one each.
    LEFTOVER = "leftover"


class Step(NamedTuple):
    """One step. ``offered``: what was left before it. ``given``: to each sibling, in their order.

    ``priority``: of the queues that it is for; None for quotas, which are for all.
    """

    kind: StepKind
    priority: int | None
    offered: int
    given: tuple[int, ...]


class Getting(Protocol):
    """A queue that takes part in a division."""

    fair: int


@dataclass(slots=True)
class DivisionRecord:
    """One division. ``total``: what is divided; ``left``: what nobody gets."""

    total: int = 0
    left: int = 0
    steps: list[Step] = field(default_factory=list)
    _known: list[int] = field(default_factory=list)
    _left: int = 0

    def begin(self, total: int) -> None:
        """Begin with nothing given."""
        self.total = self._left = total
        self.steps.clear()
        self._known = []

    def note(self, kind: StepKind, siblings: Sequence[Getting], left: int, *, priority: int | None = None) -> None:
        """Note what each got since the step before. A round that gives nothing is none."""
        known = self._known or [0] * len(siblings)
        self._known = [each.fair for each in siblings]
        given = tuple(now - before for now, before in zip(self._known, known, strict=True))
        if kind is StepKind.QUOTA or any(given):
            self.steps.append(Step(kind, priority, max(0, self._left), given))
        self._left = self.left = max(0, left)
