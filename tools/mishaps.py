"""Which faults happen to requests, dealt in an order from a seed; what they do is kube/memory/faults.py's to say."""

from __future__ import annotations

import enum
import random
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from kube.memory.faults import NOTHING, End, Fault


class Kind(enum.Enum):
    """Requests that different things happen to."""

    READ = "read"
    WATCH = "watch"
    WRITE = "write"


class Fate(Protocol):
    """Says what goes wrong, and learns when it did: a watch may end before its fault strikes."""

    def deal(self, kind: Kind) -> Fault:
        """What is to happen to a request that has just come."""
        ...

    def struck(self, fault: Fault) -> None:
        """It has happened."""
        ...


_REFUSALS: Final = (
    Fault(name="429", refuse_with=429, retry_after_s=1),
    Fault(name="500", refuse_with=500),
    Fault(name="503 in prose", refuse_with=503, in_prose=True),
    Fault(name="request lost", lost="request", breaks=True),
)


def catalogue(rng: random.Random) -> dict[Kind, list[Fault]]:
    """Everything that may go wrong, once of each kind, with details from ``rng``."""
    ends = [
        Fault(name=end.value, end=end, after_lines=rng.randrange(4), kept_permille=rng.randrange(1, 1000))
        for end in End
        if end is not End.NOT
    ]
    inside = Fault(name="answer breaks off", end=End.BREAKS_INSIDE, kept_permille=rng.randrange(1, 1000))
    answer_lost = Fault(name="answer lost", lost="answer", breaks=True)
    late = Fault(name="late", delay_s=rng.uniform(0.05, 0.2))
    gone = Fault(name="410", refuse_with=410)
    late_lines = Fault(name="late lines", line_delay_s=rng.uniform(0.005, 0.03))
    return {
        Kind.READ: [*_REFUSALS, gone, inside, answer_lost, late],
        Kind.WATCH: [*_REFUSALS, gone, *ends, late, late_lines],
        Kind.WRITE: [*_REFUSALS, answer_lost, late],
    }


class Deck:
    """Deals each fault until it has struck once, in seeded order, with good luck in between."""

    def __init__(self, faults: Mapping[Kind, Sequence[Fault]], rng: random.Random, *, luck: float = 0.2) -> None:
        self._rng = rng
        self._luck = luck
        self._left = {kind: rng.sample(of_kind, len(of_kind)) for kind, of_kind in faults.items()}
        self._is_calm = False

    def deal(self, kind: Kind) -> Fault:
        """The next one of this kind; it goes to the bottom until it has struck."""
        left = self._left.get(kind, [])
        if self._is_calm or not left or self._rng.random() < self._luck:
            return NOTHING
        left.append(left.pop(0))
        return left[-1]

    def struck(self, fault: Fault) -> None:
        """It has happened, and is not dealt again."""
        for left in self._left.values():
            if fault in left:
                left.remove(fault)
                return

    def left(self) -> list[str]:
        """Names of what has not happened yet."""
        return [f"{kind.value}: {fault.name}" for kind, left in self._left.items() for fault in left]

    def calm(self) -> None:
        """From now on nothing goes wrong; what was dealt may still strike."""
        self._is_calm = True
