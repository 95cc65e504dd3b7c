"""Whole numbers as Go reads them: ``strconv.ParseInt(text, 10, 64)``.

Python's ``int`` also takes blanks, underscores and digits of other alphabets; Kubernetes compares none of these.
"""

from __future__ import annotations

import re
from typing import Final

_NUMBER: Final = re.compile(r"[+-]?0*([0-9]{1,19})", re.ASCII)
_LEAST: Final = -(2**63)
_MOST: Final = 2**63 - 1


def parse_int(text: str) -> int | None:
    """Read a 64-bit integer; None if Go refuses the text."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    number = int(match[1])
    number = -number if text.startswith("-") else number
    return number if _LEAST <= number <= _MOST else None
