from __future__ import annotations

from pathlib import Path

import pytest

from tools.words import (
    DOCSTRINGS_LATER,
    HELD,
    SPEAKING,
    WORDS_ONLY,
    complaints,
    held,
    too_long,
    wrong_texts,
    wrong_words,
)

LONG = "word " * 26


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("It is plain.", []),
        ("Made anew.\nPlain.\nBy so many MiB.", [1, 3]),
        ("Whoever waits is told why.", [1, 1]),
        ("Canewood is a plant.", []),
    ],
)
def test_a_word_with_a_plainer_one_is_found_with_its_line(text: str, lines: list[int]) -> None:
    assert [int(found.split(":")[0].removeprefix("line ")) for found in wrong_words(text)] == lines


@pytest.mark.parametrize(
    ("page", "count"),
    [
        (LONG, 1),
        ("word " * 25, 0),
        ("one. " * 40, 0),
        (f"```\n{LONG}\n```\n", 0),
        (f"<!-- {LONG} -->", 0),
        (f"`{LONG}`", 0),
        ("- " + "word " * 20 + "\n- " + "word " * 20, 0),
        ("| a | " + "x" * 121 + " |", 1),
        ("| a | " + "x" * 120 + " |", 0),
        ("| " + " | ".join(["word word word"] * 20) + " |", 0),
        ("[here](" + "x/" * 100 + ")", 0),
    ],
)
def test_long_sentences_and_cells_are_found(page: str, count: int) -> None:
    assert len(list(too_long(page))) == count


def test_commands_of_a_page_are_not_prose(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Plain.\n```console\n$ make it anew\n```\nMade anew.\n")
    assert complaints(page) == ["line 5: 'anew': write again"]


def test_texts_of_a_module_are_held_with_its_docstrings_where_these_are_rewritten() -> None:
    source = '''"""A module.

Made anew."""
def told(name):
    """Whoever asks."""
    return f"{name} is made anew" + "plain"
'''
    text = "line 6: 'anew': write again"
    assert list(wrong_texts(source, docstrings=False)) == [text]
    held_too = ["line 3: 'anew': write again", "line 5: 'Whoever': write name the thing", text]
    assert sorted(wrong_texts(source)) == held_too


def test_packages_whose_docstrings_wait_are_held_in_their_other_texts() -> None:
    assert set(DOCSTRINGS_LATER) <= set(SPEAKING)
    assert "cli" not in DOCSTRINGS_LATER


def test_files_that_are_held_are_there() -> None:
    assert [name for name in (*HELD, *WORDS_ONLY) if not Path(name).is_file()] == []


def test_all_pages_are_held_but_notes_on_the_code_of_kai() -> None:
    pages = set(map(str, held()))
    assert {*HELD, *WORDS_ONLY} <= pages
    assert {*map(str, Path("docs").rglob("*.md"))} - pages == {"docs/reference/kai-contract.md"}
