"""The configurations that are explored: small ones in every run of the tests, larger ones on demand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from simulator.model.config import Config
from simulator.model.state import Left

#: 0.5 and 0.6: both do not fit on one device. Halves do.
UNEQUAL: Final = ((5,), (6,))
HALVES: Final = ((5,), (5,))


@dataclass(frozen=True, slots=True)
class Named:
    """A configuration with its name."""

    name: str
    config: Config


QUICK: Final = (
    Named("two pods that don't fit", Config(shares=UNEQUAL)),
    Named("two halves", Config(shares=HALVES)),
    Named("two devices", Config(shares=UNEQUAL, devices=2, schedulers=2)),
    Named("a write is late", Config(shares=UNEQUAL, left=Left(lates=1))),
    Named("two binders", Config(shares=HALVES, binders=2)),
)
