"""Names of sub-commands as people see them: those that help lists, without the old names that still work."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from cli.printable import line


def shown(commands: argparse._SubParsersAction[Any]) -> list[str]:
    """Return the names that help lists, in its order."""
    return [each.dest for each in commands._get_subactions()]  # noqa: SLF001 - argparse lists them nowhere else


def refused(name: str, known: Sequence[str]) -> str:
    """Say that there is no command of a name, and which one was perhaps meant, or which there are."""
    from difflib import get_close_matches  # noqa: PLC0415 - for those who are wrong

    near = get_close_matches(name, known, n=1)
    return f"{line(name)}: no such command; " + (f"did you mean {near[0]}?" if near else f"allowed: {', '.join(known)}")
