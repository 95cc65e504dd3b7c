"""The order of the pages of the documentation, as docs/README.md lists them.

That page is read on GitHub and is the first one of the site; its lists are the site's navigation too, so there is one
list to keep. What it does not name is listed after it: a page that somebody adds is never lost, and fails nothing.
Sphinx' environment has nothing of ours, so this module needs nothing either.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

#: The page that lists all others; the names of pages are paths from the repository's root, without ``.md``.
ROOT: Final = "docs/README"
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


def sections(index: str, pages: Iterable[str]) -> tuple[Section, ...]:
    """Read the lists of ``index``, and put what they leave out of ``pages`` at the end.

    Raises ValueError for a page that is listed twice or before the first heading.
    """
    listed: dict[str, list[Entry]] = {}
    seen: set[str] = {ROOT}
    for found in _SECTION.finditer(index):
        if found["section"]:
            listed[found["section"]] = []
            continue
        page = posixpath.normpath(posixpath.join(posixpath.dirname(ROOT), found["path"]))
        if page in seen or not listed:
            raise ValueError(f"{ROOT}.md: {page}.md is listed {'twice' if page in seen else 'before any heading'}")
        seen.add(page)
        listed[next(reversed(listed))].append(Entry(page, found["title"]))
    listed[_UNLISTED] = [Entry(page) for page in sorted(set(pages) - seen)]
    return tuple(Section(title, tuple(entries)) for title, entries in listed.items() if entries)


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
