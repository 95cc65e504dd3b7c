"""The table of docs/reference/threats.md: ``python -m tests.attacks.table write``, after threats.py has changed.

The text around the table is written by hand. Tests are not in the table: people find them in threats.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.attacks.threats import THREATS, Threat

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "reference" / "threats.md"
_BEGIN: Final = (
    "<!-- Made from tests/attacks/threats.py: change that, and run `python -m tests.attacks.table write`. -->\n"
)
_END: Final = "<!-- The end of the table. -->\n"
_HEAD: Final = "| | threat | what happens | held by |\n|---|---|---|---|\n"


def rendered(text: str, threats: Sequence[Threat] = THREATS) -> str:
    """Return the page with the table of these threats. Raises ValueError for a page without a place for it."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has no place for the table: {_BEGIN}")
    return before + begin + "\n" + _HEAD + "".join(map(_row, threats)) + "\n" + end + after


def named(threat: Threat) -> Iterator[tuple[str, str]]:
    """Each test file of a row, and part of a test's name there; "" for the file as a whole."""
    for each in threat.tests:
        file, _, parts = each.partition(": ")
        yield from ((file, part) for part in parts.split(", "))


def _row(threat: Threat) -> str:
    return f"| {threat.id} | {threat.threat} | {threat.happens} | {threat.by.value} |\n"


if __name__ == "__main__":
    if sys.argv[1:] != ["write"]:
        sys.exit("usage: python -m tests.attacks.table write")
    PAGE.write_text(rendered(PAGE.read_text()))
