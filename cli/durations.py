"""Durations on the command line: ``30s``, ``5m``, ``1h30m``, ``250ms``, or plain seconds."""

from __future__ import annotations

import re
from typing import Final

from cli.refusing import BadInput

ALLOWED: Final = "a number with ms, s, m or h as in 250ms, 30s, 5m, 1h"
LONGEST_S: Final = 366 * 86_400.0

_NUMBER: Final = r"[0-9]{1,12}(?:\.[0-9]{1,6})?"
_PART: Final = re.compile(rf"({_NUMBER})(ms|s|m|h)")
_GRAMMAR: Final = re.compile(rf"{_NUMBER}|(?:{_NUMBER}(?:ms|s|m|h)){{1,8}}")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """Read a duration in seconds. Raises ValueError that names the value and what is allowed."""
    if not _GRAMMAR.fullmatch(text):
        raise ValueError(f"{text!r} is not {ALLOWED}")
    parts = _PART.findall(text)
    value = sum(float(number) * _SECONDS[unit] for number, unit in parts) if parts else float(text)
    if value > LONGEST_S:
        raise ValueError(f"{text!r} is more than a year; allowed: {ALLOWED}")
    return value


def of_option(option: str, text: str) -> float:
    """Read the value of an option in seconds. Raises BadInput."""
    try:
        return seconds(text)
    except ValueError as error:
        raise BadInput(f"{option}: {error}") from error
