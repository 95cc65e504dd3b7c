"""Columns of a table within a width: prose is wrapped, then columns are left out, then names are folded."""

from __future__ import annotations

import pytest

from ui.tables import Kinds, cells, laid_out, wrapped

TITLES = ("NODE", "A", "B", "WHY")
KINDS = Kinds(spare=("B", "A"), prose=("WHY",), folds=("A",))


@pytest.mark.parametrize(
    ("natural", "width", "columns", "widths", "left_out"),
    [
        ((10, 10, 10, 40), 80, (0, 1, 2, 3), (10, 10, 10, 40), ()),
        ((10, 10, 10, 90), 80, (0, 1, 2, 3), (10, 10, 10, 41), ()),
        ((30, 10, 10, 90), 80, (0, 1, 3), (30, 10, 34), ("B",)),
        ((50, 10, 10, 90), 80, (0, 3), (50, 27), ("B", "A")),
        ((70, 10, 10, 90), 80, (0, 3), (70, 12), ("B", "A")),
        ((10, 10, 10, 3), 36, (0, 1, 3), (10, 10, 3), ("B",)),
    ],
    ids=["all fit", "prose is wrapped", "one is left out", "two are", "a node's name is whole", "short prose is not"],
)
def test_what_gives_way(
    natural: tuple[int, ...], width: int, columns: tuple[int, ...], widths: tuple[int, ...], left_out: tuple[str, ...]
) -> None:
    assert laid_out(TITLES, natural, KINDS, width) == (columns, widths, left_out)


def test_names_are_folded_where_nothing_else_helps() -> None:
    kinds = Kinds(prose=("WHY",), folds=("A",))
    assert laid_out(TITLES, (10, 60, 10, 90), kinds, 80) == ((0, 1, 2, 3), (10, 25, 10, 26), ())
    assert laid_out(TITLES, (10, 60, 10, 10), kinds, 120).widths == (10, 60, 10, 10)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("one two", ["one two"]),
        ("one two three", ["one two", "three"]),
        ("one  two", ["one  two"]),
        ("abcdefghijklmno", ["abcdefgh", "ijklmno"]),
        ("a abcdefghijklmno", ["a", "abcdefgh", "ijklmno"]),
        ("\u4e00\u4e8c\u4e09\u56db\u4e94", ["\u4e00\u4e8c\u4e09\u56db", "\u4e94"]),
    ],
)
def test_lines_break_at_blanks_and_words_where_the_width_ends(text: str, lines: list[str]) -> None:
    assert wrapped(text, 8) == lines


def test_wide_characters_take_two_cells_and_marks_none() -> None:
    assert (cells("ab"), cells("\u4e00b"), cells("e\u0301")) == (2, 3, 1)
