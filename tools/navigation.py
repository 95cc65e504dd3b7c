"""The order of the pages of the documentation, as docs/README.md and docs/design/README.md list them.

These pages are read on GitHub, the first of them is the site's first page, and their lists are the site's navigation,
so there is one list to keep. Pages for developers have a list of their own, which users need not see. A page that no
list names comes after the others: a page that somebody adds is never lost, and fails nothing.
Sphinx' environment has nothing of ours, so this module needs nothing either.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

#: The page that lists all others; the names of pages are paths from the repository's root, without ``.md``.
ROOT: Final = "docs/README"
#: Lists the pages for developers in place of the root: those of its folder, and these.
DESIGN: Final = "docs/design/README"
FOR_DEVELOPERS: Final = frozenset(
    {"CONTRIBUTING", "docs/contributing", "docs/reference/kai-contract", "docs/reference/node-features"}
)
_UNLISTED: Final = "Further pages"
_SECTION: Final = re.compile(
    r"^## +(?P<section>.+?) *$|^- +\[(?P<title>[^\]]+)\]\((?P<path>[^)#:]+)\.md\)", re.MULTILINE
)


class Entry(NamedTuple):
    """A page, by its path from the root without ``.md``, and how the navigation names it; empty: by its own title."""

    page: str
    title: str = ""


class Section(NamedTuple):
    """A heading, and the pages that stand under it."""

    title: str
    entries: tuple[Entry, ...]


def sections(index: str, pages: Iterable[str], at: str = ROOT) -> tuple[Section, ...]:
    """Read the lists of the page ``at``, and put those of its ``pages`` that they leave out at the end.

    Raises ValueError for a page that is listed twice or before the first heading.
    """
    listed: dict[str, list[Entry]] = {}
    seen: set[str] = {at}
    for found in _SECTION.finditer(index):
        if found["section"]:
            listed[found["section"]] = []
            continue
        page = posixpath.normpath(posixpath.join(posixpath.dirname(at), found["path"]))
        if page in seen or not listed:
            raise ValueError(f"{at}.md: {page}.md is listed {'twice' if page in seen else 'before any heading'}")
        seen.add(page)
        listed[next(reversed(listed))].append(Entry(page, found["title"]))
    listed[_UNLISTED] = [Entry(page) for page in sorted(set(pages) - seen) if _index_of(page) == at]
    return tuple(Section(title, tuple(entries)) for title, entries in listed.items() if entries)


def _index_of(page: str) -> str:
    """The page that lists a page."""
    is_below = page.startswith(f"{posixpath.dirname(DESIGN)}/") and page != DESIGN
    return DESIGN if is_below or page in FOR_DEVELOPERS else ROOT


def toctrees(found: Sequence[Section]) -> str:
    """Return the directives by which MyST and Sphinx make a sidebar of them, to be put after the index' own text."""
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {section.title}\n\n"
        + "".join(f"{_target(entry)}\n" for entry in section.entries)
        + "```\n"
        for section in found
    )


def _target(entry: Entry) -> str:
    return f"{entry.title} </{entry.page}>" if entry.title else f"/{entry.page}"
