"""Durations as Go writes them, which is what Kubernetes' own types hold: ``1h30m``, ``-1s``, ``1.5s``, ``0``.

The grammar is that of Go's ``time.ParseDuration``. Exact: nanoseconds, what is smaller is cut off, as there.
"""

from __future__ import annotations

import re
from typing import Final

_PART: Final = re.compile(r"(?P<whole>[0-9]*)(?:\.(?P<rest>[0-9]*))?(?P<unit>ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNITS_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_MOST_NS: Final = 2**63 - 1
#: No duration that 64 bits hold is longer.
_LONGEST: Final = 64


class MalformedDuration(ValueError):
    """Raised for what is no duration, or longer than some 292 years."""


def parse_ns(text: str) -> int:
    """Read a duration in nanoseconds, negative ones too. Raises MalformedDuration."""
    unsigned = text[1:] if text[:1] in {"+", "-"} else text
    if unsigned == "0":
        return 0
    if not unsigned or len(unsigned) > _LONGEST:
        raise MalformedDuration(f"{text[:_LONGEST]!r} is no duration such as 90s, 1h30m or -1s")
    total_ns, at = 0, 0
    while at < len(unsigned):
        part = _PART.match(unsigned, at)
        if part is None or not (part["whole"] or part["rest"]):
            raise MalformedDuration(f"{text!r} is no duration such as 90s, 1h30m or -1s")
        unit_ns, rest = _UNITS_NS[part["unit"]], part["rest"] or ""
        total_ns += int(part["whole"] or 0) * unit_ns + int(rest or 0) * unit_ns // 10 ** len(rest)
        at = part.end()
    if total_ns > _MOST_NS:
        raise MalformedDuration(f"{text!r} is longer than 292 years")
    return -total_ns if text[0] == "-" else total_ns
