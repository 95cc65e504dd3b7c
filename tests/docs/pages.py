"""The pages that people read, and what stands in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *(ROOT / "docs").rglob("*.md")]
)
_FENCED: Final = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK: Final = re.compile(r"\]\(\s*<?([^()\s>]*(?:\([^()\s]*\)[^()\s>]*)*)>?(?:\s+\"[^\"]*\")?\s*\)")
_HEADING: Final = re.compile(r"^#{1,6} +(.+?) *#* *$", re.MULTILINE)


def name(page: Path) -> str:
    """How the page is called from the root of the repository."""
    return str(page.relative_to(ROOT))


def prose(text: str) -> str:
    """The text without blocks of code and comments."""
    return _COMMENT.sub("", _FENCED.sub("", text))


def links(text: str) -> list[str]:
    """Where the links and pictures of the text lead."""
    return _LINK.findall(_CODE.sub("code", prose(text)))


def code_words(text: str) -> list[str]:
    """What stands between backticks."""
    return [found[1].strip() for found in _CODE.findall(prose(text))]


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives the headings: repeated ones get a number."""
    seen: dict[str, int] = {}
    for heading in _HEADING.findall(prose(text)):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        again = seen[slug] = seen.get(slug, -1) + 1
        if again:
            seen[f"{slug}-{again}"] = 0
    return set(seen)
