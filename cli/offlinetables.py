"""Translations and findings as tables, for a terminal; elsewhere they are lines (cli/translate.py, cli/lint.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from cli.tables import console

_LEVELS = {"error": "red", "warning": "yellow", "note": "dim"}
_FACTS = {"refused": "red", "note": "yellow", "change": "dim", "or": "dim"}


def show_facts(rows: Iterable[tuple[str, Sequence[tuple[str, str]]]]) -> None:
    """One row a pod: where it stands, and what is known of it, each fact with what it is about."""
    table = Table(header_style="dim", show_lines=True)
    for title in ("pod", "what Moorage makes of it"):
        table.add_column(title, overflow="fold")
    for place, facts in rows:
        cell = Text()
        for number, (what, text) in enumerate(facts):
            cell.append("\n" if number else "")
            cell.append(f"{what:<9} ", style="dim")
            cell.append(text, style=_FACTS.get(what, ""))
        table.add_row(Text(place), cell)
    console().print(table)


def show_findings(rows: Iterable[tuple[str, str, str]], summary: str) -> None:
    """One row a finding: place, level and words; then the sum."""
    table = Table(header_style="dim")
    for title in ("where", "level", "what"):
        table.add_column(title, overflow="fold")
    for place, level, text in rows:
        table.add_row(Text(place), Text(level, style=_LEVELS.get(level, "")), Text(text))
    if table.row_count:
        console().print(table)
    console().print(Text(summary))
