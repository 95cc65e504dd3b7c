"""Bad input on the command line: one line on stderr, exit code 2."""

from __future__ import annotations

from typing import NoReturn


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
