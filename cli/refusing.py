"""Bad input on the command line: one line on stderr, exit code 2."""

from __future__ import annotations


class BadInput(Exception):
    """Raised when an argument or a file can't be taken; the message is one line for people."""
