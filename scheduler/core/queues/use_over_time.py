"""What queues used of the cluster over time: it lowers what they get above their quotas (kai-contract 4.11).

A record adds up, at each tick, what each queue keeps times the seconds since the last tick, and the capacity of the
cluster likewise. The use of a queue is its part of that capacity, in billionths (ppb). Time that nobody measured, as
while no scheduler led, counts for nobody. The kinds of window are KAI's:

- half-life: what was added loses half of its weight in this time;
- sliding: this window, and the last one as far as it still lies inside;
- tumbling: since the window began; it begins again after its length, or when a cron expression says (cron.py).

Exact integers, so two processes that were given the same ticks have the same record. Names are kept only of queues that
exist: pods may name others, as many as they like.
"""

from __future__ import annotations

import decimal
import enum
import json
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from scheduler.core.model.quota import DIMENSIONS, NOTHING, Resources
from scheduler.core.queues.cron import Cron

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
    """Which use counts. ``half_life_s`` above 0 takes the place of the window.

    ``begins_s``: seconds since the epoch at which some tumbling window begins. ``cron``: when each does; then
    ``window`` and its length mean nothing. ``tick_s``: between two ticks.
    ``k_milli``: how much use counts in the division, in thousandths (KAI's kValue).
    """

    window_s: int = 604_800
    window: Window = Window.SLIDING
    half_life_s: int = 0
    begins_s: int = 0
    cron: Cron | None = None
    tick_s: int = 60
    k_milli: int = 1000


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
    k_milli: int = 1000
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
    return UseOverTime(of=of, k_milli=period.k_milli)


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
        anchor_s = period.begins_s
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
    except msgspec.MsgspecError as error:
        return str(error)
