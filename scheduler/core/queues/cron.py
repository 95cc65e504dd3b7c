"""Cron expressions, for windows of use that begin at certain times: "0 0 * * 1" is each Monday at midnight, UTC.

Five fields: minute, hour, day of the month, month, day of the week. Each is ``*``, a number, a range, or several of
them with commas; ``*`` and ranges may have a step. Months and days of the week have names as well. Where both days are
given, one of them is enough, as everywhere. ``@daily`` and the like stand for five fields.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

ALLOWED: Final = (
    "five fields (minute, hour, day of the month, month, day of the week) of *, numbers, ranges, steps and lists, "
    "as in '0 0 * * 1'; or @hourly, @daily, @weekly, @monthly, @yearly"
)
_SHORT: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS: Final = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name}
_DAYS: Final = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_PART: Final = re.compile(r"(\*|[a-z0-9]{1,3}(?:-[a-z0-9]{1,3})?)(?:/([0-9]{1,2}))?")
_NONE: Final[Mapping[str, int]] = {}
_LONGEST: Final = 200
#: Some time, to see whether there is one that an expression names.
_SOME_S: Final = 4_000_000_000
#: From one 29 February on a certain day of the week to the next it is 40 years at most.
_DAYS_BACK: Final = 41 * 366


class Cron(msgspec.Struct, frozen=True):
    """Times that an expression names. ``text``: as it was given. ``is_either``: one of both days is enough."""

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    is_either: bool

    def last_s(self, now_s: int) -> int:
        """The last of its times that is not after ``now_s``, both in seconds since the epoch."""
        now = datetime.fromtimestamp(now_s, UTC)
        at = _last(self.hours, self.minutes, now.hour, now.minute) if self._has(now) else None
        day = now
        for _ in range(_DAYS_BACK):
            if at is not None:
                break
            day -= timedelta(days=1)
            at = (self.hours[-1], self.minutes[-1]) if self._has(day) else None
        else:
            raise ValueError(f"{self.text!r} names no time: no such month has such a day")
        hour, minute = at
        return int(day.replace(hour=hour, minute=minute, second=0, microsecond=0).timestamp())

    def _has(self, day: datetime) -> bool:
        if day.month not in self.months:
            return False
        has_day, has_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return has_day or has_weekday if self.is_either else has_day and has_weekday


def _last(hours: Sequence[int], minutes: Sequence[int], hour: int, minute: int) -> tuple[int, int] | None:
    """The last time of a day up to this one."""
    this_hour = [each for each in minutes if each <= minute] if hour in hours else []
    if this_hour:
        return hour, this_hour[-1]
    earlier = [each for each in hours if each < hour]
    return (earlier[-1], minutes[-1]) if earlier else None


def parsed(text: str) -> Cron:
    """Read an expression. Raises ValueError that says what is wrong, and what is allowed."""
    fields = _SHORT.get(text.strip().lower(), text.lower()).split() if len(text) <= _LONGEST else []
    if len(fields) != 5:
        raise ValueError(f"{text[:_LONGEST]!r} is no cron expression; allowed: {ALLOWED}")
    minute, hour, day, month, weekday = fields
    cron = Cron(
        text=text,
        minutes=tuple(sorted(_field("minute", minute, (0, 59)))),
        hours=tuple(sorted(_field("hour", hour, (0, 23)))),
        days=frozenset(_field("day of the month", day, (1, 31))),
        months=frozenset(_field("month", month, (1, 12), _MONTHS)),
        weekdays=frozenset(each % 7 for each in _field("day of the week", weekday, (0, 7), _DAYS)),
        is_either=not day.startswith("*") and not weekday.startswith("*"),
    )
    cron.last_s(_SOME_S)
    return cron


def _field(name: str, text: str, limits: tuple[int, int], words: Mapping[str, int] = _NONE) -> set[int]:
    """All numbers that a field names."""
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{name}: {part!r} is not *, a number, a range or one with a step")
        what, step = match[1], int(match[2] or 1)
        if not step:
            raise ValueError(f"{name}: {part!r} has a step of 0; it must be 1 or more")
        first, last = limits if what == "*" else _ends(name, what, limits, words)
        if match[2] and "-" not in what:
            last = limits[1]
        found.update(range(first, last + 1, step))
    return found


def _ends(name: str, what: str, limits: tuple[int, int], words: Mapping[str, int]) -> tuple[int, int]:
    ends = [words[each] if each in words else int(each) if each.isdigit() else -1 for each in what.split("-")]
    first, last, (least, most) = ends[0], ends[-1], limits
    if not least <= first <= last <= most:
        raise ValueError(f"{name}: {what!r} is not from {least} to {most}, the smaller first")
    return first, last
