"""Amounts of queues as people read them: cores, GB of 10^9 bytes, GPUs, to two places.

Quotas and limits are rounded down. Used and requested amounts and fair shares are rounded up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.conditions.messages import decimal
from scheduler.core.report.queue_view import WITHOUT_END, Amounts

#: By dimension: what is counted, its unit for one and for several, and how many smallest units make one.
COUNTED: Final = ("CPU cores", "Memory (GB)", "GPUs")
_WORDS: Final = (("core", "cores"), ("GB of memory", "GB of memory"), ("GPU", "GPUs"))
_ONES: Final = (1000, 10**9, 10**9)
_HUNDREDTH: Final = 100
_WEIGHT: Final = 10**6
#: A hundredth of a percent in billionths.
_PERCENT: Final = 10**5
GPU: Final = 2


def amount(at: int, value: int, *, up: bool = False) -> str:
    """An amount of the dimension ``at``, rounded down, or up."""
    if value == WITHOUT_END:
        return "unlimited"
    one = _ONES[at]
    hundredths = -(-value * _HUNDREDTH // one) if up else value * _HUNDREDTH // one
    return decimal(hundredths, _HUNDREDTH)


def named(at: int, value: int, *, up: bool = False) -> str:
    """The same with its unit: ``2 GPUs``."""
    text = amount(at, value, up=up)
    return f"{text} {_WORDS[at][0 if text == '1' else 1]}"


def weight(millionths: int) -> str:
    """A weight."""
    return decimal(millionths, _WEIGHT)


def percent(ppb: int) -> str:
    """A part in billionths, in percent, rounded up."""
    return f"{decimal(-(-ppb // _PERCENT), _HUNDREDTH)}%"


def each_of(amounts: Amounts) -> Sequence[int]:
    """Amounts by dimension."""
    return amounts.cpu_milli, amounts.mem_bytes, amounts.gpu_nano


def requested(amounts: Amounts) -> str:
    """What a workload requests: its GPUs, or where it has none the rest."""
    by_dimension = each_of(amounts)
    if by_dimension[GPU]:
        return named(GPU, by_dimension[GPU], up=True)
    return ", ".join(named(at, value, up=True) for at, value in enumerate(by_dimension) if value) or "nothing"
