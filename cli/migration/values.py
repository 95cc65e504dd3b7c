"""KAI's values in the form that settings of Moorage have.

A value that can't be converted is returned unchanged; the setting's own parser then refuses it by name.
"""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import msgspec

from cli.settings.kinds import span

_UNITS_S: Final = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86_400),
    "w": Fraction(604_800),
    "y": Fraction(365 * 86_400),
}
_NUMBER: Final = r"[0-9]{1,12}(?:\.[0-9]{1,9})?"
_PART: Final = re.compile(rf"({_NUMBER})(ns|us|µs|ms|s|m|h|d|w|y)")
_DURATION: Final = re.compile(rf"(?:{_PART.pattern}){{1,10}}")


def as_given(value: Any) -> str:
    """Text as it is, all else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def duration(value: Any) -> str:
    """A duration of Prometheus or Go, days and weeks as hours: ``1w`` is ``168h``."""
    given = as_given(value)
    if not _DURATION.fullmatch(given):
        return given
    return span(float(sum(Fraction(number) * _UNITS_S[unit] for number, unit in _PART.findall(given))))


def thousandths(value: Any) -> str:
    """A number times 1000, rounded to a whole one: KAI's ``kValue``."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(round(Decimal(str(value)) * 1000)) if is_number else as_given(value)


def epoch_seconds(value: Any) -> str:
    """A time as Kubernetes writes it, in seconds since 1970."""
    given = as_given(value)
    try:
        at = datetime.datetime.fromisoformat(given)
    except ValueError:
        return given
    return given if at.tzinfo is None else str(int(at.timestamp()))


def window_type(value: Any) -> str:
    """The type of a window; "" for ``cron``: here the cron expression alone makes it one."""
    given = as_given(value)
    return "" if given == "cron" else given
