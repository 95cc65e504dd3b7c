"""What queues used of the cluster over time: it lowers what they get above their quotas (as in KAI).

A record adds up, at each tick, what each queue keeps times the seconds since the last tick, and the capacity of the
cluster likewise. The use of a queue is its part of that capacity, in billionths (ppb). Time that nobody measured, as
while no scheduler led, counts for nobody. Exact integers, so two processes that were given the same ticks have the same
record. Names are kept only of queues that exist: pods may name others, as many as they like.
"""

from __future__ import annotations

import calendar
import decimal
import enum
import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from scheduler.core.model.quota import DIMENSIONS, NOTHING, Resources

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
    """Times that an expression of five fields names: minute, hour, day of the month, month, day of the week, in UTC.

    "0 0 * * 1" is each Monday at midnight. A field is ``*``, a number, a range, or several of them with commas; ``*``
    and ranges may have a step. Months and days of the week have names as well. ``@daily`` and the like replace all
    five. ``text``: as it was given. ``is_either``: both days are given, and one of them is enough, as everywhere.
    """

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


#: The use of a queue in each dimension, in billionths of what the cluster had.
Ppb = tuple[int, int, int]
NO_USE: Final[Ppb] = (0, 0, 0)

_PPB: Final = 10**9
#: A factor of 1 in the arithmetic of decay.
_ONE_BITS: Final = 32
#: Enough digits for a factor of 32 bits; the same on every machine, unlike floats.
_DIGITS: Final = decimal.Context(prec=30)


class Window(enum.StrEnum):
    """What happens to old use."""

    SLIDING = "sliding"
    TUMBLING = "tumbling"


class Source(enum.StrEnum):
    """Who counted the use of queues."""

    #: Nobody: it counts nowhere.
    NONE = "none"
    #: The scheduler that leads.
    SCHEDULER = "scheduler"
    #: A Prometheus. It says what a queue and all queues below it used.
    PROMETHEUS = "prometheus"
    #: A Prometheus that has not answered for long: use counts for nobody until it does.
    STALE = "stale"


class UsePeriod(msgspec.Struct, frozen=True, kw_only=True):
    """Which use counts, by KAI's kinds of window. ``half_life_s`` above 0 takes the place of the window.

    - half-life: what was added loses half of its weight in this time;
    - sliding: this window, and the last one as far as it still lies inside;
    - tumbling: since the window began; it begins again after its length, or when a cron expression says.

    ``window_start_s``: seconds since the epoch at which some tumbling window begins. ``cron``: when each does; then
    ``window`` and its length mean nothing. ``tick_s``: between two ticks. ``weight_milli``: how much use counts in the
    division, in thousandths (KAI's kValue).
    """

    window_s: int = 604_800
    window: Window = Window.SLIDING
    half_life_s: int = 0
    window_start_s: int = 0
    cron: Cron | None = None
    tick_s: int = 60
    weight_milli: int = 1000


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """Use of one window: amounts times seconds, by queue, and those of the cluster."""

    of: dict[str, Resources] = {}
    cluster: Resources = NOTHING


class UseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All that is kept of use over time. ``at_s``: the last tick; ``began_s``: when the window began; epoch seconds."""

    at_s: int
    began_s: int
    now: Added = Added()
    last: Added = Added()


class UseOverTime(msgspec.Struct, frozen=True, kw_only=True):
    """What the division needs: use by name of the queue, without that of the queues below it unless it ``is_summed``.

    ``since_s``: the last answer of a source that is stale, in seconds since the epoch; 0: it never answered.
    """

    of: Mapping[str, Ppb] = {}
    #: In records and snapshots by the name that earlier versions read and wrote.
    weight_milli: int = msgspec.field(default=1000, name="k_milli")
    source: Source = Source.SCHEDULER
    since_s: int = 0

    @property
    def is_counted(self) -> bool:
        """Whether use over time counts in this cluster."""
        return self.source not in {Source.NONE, Source.STALE}

    @property
    def is_summed(self) -> bool:
        """Whether the use of a queue is that of all queues below it, too."""
        return self.source is Source.PROMETHEUS


#: Where use over time does not count.
NOT_COUNTED: Final = UseOverTime(source=Source.NONE)


def begun(period: UsePeriod, now_s: int) -> UseRecord:
    """A record of nothing."""
    return UseRecord(at_s=now_s, began_s=_window_of(period, now_s, now_s))


def counted(
    record: UseRecord, period: UsePeriod, now_s: int, *, kept: Mapping[str, Resources], capacity: Resources
) -> UseRecord:
    """Add what queues keep (by name; only queues that exist) since the last tick.

    No more than two ticks are added at once: nobody knows what was used in a longer gap. A clock that went back adds
    nothing.
    """
    elapsed_s = now_s - record.at_s
    if elapsed_s <= 0:
        return _moved_on(msgspec.structs.replace(record, at_s=now_s), period)
    if period.half_life_s:
        factor = _factor(elapsed_s, period.half_life_s)
        record = msgspec.structs.replace(record, now=_scaled(record.now, factor, _ONE_BITS))
    added_s = min(elapsed_s, 2 * period.tick_s)
    of = dict(record.now.of)
    for name, amounts in kept.items():
        of[name] = of.get(name, NOTHING).plus(amounts.times(added_s))
    now = Added(of=of, cluster=record.now.cluster.plus(capacity.times(added_s)))
    return _moved_on(msgspec.structs.replace(record, at_s=now_s, now=now), period)


def window_began_s(period: UsePeriod, now_s: int) -> int:
    """When the window began that reaches until now."""
    is_sliding = period.window is Window.SLIDING and period.cron is None
    return now_s - period.window_s if is_sliding else _window_of(period, now_s, now_s)


def without_gone(record: UseRecord, names: Collection[str]) -> UseRecord:
    """The record without queues that do not exist any more."""
    now, last = (
        msgspec.structs.replace(part, of={name: use for name, use in part.of.items() if name in names})
        for part in (record.now, record.last)
    )
    return msgspec.structs.replace(record, now=now, last=last)


def use_over_time(record: UseRecord, period: UsePeriod) -> UseOverTime:
    """The part of the cluster that each queue used, as of the last tick."""
    inside_s = min(period.window_s, max(0, period.window_s - (record.at_s - record.began_s)))
    cluster = _both(record.now.cluster, record.last.cluster, inside_s, period.window_s)
    of = {}
    for name in record.now.of.keys() | record.last.of.keys():
        used = _both(record.now.of.get(name, NOTHING), record.last.of.get(name, NOTHING), inside_s, period.window_s)
        of[name] = _part(used, cluster)
    return UseOverTime(of=of, weight_milli=period.weight_milli)


def _both(now: Resources, last: Resources, inside_s: int, window_s: int) -> Resources:
    """This window's, and of the last one's as much as lies inside the window that slides."""
    return Resources(*(new + old * inside_s // window_s for new, old in zip(now, last, strict=True)))


def _part(used: Resources, cluster: Resources) -> Ppb:
    cpu, mem, gpu = (use * _PPB // all_of_it if all_of_it else 0 for use, all_of_it in zip(used, cluster, strict=True))
    return cpu, mem, gpu


def _moved_on(record: UseRecord, period: UsePeriod) -> UseRecord:
    """The record with a window that has not ended yet."""
    if period.half_life_s:
        return record
    began_s = _window_of(period, record.began_s, record.at_s)
    if began_s <= record.began_s:
        # A window that begins in the future was begun by a clock that was ahead.
        return msgspec.structs.replace(record, began_s=min(record.began_s, record.at_s))
    slides = period.window is Window.SLIDING and period.cron is None
    follows = slides and began_s - record.began_s == period.window_s
    return msgspec.structs.replace(record, began_s=began_s, now=Added(), last=record.now if follows else Added())


def _window_of(period: UsePeriod, anchor_s: int, now_s: int) -> int:
    """When the window began that it is in now: windows of one length follow ``anchor_s`` without gaps."""
    if period.cron is not None:
        return period.cron.last_s(now_s)
    if period.window is Window.TUMBLING:
        anchor_s = period.window_start_s
    return now_s - (now_s - anchor_s) % period.window_s


def _scaled(added: Added, factor: int, bits: int) -> Added:
    of = {name: Resources(*(use * factor >> bits for use in uses)) for name, uses in added.of.items()}
    return Added(of=of, cluster=Resources(*(use * factor >> bits for use in added.cluster)))


def _factor(elapsed_s: int, half_life_s: int) -> int:
    """What is left of one after so long, in parts of 2^32, rounded down."""
    left = _DIGITS.power(decimal.Decimal(2), _DIGITS.divide(decimal.Decimal(-elapsed_s), decimal.Decimal(half_life_s)))
    return int(_DIGITS.multiply(left, decimal.Decimal(1 << _ONE_BITS)))


# --- as text ---------------------------------------------------------------------------------------------------------
def written(record: UseRecord) -> str:
    """The record as JSON. Sums outgrow 64 bits, which msgspec's own JSON refuses."""
    return json.dumps(msgspec.to_builtins(record), sort_keys=True, separators=(",", ":"))


def read(text: str) -> UseRecord | str:
    """The record that a text holds, or what is wrong with it."""
    try:
        record = msgspec.convert(json.loads(text), UseRecord)
    except (ValueError, msgspec.ValidationError, RecursionError) as error:
        return str(error)
    for name, uses in (
        *record.now.of.items(),
        *record.last.of.items(),
        ("", record.now.cluster),
        ("", record.last.cluster),
    ):
        for dimension, use in zip(DIMENSIONS, uses, strict=True):
            if use < 0:
                return f"{name or 'cluster'}: {dimension} is {use}; it must not be below 0"
    return record


def counts_written(used: UseOverTime) -> str:
    """What counts in the division, as JSON, for programs that show it."""
    return msgspec.json.encode(used, order="deterministic").decode()


def read_counts(text: str) -> UseOverTime | str:
    """What counts in the division, as such a text says; or what is wrong with the text."""
    try:
        return msgspec.json.decode(text, type=UseOverTime)
    except (msgspec.MsgspecError, RecursionError) as error:
        return str(error)
