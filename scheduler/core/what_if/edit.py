"""What an edit is: one thing that is supposed to differ, as a value that people can write and ``decide`` can try."""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Sequence
from typing import Final, Protocol, TypeVar

from scheduler.core.decide.changes import Change
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.what_if.subject import Subject

T = TypeVar("T")

#: Names in a message.
_NAMED: Final = 8


class Family(enum.Enum):
    """Kinds of edits, in the order of what they cost who asks. The values are stable names for machines."""

    WAIT = "wait"
    ASK_LESS = "ask-less"
    FEWER_MEMBERS = "fewer-members"
    WITHOUT_CONSTRAINT = "without-constraint"
    QUEUE = "queue"
    ENDED = "ended"
    MORE_NODES = "more-nodes"


class Edit(Protocol):
    """One edit; a value."""

    @property
    def family(self) -> Family:
        """Its family."""
        ...

    @property
    def is_own(self) -> bool:
        """Whether it concerns nothing but the group itself."""
        ...

    def spelled(self) -> str:
        """The edit as ``--what-if`` takes it."""
        ...

    def changes(self, snapshot: Snapshot, subject: Subject) -> tuple[Change, ...]:
        """Return the changes of the snapshot. Raises NotPossible."""
        ...


class NotPossible(ValueError):
    """Raised when an edit makes no sense for a group or a cluster. The message says what is allowed."""


def some(names: Sequence[str]) -> str:
    """Names for a message: the first ones, and the number of the others."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def largest(low: int, high: int, question: Callable[[int], T]) -> Generator[T, bool, int | None]:
    """Return the largest number from ``low`` to ``high`` that helps, if each below one that helps does; None: none.

    It yields one question at a time, and takes whether that number helps: a caller may do something else in between.
    The least is asked about first: where not even that helps nothing else is tried.
    """
    if low > high or not (yield question(low)):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if (yield question(middle)):
            low = middle
        else:
            high = middle - 1
    return low


def smallest(low: int, high: int, question: Callable[[int], T]) -> Generator[T, bool, int | None]:
    """Return the smallest number from ``low`` to ``high`` that helps, likewise; the largest is asked about first."""
    found = yield from largest(-high, -low, lambda number: question(-number))
    return None if found is None else -found
