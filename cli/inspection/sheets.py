"""Tables: plain lines where a program reads (as kubectl's), drawn by rich where a person does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from cli.printable import line

_GAP: Final = "   "


class Cell(msgspec.Struct, frozen=True):
    """Text of one or more lines, in a style of rich."""

    text: str
    style: str = ""


class Sheet(msgspec.Struct, frozen=True, kw_only=True):
    """One table. Rows have as many cells as there are columns; without columns it is its title alone."""

    title: str = ""
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


def show(sheets: Sequence[Sheet], notes: Sequence[str]) -> None:
    """Print tables to stdout, and what is missing in them to stderr."""
    if sys.stdout.isatty():
        _draw(sheets)
    else:
        sys.stdout.write("\n".join("".join(f"{each}\n" for each in plain(sheet)) for sheet in sheets))
    sys.stderr.writelines(f"not read: {line(note)}\n" for note in notes)


def plain(sheet: Sheet) -> list[str]:
    """Columns as wide as they need, whatever that is: lines are for programs, or for ``less -S``."""
    title = [line(sheet.title)] if sheet.title else []
    if not sheet.columns:
        return title
    rows = [list(sheet.columns), *(_line for row in sheet.rows for _line in _lines(row))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(sheet.columns))]
    made = (_GAP.join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows)
    return [*title, *(each.rstrip() for each in made)]


def _lines(row: Sequence[Cell]) -> list[list[str]]:
    """A row as lines of text, as many as its longest cell has."""
    cells = [_text(cell).split("\n") for cell in row]
    return [
        [cell[number] if number < len(cell) else "" for cell in cells] for number in range(max(len(c) for c in cells))
    ]


def _text(cell: Cell) -> str:
    """The lines of a cell. What pods say of themselves is in them."""
    return "\n".join(line(each) for each in cell.text.split("\n"))


def _draw(sheets: Sequence[Sheet]) -> None:
    from rich.console import Console  # noqa: PLC0415 - rich is for terminals
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    console = Console(highlight=False)
    for number, sheet in enumerate(sheets):
        if number:
            console.print()
        if sheet.title:
            console.print(Text(line(sheet.title), style="bold" if sheet.columns else ""))
        if not sheet.columns:
            continue
        table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, len(_GAP), 0, 0))
        for column in sheet.columns:
            table.add_column(column, overflow="fold")
        for row in sheet.rows:
            table.add_row(*(Text(_text(cell), style=cell.style) for cell in row))
        console.print(table)
