"""Blocks of commands in the pages, and what the comment above each says of who runs it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from typing_extensions import override

from tests.docs.pages import name

_BLOCK: Final = re.compile(
    r"(?:^ *<!-- *(?! |commands:)(?P<mark>[^\n]*?) *-->\n\n?)?"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)``` *$",
    re.MULTILINE | re.DOTALL,
)
#: Who runs all blocks of a page that have no comment of their own.
_OF_THE_PAGE: Final = re.compile(r"^<!-- commands: (?P<mark>.*?) *-->$", re.MULTILINE)
_SHELL: Final = {"bash", "console", "sh", "shell"}
#: A block without a language that begins so is one of commands as well.
_COMMANDS: Final = re.compile(r"(?:\$ |(?:moorage|kubectl|helm|make|docker|podman|curl|pip|python3?) )")
_TEST: Final = re.compile(r"tests/[\w/]+\.py::test_\w+")


class Command(msgspec.Struct, frozen=True):
    """A line, with those that it goes on in, and what the page says that it prints; None: the page says nothing."""

    line: str
    printed: str | None


class Block(msgspec.Struct, frozen=True):
    """A block of commands: where it stands, and the comment that says who runs it (empty: none does)."""

    page: str
    line: int
    language: str
    mark: str
    text: str

    @override
    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_run_here(self) -> bool:
        """Whether these tests run it themselves."""
        return self.mark.startswith("run: offline")

    @property
    def exit_code(self) -> int:
        """What it has to end with, as its comment says."""
        found = re.fullmatch(r"run: offline(?:, exit (\d+))?", self.mark)
        return int(found[1] or 0) if found else 0

    @property
    def tests(self) -> list[str]:
        """The tests that its comment names."""
        return _TEST.findall(self.mark)

    @property
    def commands(self) -> list[Command]:
        """Of a console, each command with what it prints; of anything else, all lines as one."""
        if self.language != "console":
            return [Command(self.text, None)]
        parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]
        split = [re.match(r"((?:[^\n]*\\\n)*[^\n]*)\n?(.*)", part, re.DOTALL) for part in parts]
        return [Command(found[1], found[2] or None) for found in split if found]


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of commands of a page."""
    yield from found(page.read_text(encoding="utf-8"), name(page))


def found(text: str, page: str) -> Iterator[Block]:
    """Yield the blocks of commands of a text; ``page`` is how its page is called."""
    whole = _OF_THE_PAGE.search(text)
    for match in _BLOCK.finditer(text):
        indent, language = match["indent"], match["language"]
        written = re.sub(rf"^{indent}", "", match["text"], flags=re.MULTILINE)
        if language in _SHELL or (not language and _COMMANDS.match(written)):
            line = text.count("\n", 0, match.start("indent")) + 1
            mark = match["mark"] or (whole["mark"] if whole else "")
            yield Block(page, line, language, mark, written)


def is_as_told(told: str, printed: str) -> bool:
    """Whether it was printed, where ``...`` in what is told is anything."""
    pattern = ".*".join(re.escape(part) for part in told.strip().split("..."))
    return (
        re.fullmatch(pattern, "\n".join(line.rstrip() for line in printed.strip().splitlines()), re.DOTALL) is not None
    )
