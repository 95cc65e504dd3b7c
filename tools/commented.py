"""Constants of a module with the ``#:`` comments above them, for tables of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_ROOT: Final = Path(__file__).parent.parent
_SECTION: Final = re.compile(r"# --- (?P<title>.+?) -+$")
_COMMENT: Final = re.compile(r" *#: ?(?P<text>.*)$")
_CONSTANT: Final = re.compile(r' *(?P<name>[A-Z][A-Z0-9_]*)(?:: Final)? = "(?P<value>[^"]*)"(?:  # .*)?$')


class Constant(NamedTuple):
    """A text that a module names: its section, if the module has sections, and what its comment says of it."""

    section: str
    name: str
    value: str
    comment: str


def constants(path: str) -> Iterator[Constant]:
    """Read a file, by its path from the root of the repository."""
    section, comment = "", []
    for line in (_ROOT / path).read_text(encoding="utf-8").splitlines():
        if found := _SECTION.match(line):
            section = found["title"]
        if found := _COMMENT.match(line):
            comment.append(found["text"])
            continue
        if found := _CONSTANT.match(line):
            yield Constant(section, found["name"], found["value"], " ".join(comment))
        comment = []
