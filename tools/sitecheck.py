"""Whether the pages of the site load nothing from elsewhere: ``python -m tools.sitecheck build/site``.

Who reads documentation is nobody's business: no fonts, scripts, pictures or counters of others. Links are no loads.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

from typing_extensions import override

#: Attributes whose address a browser fetches without being asked, wherever they stand.
_FETCHED: Final = ("src", "srcset", "data", "poster", "background", "action")
#: Kinds of ``<link>`` that only say where something is.
_TOLD: Final = {"canonical", "next", "prev", "index", "search", "author", "copyright", "license", "alternate"}
_ELSEWHERE: Final = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
_STYLE: Final = re.compile(r"(?:url\(\s*|@import\s+)['\"]?(?P<address>(?:[a-z]+:)?//[^'\")\s;]+)", re.IGNORECASE)


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        fetched = [given[name] for name in _FETCHED if name in given]
        if tag == "link" and not set(given.get("rel", "").lower().split()) & _TOLD:
            fetched.append(given.get("href", ""))
        self.loads += [address for address in fetched if _ELSEWHERE.match(address)]
        self.loads += _of_style(given.get("style", ""))

    @override
    def handle_data(self, data: str) -> None:
        if self.lasttag == "style":
            self.loads += _of_style(data)


def _of_style(text: str) -> list[str]:
    return [found["address"] for found in _STYLE.finditer(text)]


def loads(path: Path) -> list[str]:
    """Return what the page, the style sheet or the picture fetches from other hosts when it is shown."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".css":
        return _of_style(text)
    page = _Page()
    page.feed(text)
    return page.loads


def found(site: Path) -> Iterator[str]:
    """Yield a sentence for each load of each file of the site."""
    for path in sorted(site.rglob("*")):
        if path.suffix in {".html", ".css", ".svg"}:
            yield from (f"{path.relative_to(site)}: loads {address}" for address in loads(path))


def main(arguments: Sequence[str]) -> int:
    """Print what is wrong; return the exit code."""
    if len(arguments) != 1 or not Path(arguments[0], "index.html").is_file():
        print("usage: python -m tools.sitecheck FOLDER, with an index.html in it", file=sys.stderr)
        return 2
    wrong = list(found(Path(arguments[0])))
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
