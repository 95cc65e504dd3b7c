from __future__ import annotations

from pathlib import Path

import pytest

from tools.words import (
    COMMENTED,
    HELD,
    SPEAKING,
    WORDS_ONLY,
    complaints,
    held,
    is_for_users,
    modules,
    too_long,
    wrong_comments,
    wrong_names,
    wrong_page_words,
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


@pytest.mark.parametrize(
    ("page", "lines"),
    [
        ("Half of a GPU.", []),
        ("Two GPUs.\nHalf of a card.", [2]),
        ("Cards are\nnumbered.", [1]),
        ('The reason `cards`, <a id="cards"></a>and [a link](x.md#cards).', []),
    ],
)
def test_a_page_for_users_uses_the_words_of_the_glossary(page: str, lines: list[int]) -> None:
    assert [int(found.split(":")[0].removeprefix("line ")) for found in wrong_page_words(page)] == lines


def test_pages_for_contributors_use_the_words_of_the_code() -> None:
    assert is_for_users(Path("docs/tutorial.md"))
    assert is_for_users(Path("README.md"))
    assert not is_for_users(Path("docs/design/protocol.md"))


def test_commands_of_a_page_are_not_prose(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Plain.\n```console\n$ make it anew\n```\nMade anew.\n")
    assert complaints(page) == ["line 5: 'anew': write again"]


SOURCE = '''"""A module.

Made anew."""
def told(name):
    """Whoever asks."""
    return f"{name} is made anew" + "plain"  # so many
#: Plain.
# "Otherwise" is the first word of this comment.
'''


def test_strings_and_docstrings_of_a_module_are_held() -> None:
    assert sorted(wrong_texts(SOURCE)) == [
        "line 3: 'anew': write again",
        "line 5: 'Whoever': write name the thing",
        "line 6: 'anew': write again",
    ]


def test_comments_of_a_module_are_held_and_its_strings_are_none() -> None:
    assert list(wrong_comments(SOURCE)) == [
        "line 6: 'so many': write the number",
        "line 8: 'Otherwise': write the condition",
    ]


def test_names_with_a_private_word_and_modules_named_by_a_gerund_are_found() -> None:
    source = "class WardenLink:\n    def set_aside(self) -> None: ...\n\n\nasync def _berths() -> None: ...\n"
    assert list(wrong_names(Path("scheduler/gathering.py"), source)) == [
        "line 1: module 'gathering': name it by a noun, or add 'gathering' to GERUNDS",
        "line 1: name 'WardenLink': write memory enforcer",
        "line 5: name '_berths': write reserved nodes",
    ]
    assert list(wrong_names(Path("gpu/string_binding.py"), "def berth_of() -> None: ...\n")) == [
        "line 1: name 'berth_of': write reserved nodes"
    ]


def test_comments_of_every_package_are_held() -> None:
    packages = {path.parent.name for path in Path().glob("*/__init__.py")}
    assert packages
    assert packages <= {*SPEAKING, *COMMENTED}
    assert Path("tests/tools/test_words.py") in modules(COMMENTED)


def test_files_that_are_held_are_there() -> None:
    assert [name for name in (*HELD, *WORDS_ONLY) if not Path(name).is_file()] == []


def test_all_pages_are_held_but_notes_on_the_code_of_kai() -> None:
    pages = set(map(str, held()))
    assert {*HELD, *WORDS_ONLY} <= pages
    assert {*map(str, Path("docs").rglob("*.md"))} - pages == {"docs/reference/kai-contract.md"}
