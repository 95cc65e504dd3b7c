"""Tables: on a terminal as wide as that is and in colour, elsewhere a line for each row, as kubectl's."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from runtime.text import line

GAP: Final = "   "
#: Prose that is wrapped has at least so much room, or what it needs.
_LEAST_PROSE: Final = 24
_LEAST_FOLDED: Final = 12
_WIDE: Final = frozenset("WF")


class Layout(NamedTuple):
    """The columns that are shown, by their positions, with the width of each; titles of those left out."""

    columns: tuple[int, ...]
    widths: tuple[int, ...]
    left_out: tuple[str, ...]


class Kinds(NamedTuple):
    """Which columns of a table may be left out, in that order; wrapped; and folded, if nothing else helps."""

    spare: Sequence[str] = ()
    prose: Collection[str] = ()
    folds: Collection[str] = ()


def laid_out(titles: Sequence[str], natural: Sequence[int], kinds: Kinds, width: int, *, gap: int = len(GAP)) -> Layout:
    """Make room within a width. ``natural``: how wide each column is with its text in one line.

    Pure. A column is cut nowhere. On a narrow terminal prose is wrapped, then whole columns are left out in the order
    that the table gives, then what may be folded is. Names of nodes are neither.
    """
    columns = list(range(len(titles)))

    def fits(shown: Sequence[int]) -> bool:
        return _needed(_least(titles, natural, kinds.prose, shown), gap) <= width

    left_out: list[int] = []
    for at in [titles.index(title) for title in kinds.spare if title in titles]:
        if fits(columns):
            break
        columns.remove(at)
        left_out.append(at)
    # A wide column that is left out may have made room for narrow ones that were left out before it.
    for at in reversed(left_out[:-1]):
        if fits(longer := sorted([*columns, at])):
            columns = longer
            left_out.remove(at)
    wraps = kinds.prose
    least = _least(titles, natural, wraps, columns)
    if _needed(least, gap) > width:
        wraps = {*kinds.prose, *kinds.folds}
        least = _least(titles, natural, wraps, columns, room=_LEAST_FOLDED)
    rest = max(0, width - _needed(least, gap))
    widths = _widened(least, [natural[at] for at in columns], rest)
    return Layout(tuple(columns), tuple(widths), tuple(titles[at] for at in left_out))


def _least(
    titles: Sequence[str],
    natural: Sequence[int],
    wraps: Collection[str],
    columns: Sequence[int],
    *,
    room: int = _LEAST_PROSE,
) -> list[int]:
    return [min(natural[at], max(room, cells(titles[at]))) if titles[at] in wraps else natural[at] for at in columns]


def _needed(widths: Sequence[int], gap: int) -> int:
    return sum(widths) + gap * max(0, len(widths) - 1)


def _widened(least: Sequence[int], natural: Sequence[int], rest: int) -> list[int]:
    """Divide what is left among the columns that are narrower than their text: the shortest first get all they need."""
    widths = list(least)
    narrow = sorted((at for at, each in enumerate(widths) if each < natural[at]), key=lambda at: natural[at])
    for number, at in enumerate(narrow):
        given = min(natural[at] - widths[at], rest // (len(narrow) - number))
        widths[at] += given
        rest -= given
    return widths


def told_left_out(titles: Iterable[str]) -> str:
    """Name the columns that are left out, and how to see them."""
    return f"Columns left out at this width: {', '.join(titles)}. All of them: -o wide"


def wrapped(text: str, width: int) -> list[str]:
    """Break a line at its blanks, and words that are longer than the width where they end."""
    if cells(text) <= width:
        return [text]
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        for piece in _pieces(word, width):
            longer = f"{line} {piece}" if line else piece
            if line and cells(longer) > width:
                lines.append(line)
                line = piece
            else:
                line = longer
    return [*lines, line]


def _pieces(word: str, width: int) -> Iterator[str]:
    """A word in pieces that fit."""
    piece, used = "", 0
    for character in word:
        room = cells(character)
        if piece and used + room > width:
            yield piece
            piece, used = "", 0
        piece += character
        used += room
    yield piece


def cells(text: str) -> int:
    """How many cells of a terminal a line takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in _WIDE else 1 for each in text
    )


#: Between the lines of a cell, where a row is one line.
_LINES: Final = "; "
#: What a cell has where there is nothing.
_NOTHING: Final = frozenset({"", "-"})
_CODES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
#: Terminals that draw nothing.
_PLAIN_TERMINALS: Final = frozenset({"dumb", "unknown"})
_UNKNOWN_SIZE: Final = (80, 24)


class Cell(msgspec.Struct, frozen=True):
    """Text of one or more lines, in a style. ``repeats``: it is that of the row above, which a person need not see."""

    text: str
    style: str = ""
    repeats: bool = False


class Sheet(msgspec.Struct, frozen=True, kw_only=True):
    """One table. Rows have as many cells as there are columns; without columns it is its title alone.

    ``spare``: columns that are left out on narrow terminals, the first one first. ``prose``: those that are wrapped.
    ``folds``: those that are, if nothing else helps. ``of``: a column and its value in all rows, that the title has
    for a person.
    """

    title: str = ""
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    spare: Sequence[str] = ()
    prose: Sequence[str] = ()
    folds: Sequence[str] = ()
    of: tuple[str, str] | None = None


#: Rows that a table of many pods has for a person.
_MOST_ROWS: Final = 50


