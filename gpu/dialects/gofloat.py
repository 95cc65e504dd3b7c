"""Numbers as Go's strconv reads them, since KAI's answers to malformed annotations depend on it.

Only for telling one refusal from another and for range checks; a share is never computed from what comes out here.
"""

from __future__ import annotations

import re
from typing import Final

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
    """Read a 64-bit float; None where Go has an error. Infinities are one of them here: no caller allows any."""
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
