"""What pages link to and name is there: pages, anchors, files, folders, tests. Addresses on the web have a form."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.docs.pages import PAGES, ROOT, anchors, code_words, links, name, prose

#: It is about KAI, and names files of KAI's repository.
OF_KAI = ROOT / "docs" / "reference" / "kai-contract.md"
OURS = [page for page in PAGES if page != OF_KAI]
#: Folders in which a path between backticks is one of ours.
FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"build", "dist"}
_PATH = re.compile(r"[\w.-]+(?:/[\w.*{},<>-]+)+/?(?:::\w+)*")
_PAGE = re.compile(r"(?<![\w/.:-])(?:[\w-]+/|\.\./)*[\w-]+\.md\b")


@cache
def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _wrong(page: Path, link: str) -> str:
    """What is wrong with a link of the page, or nothing."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        is_address = parts.scheme == "https" and re.fullmatch(r"[a-z0-9.-]+\.[a-z]{2,}", parts.netloc)
        return "" if is_address else "is no https address"
    target = (page.parent / parts.path).resolve() if parts.path else page
    if not target.is_relative_to(ROOT) or not target.is_file():
        return "is no file of the repository"
    if parts.fragment and (target.suffix != ".md" or parts.fragment not in anchors(text(target))):
        return f"has no heading #{parts.fragment}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    wrong = {link: _wrong(page, link) for link in links(text(page))}
    assert {link: why for link, why in wrong.items() if why} == {}


def _is_there(path: str) -> bool:
    file, *names = path.rstrip("/").split("::")
    if re.search(r"[<{]", file):
        return True
    there = list(ROOT.glob(file)) or list(ROOT.glob(f"{file}.py"))
    if not names or not there:
        return bool(there)
    return all(re.search(rf"^\s*(?:async )?(?:def|class) {each}\b", text(there[0]), re.MULTILINE) for each in names)


@pytest.mark.parametrize("page", OURS, ids=name)
def test_files_of_the_code_that_a_page_names_are_there(page: Path) -> None:
    named = {word for word in code_words(text(page)) if _PATH.fullmatch(word) and word.split("/")[0] in FOLDERS}
    assert {word for word in named if not _is_there(word)} == set()


@pytest.mark.parametrize("page", OURS, ids=name)
def test_pages_that_are_named_without_a_link_are_there(page: Path) -> None:
    named = set(_PAGE.findall(re.sub(r"\[[^\]]*\]\([^)]*\)", "", prose(text(page)))))
    there = {word for word in named for folder in (ROOT, page.parent, ROOT / "docs") if (folder / word).is_file()}
    assert named - there == set()


@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        ("[a](../README.md)", ""),
        ("[a](safety.md#what-is-not-there)", "has no heading #what-is-not-there"),
        ("[a](nowhere.md)", "is no file of the repository"),
        ("[a](../../outside.md)", "is no file of the repository"),
        ("[a](../examples)", "is no file of the repository"),
        ("[a](http://example.com)", "is no https address"),
        ("[a](https://nowhere)", "is no https address"),
        ("[a](https://en.wikipedia.org/wiki/GNU_(name))", ""),
    ],
)
def test_what_is_wrong_with_a_link_is_told(written: str, wrong: str) -> None:
    (link,) = links(written)
    assert _wrong(ROOT / "docs" / "page.md", link) == wrong


def test_code_and_comments_have_no_links() -> None:
    assert links("`[a](b)`\n\n```\n[c](d)\n```\n<!-- [e](f) -->\n[`g`](h.md)") == ["h.md"]


def test_anchors_are_those_of_github() -> None:
    headings = "# `a b`: what's it?\n## [Link](x.md) here\n## Same\n## Same\n```\n# no heading\n```\n"
    assert anchors(headings) == {"a-b-whats-it", "link-here", "same", "same-1"}


@pytest.mark.parametrize(
    ("path", "is_there"),
    [
        ("tests/docs/test_links.py::test_anchors_are_those_of_github", True),
        ("tests/docs/test_links.py::test_that_is_not_there", False),
        ("tests/docs/nowhere.py", False),
        ("docs/migrating/*.md", True),
    ],
)
def test_a_name_of_a_test_is_looked_for_in_its_file(path: str, is_there: bool) -> None:
    assert _is_there(path) == is_there