def first_rows(rows: Sequence[Sequence[Cell]]) -> Sequence[Sequence[Cell]]:
    """Return the first rows for a person, and below them how many more ``-o json`` has."""
    if len(rows) <= _MOST_ROWS:
        return rows
    rest = Cell(f"and {len(rows) - _MOST_ROWS} more (-o json)")
    return [*rows[:_MOST_ROWS], [rest, *[Cell("")] * (len(rows[0]) - 1)]]


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """How tables are printed. ``is_wide``: no column is left out. ``has_headers``: titles and header lines, too."""

    is_wide: bool = False
    has_headers: bool = True


def show(sheets: Sequence[Sheet], notes: Iterable[str] = (), look: Look | None = None) -> None:
    """Print tables to stdout, and what is missing in them to stderr."""
    look = look or Look()
    width = terminal_width()
    if width is not None:
        is_coloured = not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in _PLAIN_TERMINALS
        made = drawn(sheets, width, look, is_coloured=is_coloured)
    else:
        made = _apart([plain(sheet, look) for sheet in sheets], look)
    sys.stdout.writelines(f"{each}\n" for each in made)
    sys.stderr.writelines(f"not read: {line(note)}\n" for note in notes)


def terminal_width() -> int | None:
    """How many columns the terminal on stdout has; None where it is no terminal."""
    return shutil.get_terminal_size(_UNKNOWN_SIZE).columns if sys.stdout.isatty() else None


def plain(sheet: Sheet, look: Look | None = None) -> list[str]:
    """A line for each row, with columns as wide as their longest cell: for programs, or for ``less -S``."""
    has_headers = look is None or look.has_headers
    title = [line(sheet.title)] if sheet.title and (has_headers or not sheet.columns) else []
    if not sheet.columns:
        return title
    of = sheet.of
    head = [*([of[0]] if of else []), *sheet.columns]
    rows = [[*([line(of[1])] if of else []), *(_LINES.join(_lines(cell)) for cell in row)] for row in sheet.rows]
    shown = [head, *rows] if has_headers else rows
    return [*title, *aligned(shown)]


def aligned(rows: Sequence[Sequence[str]], gap: str = GAP) -> list[str]:
    """Return a line for each row, with columns as wide as their longest cell."""
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    return [
        gap.join(text + " " * (width - cells(text)) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def drawn(sheets: Sequence[Sheet], width: int, look: Look, *, is_coloured: bool = False) -> list[str]:
    """Lines for a terminal, and a last one that names the columns that are left out."""
    left_out: dict[str, None] = {}
    blocks = []
    for sheet in sheets:
        layout = _layout(sheet, width, look)
        left_out |= dict.fromkeys(layout.left_out)
        blocks.append(list(_drawn(sheet, layout, width, look, is_coloured=is_coloured)))
    made = _apart(blocks, look)
    if left_out and look.has_headers:
        told = wrapped(told_left_out(map(line, left_out)), width)
        made += ["", *(_styled(each, "dim", is_coloured=is_coloured) for each in told)]
    return made


def _layout(sheet: Sheet, width: int, look: Look) -> Layout:
    natural = [cells(title) if look.has_headers else 0 for title in sheet.columns]
    for row in sheet.rows:
        natural = [max(width, *map(cells, _lines(cell))) for width, cell in zip(natural, row, strict=True)]
    # Nothing is lost with a column that has nothing in it.
    spare = () if look.is_wide else tuple(dict.fromkeys((*_empty(sheet), *sheet.spare)))
    return laid_out(sheet.columns, natural, Kinds(spare, sheet.prose, sheet.folds), width)


def _empty(sheet: Sheet) -> Iterator[str]:
    """Columns in which no row has anything, but for the first one."""
    for at, title in enumerate(sheet.columns):
        if at and sheet.rows and all(row[at].text in _NOTHING for row in sheet.rows):
            yield title


def _drawn(sheet: Sheet, layout: Layout, width: int, look: Look, *, is_coloured: bool) -> Iterator[str]:
    if sheet.title and (look.has_headers or not sheet.columns):
        style = "bold" if sheet.columns else ""
        yield from (_styled(each, style, is_coloured=is_coloured) for each in wrapped(line(sheet.title), width))
    if not sheet.columns:
        return
    if look.has_headers:
        titles = [Cell(sheet.columns[at], "dim") for at in layout.columns]
        yield from _table_row(titles, layout.widths, is_coloured=is_coloured)
    for row in sheet.rows:
        yield from _table_row([row[at] for at in layout.columns], layout.widths, is_coloured=is_coloured)


def _table_row(row: Sequence[Cell], widths: Sequence[int], *, is_coloured: bool) -> Iterator[str]:
    """A row as lines of text, as many as its longest cell has."""
    texts = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
    for number in range(max(map(len, texts))):
        parts = [text[number] if number < len(text) else "" for text in texts]
        last = max((at for at, part in enumerate(parts) if part), default=-1)
        made = ""
        for at, part in enumerate(parts[: last + 1]):
            made += _styled(part, row[at].style, is_coloured=is_coloured)
            made += "" if at == last else " " * (widths[at] - cells(part)) + GAP
        yield made


def _wrapped(cell: Cell, width: int) -> list[str]:
    return [""] if cell.repeats else [each for text in _lines(cell) for each in wrapped(text, width)]


def _styled(text: str, style: str, *, is_coloured: bool) -> str:
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if is_coloured and style and text else text


def _apart(blocks: Sequence[Sequence[str]], look: Look) -> list[str]:
    """The lines of all tables, with an empty one between two of them where they have titles."""
    made: list[str] = []
    for block in blocks:
        made += ["", *block] if made and look.has_headers else block
    return made


def _lines(cell: Cell) -> list[str]:
    """The lines of a cell. What pods say of themselves is in them."""
    return [line(each) for each in cell.text.split("\n")]
