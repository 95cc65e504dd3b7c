"""Rows as lines for people, as ``moorage admin check`` has them, and as JSON or YAML for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cli.checks.finding import some_of
from cli.migration.rows import Level, Row
from cli.options.output import FOR_PROGRAMS, WIDE
from cli.printable import line
from cli.writing import write

_WIDTH: Final = max(len(level.value) for level in Level)


def counts(rows: Sequence[Row]) -> dict[str, int]:
    """How many rows there are of each level."""
    return {level.value: sum(row.level is level for row in rows) for level in Level}


def tell(rows: Sequence[Row], *, output: str, details: bool = False) -> None:
    """Print the rows to stdout. ``wide``: a line for each object; else rows that differ in their objects only are one.

    ``details``: with those that say that nothing changes, too; programs get them in any case.
    """
    if output in FOR_PROGRAMS:
        write({"counts": counts(rows), "rows": [row.told() for row in rows]}, output)
        return
    shown = [row for row in rows if details or not row.is_detail]
    for those in _alike(shown, is_wide=output == WIDE):
        print("\n".join(_lines(those)))
    if hidden := len(rows) - len(shown):
        options = "an option" if hidden == 1 else f"{hidden} options"
        print(f"{Level.KEPT.value:{_WIDTH}}  {options} of KAI's changing nothing here (--details)")
    print(", ".join(f"{count} {level}" for level, count in counts(rows).items()))


def _alike(rows: Sequence[Row], *, is_wide: bool) -> Iterator[list[Row]]:
    """Rows that differ in their objects only, or each alone."""
    lines: dict[tuple[str, ...], list[Row]] = {}
    for number, row in enumerate(rows):
        kind = row.about.partition(" ")[0]
        lines.setdefault((row.code.value, row.said, kind, str(number) if is_wide else ""), []).append(row)
    yield from lines.values()


def _lines(those: Sequence[Row]) -> list[str]:
    """What was found, and below it what to do."""
    first = those[0]
    kind, _, name = first.about.partition(" ")
    others = [row.about.removeprefix(f"{kind} ") for row in those[1:]]
    about = f"{kind} {some_of([name, *others])}" if name else first.about
    told = [f"{first.level.value:{_WIDTH}}  {line(about)}: {line(first.said)} [{first.code.value}]"]
    return [*told, f"{'':{_WIDTH}}  -> {line(first.do)}"] if first.do else told
