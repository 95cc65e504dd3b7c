"""The site's navigation is what docs/README.md and docs/design/README.md list, and no page is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.navigation import DESIGN, ROOT, Entry, Section, sections, toctrees

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


def test_lists_are_sections_and_paths_are_from_the_root() -> None:
    assert sections(INDEX, ["README", "docs/install", "docs/migrating/kai", ROOT]) == (
        Section("Use it", (Entry("README", "Sharing"), Entry("docs/install", "Installing"))),
        Section("Trust it", (Entry("docs/migrating/kai", "Of KAI"),)),
    )


def test_a_page_that_is_not_listed_stands_at_the_end() -> None:
    *_, last = sections(INDEX, ["docs/tracing", "docs/install", ROOT, "docs/page"])
    assert last == Section("Further pages", (Entry("docs/page"), Entry("docs/tracing")))


def test_design_pages_are_listed_by_their_own_index() -> None:
    pages = ["docs/install", "docs/design/model", "docs/design/healing", DESIGN, ROOT]
    assert sections("## A\n- [Design](design/README.md)\n", pages)[1:] == (
        Section("Further pages", (Entry("docs/install"),)),
    )
    assert sections("## B\n- [The model](model.md)\n", pages, DESIGN) == (
        Section("B", (Entry("docs/design/model", "The model"),)),
        Section("Further pages", (Entry("docs/design/healing"),)),
    )


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


def test_the_directives_name_pages_from_the_root() -> None:
    assert toctrees([Section("Use it", (Entry("docs/a", "About a"), Entry("docs/b")))]) == (
        "\n```{toctree}\n:hidden:\n:caption: Use it\n\nAbout a </docs/a>\n/docs/b\n```\n"
    )


@pytest.mark.parametrize("at", [ROOT, DESIGN])
def test_what_an_index_lists_is_there(at: str) -> None:
    listed = sections((DOCUMENTS / f"{at}.md").read_text(encoding="utf-8"), [], at)
    entries = [entry for section in listed for entry in section.entries]
    assert len(entries) >= 15
    assert [entry for entry in entries if not (DOCUMENTS / f"{entry.page}.md").is_file()] == []
