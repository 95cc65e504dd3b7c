"""Numbers and durations as Go reads them, which is what Kubernetes' own types and KAI's annotations hold."""

from __future__ import annotations

import re
from typing import Final

_DIGITS_OF_64_BITS: Final = 19
_LEAST: Final = -(2**63)
_MOST: Final = 2**63 - 1


def parse_int(text: str) -> int | None:
    """Read a 64-bit integer as ``strconv.ParseInt(text, 10, 64)``; None if Go refuses the text.

    Python's ``int`` also takes blanks, underscores and digits of other alphabets; Kubernetes compares none of these.
    """
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if not (digits.isascii() and digits.isdigit()) or len(digits := digits.lstrip("0")) > _DIGITS_OF_64_BITS:
        return None
    number = int(digits or "0")
    number = -number if text.startswith("-") else number
    return number if _LEAST <= number <= _MOST else None


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
    """Read a duration in nanoseconds, negative ones too: ``1h30m``, ``-1s``, ``1.5s``, ``0``. Raises MalformedDuration.

    The grammar is that of Go's ``time.ParseDuration``. Exact: what is smaller is cut off, as there.
    """
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


#: Digits with single underscores between them, as in Go's literals.
_DIGITS: Final = r"[0-9]+(?:_[0-9]+)*"
_HEX: Final = r"[0-9a-f]+(?:_[0-9a-f]+)*"
_DECIMAL_FLOAT: Final = re.compile(
    rf"[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:e[+-]?{_DIGITS})?", re.ASCII | re.IGNORECASE
)
#: The exponent is not optional, and an underscore may follow the prefix.
_HEX_FLOAT: Final = re.compile(
    rf"[+-]?0x(?:_?{_HEX}(?:\.(?:{_HEX})?)?|\.{_HEX})p[+-]?{_DIGITS}", re.ASCII | re.IGNORECASE
)
_NOT_A_NUMBER: Final = re.compile(r"nan", re.ASCII | re.IGNORECASE)
_LARGEST_UINT: Final = 2**64 - 1
_UINT_DIGITS: Final = 20


def parse_float(text: str) -> float | None:
    """Read a 64-bit float; None where Go has an error. Infinities are one of them here: no caller allows any.

    KAI's answers to malformed annotations depend on it. It only tells one refusal from another and checks ranges; a
    share is never computed from what comes out here.
    """
    if _NOT_A_NUMBER.fullmatch(text):
        return float("nan")
    if _DECIMAL_FLOAT.fullmatch(text):
        return _finite(float(text.replace("_", "")))
    if _HEX_FLOAT.fullmatch(text):
        try:
            return float.fromhex(text.replace("_", ""))
        except OverflowError:
            return None
    return None


def _finite(value: float) -> float | None:
    return None if abs(value) == float("inf") else value


def parse_uint(text: str) -> int | None:
    """Read an unsigned 64-bit integer in base 10: ASCII digits only, no sign; None where Go has an error."""
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > _UINT_DIGITS:
        return None
    value = int(digits)
    return value if value <= _LARGEST_UINT else None


def is_duration(text: str) -> bool:
    """Whether Go reads a text as a duration."""
    try:
        parse_ns(text)
    except MalformedDuration:
        return False
    return True
