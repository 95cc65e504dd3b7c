"""Times as Go reads and writes RFC 3339 (``2026-01-02T03:04:05Z``), which is what annotations with a time hold."""

from __future__ import annotations

import datetime
import re
from typing import Final

from wire.units import SECOND_NS

_FORM: Final = re.compile(
    r"(?P<s>[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.(?P<rest>[0-9]{1,9})[0-9]*)?"
    r"(?P<zone>Z|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)
#: No time that anybody writes is longer.
LONGEST: Final = 64


def parse_ns(text: str) -> int | None:
    """Nanoseconds since the epoch, UTC; None for what is no time. Digits beyond the ninth are cut off."""
    found = _FORM.fullmatch(text) if len(text) <= LONGEST else None
    if found is None:
        return None
    try:
        whole = datetime.datetime.fromisoformat(found["s"] + found["zone"].replace("Z", "+00:00"))
    except ValueError:
        return None
    seconds = (whole - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(seconds=1)
    return seconds * SECOND_NS + int((found["rest"] or "0").ljust(9, "0"))


def rfc3339(now_ns: int) -> str:
    """Seconds precision, as metav1.Time is written: ``2026-01-02T03:04:05Z``."""
    return _utc(now_ns).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(now_ns: int) -> str:
    """Always six digits, as metav1.MicroTime demands (a missing fraction is refused by the server)."""
    return _utc(now_ns).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _utc(now_ns: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(now_ns // SECOND_NS, tz=datetime.UTC).replace(
        microsecond=now_ns // 1000 % 1_000_000
    )
