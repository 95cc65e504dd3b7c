"""The table of threats in docs/security.md names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_NAMED = re.compile(r"`([\w/]+)`: ([\w, ]+)")


def _named() -> set[tuple[str, str]]:
    """(test file, part of a test's name) for each that the table names."""
    rows = [line for line in (ROOT / "docs" / "security.md").read_text().splitlines() if line.startswith("|")]
    cells = [row.rstrip(" |").rpartition("|")[2] for row in rows if "test_" in row]
    return {
        (file if "/" in file else f"tests/e2e/{file}", name.strip())
        for cell in cells
        for file, names in _NAMED.findall(cell)
        for name in names.split(",")
    }


def test_every_threat_of_the_contract_is_in_the_table() -> None:
    text = (ROOT / "docs" / "security.md").read_text()
    assert {int(number) for number in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)} == set(range(1, 12))


@pytest.mark.parametrize(("file", "name"), sorted(_named()))
def test_a_named_test_is_there(file: str, name: str) -> None:
    assert re.search(rf"def \w*{name}", (ROOT / f"{file}.py").read_text())
