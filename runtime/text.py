"""Text that comes into a process and goes out of it: bad input, durations, and text for terminals.

Bad input on the command line is one line on stderr and exit code 2. Durations are ``30s``, ``5m``, ``1h30m``,
``250ms``, or plain seconds. Text from manifests and clusters is made printable before a terminal gets it: its author
must not be able to move the cursor or forge lines.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn


class BadInput(Exception):
    """Raised when an argument or a file can't be taken; the message is one line for people."""


def refuse(failed: ExceptionGroup[Exception], kinds: tuple[type[Exception], ...]) -> NoReturn:
    """Raise BadInput for the first error of a group if all are of these kinds; if not, raise the group."""
    _, others = failed.split(kinds)
    if others is not None:
        raise failed
    first: Exception = failed
    while isinstance(first, ExceptionGroup):
        first = first.exceptions[0]
    raise BadInput(str(first)) from failed


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


def line(text: str) -> str:
    """One line of it; all that does not print, line ends too, is written as Python writes it in a literal."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
