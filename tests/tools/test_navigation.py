"""The site's navigation is what docs/README.md and docs/design/README.md list, and no page is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.navigation import DESIGN, FOR_DEVELOPERS, ROOT, Entry, Section, sections

DOCUMENTS = Path(__file__).parents[2]
INDEX = """# Documentation

What it is: [the README](../README.md).

## Use it

- [Sharing](../README.md)
- [Installing](install.md): values, upgrade

## Trust it

- [Of KAI](migrating/kai.md)
- [On the web](https://example.com/a.md)
"""


def _text(page: str) -> str:
    return (DOCUMENTS / f"{page}.md").read_text(encoding="utf-8")


def test_lists_are_sections_and_paths_are_from_the_root() -> None:
    assert sections(INDEX, ["README", "docs/install", "docs/migrating/kai", ROOT]) == (
        Section("Use it", (Entry("README", "Sharing"), Entry("docs/install", "Installing"))),
        Section("Trust it", (Entry("docs/migrating/kai", "Of KAI"),)),
    )


def test_pages_for_developers_are_listed_by_the_design_index_alone() -> None:
    users, developers = (
        {entry.page for section in sections(_text(at), FOR_DEVELOPERS, at) for entry in section.entries}
        for at in (ROOT, DESIGN)
    )
    assert developers >= FOR_DEVELOPERS
    assert users & FOR_DEVELOPERS == set()


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ("## A\n- [a](a.md)\n## B\n- [a](a.md)\n", "docs/README.md: docs/a.md is listed twice"),
        ("- [a](a.md)\n", "docs/README.md: docs/a.md is listed before any heading"),
        ("## A\n- [me](README.md)\n", "docs/README.md: docs/README.md is listed twice"),
    ],
)
def test_a_list_that_can_not_be_is_refused(index: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sections(index, [])


@pytest.mark.parametrize("at", [ROOT, DESIGN])
def test_what_an_index_lists_is_there(at: str) -> None:
    listed = sections(_text(at), [], at)
    entries = [entry for section in listed for entry in section.entries]
    assert len(entries) >= 15
    assert [entry for entry in entries if not (DOCUMENTS / f"{entry.page}.md").is_file()] == []
