"""What of grouping is counted, as values; the metrics library is used by runtime/metrics, not here."""

from __future__ import annotations

import enum
from typing import Protocol

from typing_extensions import override

from podgrouper.core.answers import Code, Why


class Wrote(enum.Enum):
    """What was written. The value is its stable name for machines."""

    CREATED = "created"
    CHANGED = "changed"


class Outcome(enum.Enum):
    """What became of a pod, beside the reasons why it gets no PodGroup (``Why``) or can't have one yet (``Code``)."""

    #: It names the PodGroup of its workload.
    GROUPED = "grouped"
    #: Something could not be read or written; it is tried again.
    FAILED = "failed"


class Observer(Protocol):
    """Is called with what happens. It must not raise, and returns within microseconds."""

    def wrote(self, what: Wrote) -> None:
        """A PodGroup was written."""
        ...

    def ended(self, outcome: Outcome | Why | Code) -> None:
        """A pod was looked at."""
        ...


class Unobserved(Observer):
    """Nobody counts."""

    @override
    def wrote(self, what: Wrote) -> None:
        """Nothing."""

    @override
    def ended(self, outcome: Outcome | Why | Code) -> None:
        """Nothing."""
