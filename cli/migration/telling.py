"""Rows as a table for people, and as JSON or YAML for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from cli.checks.finding import some_of
from cli.inspection.sheets import Cell, Sheet, show
from cli.migration.rows import Level, Row
from cli.printable import line

_STYLES: Final = {Level.FIRST: "red", Level.DIFFERS: "yellow", Level.KEPT: "green"}


def counts(rows: Sequence[Row]) -> dict[str, int]:
    """How many rows there are of each level."""
    return {level.value: sum(row.level is level for row in rows) for level in Level}


def tell(rows: Sequence[Row], *, output: str) -> None:
    """Print the rows to stdout. ``wide``: a line for each object; otherwise those of which the same is said are one."""
    if output in {"json", "yaml"}:
        _write({"counts": counts(rows), "rows": [row.told() for row in rows]}, output)
        return
    show([_sheet(rows, is_wide=output == "wide")], ())
    print(", ".join(f"{count} {level}" for level, count in counts(rows).items()))


def _sheet(rows: Sequence[Row], *, is_wide: bool) -> Sheet:
    lines: dict[tuple[str, ...], list[Row]] = {}
    for number, row in enumerate(rows):
        kind = row.about.partition(" ")[0]
        lines.setdefault((row.code.value, row.said, kind, str(number) if is_wide else ""), []).append(row)
    columns = ("LEVEL", "WHAT", "ABOUT", "SAID")
    return Sheet(columns=columns, rows=[_line(those) for those in lines.values()])


def _line(those: Sequence[Row]) -> list[Cell]:
    """One line for rows that differ in their objects only, with what to do below what was found."""
    first = those[0]
    kind, _, name = first.about.partition(" ")
    others = [row.about.removeprefix(f"{kind} ") for row in those[1:]]
    said = line(first.said) + (f"\n-> {line(first.do)}" if first.do else "")
    about = f"{kind} {some_of([name, *others])}" if name else first.about
    return [Cell(first.level.value, _STYLES[first.level]), Cell(first.code.value), Cell(about), Cell(said)]


def _write(told: dict[str, Any], output: str) -> None:
    if output == "yaml":
        import yaml  # noqa: PLC0415 - for those who ask for it

        yaml.safe_dump(told, sys.stdout, sort_keys=False, allow_unicode=True, width=120)
    else:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(told)).decode() + "\n")
