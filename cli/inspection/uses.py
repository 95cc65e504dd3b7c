"""What pods use of their shares beside what they hold: rows, their order, sums, and the words for both. Pure.

Use is what agents report (gpu/nodeuse.py), in percent of a share. Sums are of shares whose use is known; what is not
known is counted, and never taken for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from gpu.carved import Carved, Stage
from gpu.nodeuse import State, idle_nano_seconds
from gpu.share import NANO_PER_DEVICE
from wire.rfc3339 import parse_ns, rfc3339

_PERCENT: Final = 100
_SECOND_NS: Final = 1_000_000_000
_NONE: Final = "-"
_UNKNOWN: Final = "?"
NO_AGENTS: Final = "use is not shown: no node agent has reported (docs/node-agent.md)"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A share of one device. Percent are of the share; None: not known. ``state``: how far the node's report counts."""

    namespace: str
    name: str
    uid: str
    node: str
    device: str
    nano: int
    state: State
    memory_percent: int | None = None
    sm_percent: int | None = None
    idle_since: str = ""
    enforced: str = ""

    @property
    def is_idle(self) -> bool:
        """Whether it may be called idle: only of what a report says of now."""
        return bool(self.idle_since) and self.state is not State.STALE


class Sum(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of one queue, namespace or node. ``unknown``: how many of them have no number."""

    name: str
    shares: int = 0
    unknown: int = 0
    nano: int = 0
    idle_nano: int = 0
    memory_percent: int | None = None
    sm_percent: int | None = None


def in_order(rows: Iterable[Row], now_ns: int) -> list[Row]:
    """Idle ones first, by what they have cost so far; then those with most that is not used; then what is not known."""

    def key(row: Row) -> tuple[int, int, str, str, str]:
        if row.is_idle:
            return 0, -idle_nano_seconds(row.nano, row.idle_since, now_ns), row.namespace, row.name, row.device
        known = [each for each in (row.memory_percent, row.sm_percent) if each is not None]
        unused = row.nano * (_PERCENT - max(known)) if known else 0
        return (1 if known else 2), -unused, row.namespace, row.name, row.device

    return sorted(rows, key=key)


def sums(rows: Iterable[Row], of: Callable[[Row], str]) -> list[Sum]:
    """Add up by ``of``, those with most that is idle first."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(of(row), []).append(row)
    made = [_sum(name, those) for name, those in groups.items()]
    return sorted(made, key=lambda each: (-each.idle_nano, -each.nano, each.name))


def _sum(name: str, rows: Sequence[Row]) -> Sum:
    return Sum(
        name=name,
        shares=len(rows),
        unknown=sum(row.memory_percent is None for row in rows),
        nano=sum(row.nano for row in rows),
        idle_nano=sum(row.nano for row in rows if row.is_idle),
        memory_percent=_mean([(row.nano, row.memory_percent) for row in rows]),
        sm_percent=_mean([(row.nano, row.sm_percent) for row in rows]),
    )


def _mean(parts: Iterable[tuple[int, int | None]]) -> int | None:
    """Return the mean use of shares in percent, weighed by their size, rounded up; None where no use is known."""
    known = [(nano, percent) for nano, percent in parts if percent is not None]
    held = sum(nano for nano, _ in known)
    return -(-sum(nano * percent for nano, percent in known) // held) if held else None


def percent(value: int | None) -> str:
    """A part of a share."""
    return _UNKNOWN if value is None else f"{value}%"


def limit(enforced: str, strength: str) -> str:
    """How well a memory cap is held, and by what."""
    return f"{strength} ({enforced})" if strength else _NONE


def idle(nano: int, since: str, now_ns: int) -> str:
    """Since when a share is idle, and how much of GPUs that has been."""
    if (since_ns := parse_ns(since)) is None:
        return _NONE
    cost = gpu_hours(idle_nano_seconds(nano, since, now_ns))
    return f"{clock(since, now_ns)} ({age(max(0, now_ns - since_ns))}, {cost} GPU-hours)"


def gpu_hours(nano_seconds: int) -> str:
    """GPU-hours, rounded down to hundredths."""
    hundredths = nano_seconds * 100 // (NANO_PER_DEVICE * 3_600)
    return f"{hundredths // 100}.{hundredths % 100:02d}".rstrip("0").rstrip(".")


def clock(at: str, now_ns: int) -> str:
    """A time for people who look now: of another day with its date. UTC, as the API server has times."""
    at_ns = parse_ns(at)
    if at_ns is None:
        return _UNKNOWN
    said = rfc3339(at_ns)
    time = f"{said[11:16]}Z"
    return time if said[:10] == rfc3339(now_ns)[:10] else f"{said[:10]} {time}"


def age(ns: int) -> str:
    """How long, in its two largest units."""
    seconds = ns // _SECOND_NS
    units = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
    first = next((at for at, (_, size) in enumerate(units) if seconds >= size), len(units) - 1)
    said: list[str] = []
    for unit, size in units[first : first + 2]:
        count, seconds = divmod(seconds, size)
        said += [f"{count}{unit}"] if count or not said else []
    return "".join(said)


def carving(one: Carved) -> str:
    """Say which MIG slices are being made of a GPU, or could not be."""
    gpu = f"GPU {one.index}" if one.index >= 0 else one.uuid
    slices = ", ".join(one.layout) or "none"
    if one.stage is Stage.FAILED:
        return f"MIG slices of {gpu} could not be made ({slices}): {one.why}"
    done = "are being made" if one.stage is Stage.UNDER_WAY else "are asked for"
    return f"MIG slices of {gpu} {done}: {slices}"


def stale(node: str, since: str, now_ns: int) -> str:
    """Say that a node's report is old, and for how long."""
    since_ns = parse_ns(since)
    for_long = f" for {age(max(0, now_ns - since_ns))}" if since_ns is not None else ""
    return f"{node}: its agent has not worked{for_long}; what its pods use now is not known"
