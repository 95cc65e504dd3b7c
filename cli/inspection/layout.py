"""Where the text of a table goes on a terminal: which columns are left out, and how wide the others are. Pure.

A column is cut nowhere. On a narrow terminal prose is wrapped, then whole columns are left out in the order that the
table gives, then what may be folded is. Names of nodes are neither.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

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
    """Make room within a width. ``natural``: how wide each column is with its text in one line."""
    columns = list(range(len(titles)))
    left_out: list[str] = []
    for title in kinds.spare:
        if _needed(_least(titles, natural, kinds.prose, columns), gap) <= width:
            break
        if title in titles:
            columns.remove(titles.index(title))
            left_out.append(title)
    wraps = kinds.prose
    least = _least(titles, natural, wraps, columns)
    if _needed(least, gap) > width:
        wraps = {*kinds.prose, *kinds.folds}
        least = _least(titles, natural, wraps, columns, room=_LEAST_FOLDED)
    rest = max(0, width - _needed(least, gap))
    widths = _widened(least, [natural[at] for at in columns], rest)
    return Layout(tuple(columns), tuple(widths), tuple(left_out))


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
