"""What a check finds."""

from __future__ import annotations

import enum

import msgspec

_MOST_NAMED = 6


class Level(enum.Enum):
    """How bad it is. Only what fails fails the command."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was looked at. ``do`` says what to do about it, and is "" where nothing is to be done."""

    level: Level
    check: str
    said: str
    do: str = ""


def some_of(names: list[str]) -> str:
    """Return names for a line: the first few of them, and how many more there are."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
