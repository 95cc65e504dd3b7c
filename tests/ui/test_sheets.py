"""Tables as lines: one a row for programs, and within the terminal's width for people."""

from __future__ import annotations

import os
import sys

import pytest

from ui.tables import Cell, Look, Sheet, drawn, plain, show

PODS = Sheet(
    title="Pods:",
    columns=("POD", "NODE", "ASKS", "WHY"),
    rows=[
        [Cell("a"), Cell("node-with-a-long-name"), Cell("x" * 30), Cell("one two\nthree", "red")],
        [Cell("a", repeats=True), Cell("n"), Cell("y"), Cell("")],
    ],
    spare=("ASKS",),
    prose=("WHY",),
    of=("TEAM", "t"),
)
BARE = Look(has_headers=False)


def test_for_programs_each_row_is_one_line_with_all_that_its_title_says() -> None:
    assert plain(PODS) == [
        "Pods:",
        "TEAM   POD   NODE                    ASKS                             WHY",
        f"t      a     node-with-a-long-name   {'x' * 30}   one two; three",
        "t      a     n                       y",
    ]


def test_without_headers_there_are_rows_alone() -> None:
    assert plain(PODS, BARE) == [
        f"t   a   node-with-a-long-name   {'x' * 30}   one two; three",
        "t   a   n                       y",
    ]
    assert (
        drawn([PODS, PODS], 200, BARE)
        == [
            f"a   node-with-a-long-name   {'x' * 30}   one two",
            f"{'':61}three",
            "    n                       y",
        ]
        * 2
    )
    said = Sheet(title="nothing here", columns=(), rows=())
    assert plain(said, BARE) == drawn([said], 80, BARE) == ["nothing here"]


def test_on_a_narrow_terminal_columns_are_left_out_and_named() -> None:
    assert drawn([PODS], 50, Look()) == [
        "Pods:",
        "POD   NODE                    WHY",
        "a     node-with-a-long-name   one two",
        "                              three",
        "      n",
        "",
        "Columns left out at this width: ASKS. All of them:",
        "-o wide",
    ]


def test_wide_leaves_out_none() -> None:
    made = drawn([PODS], 50, Look(is_wide=True))
    assert made[1].split() == ["POD", "NODE", "ASKS", "WHY"]
    assert len(made) == 5


def test_titles_and_sentences_are_wrapped() -> None:
    said = Sheet(title="one two three", columns=(), rows=())
    assert drawn([said], 8, Look()) == ["one two", "three"]


def test_styles_do_not_count_as_width_and_reach_no_blanks() -> None:
    row = drawn([PODS], 200, Look(), is_coloured=True)[2]
    assert row == f"a     node-with-a-long-name   {'x' * 30}   \x1b[31mone two\x1b[0m"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_sheet_without_columns_is_its_title_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    monkeypatch.setenv("TERM", "dumb")
    show([Sheet(title="said", columns=(), rows=()), Sheet(columns=("A",), rows=[[Cell("b")]])], ["secrets"])
    told = capsys.readouterr()
    assert told.out.splitlines() == ["said", "", "A", "b"]
    assert told.err == "not read: secrets\n"


@pytest.mark.parametrize(
    ("variables", "is_coloured"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"TERM": "xterm", "NO_COLOR": "1"}, False)],
)
def test_colours_are_for_terminals_that_have_them(
    variables: dict[str, str], is_coloured: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setitem(os.environ, name, value)
    show([PODS])
    assert ("\x1b[" in capsys.readouterr().out) is is_coloured
