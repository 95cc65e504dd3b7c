"""YAML that people hand in, read within bounds, and what is wrong with it in one line."""

from __future__ import annotations

from typing import Any

import yaml
from typing_extensions import override
from yaml.reader import ReaderError


class WrittenOut(yaml.SafeLoader):
    """Refuses aliases; everything else as a SafeLoader.

    A few lines of aliases, merged into each other, are read for hours.
    """

    @override
    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases (*name) are not read here: write them out")
        return super().compose_node(parent, index)


def why_not_yaml(error: Exception) -> str:
    """Say what is wrong with a text that could not be read, with line and column where they are known.

    It is one line without PyYAML's name for a text in memory.
    """
    if isinstance(error, ReaderError):
        return f"character {error.position + 1}: {error.reason}"
    if not isinstance(error, yaml.MarkedYAMLError):
        return " ".join(str(error).split()) or "nested too deeply"
    mark = error.problem_mark or error.context_mark
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    began = ""
    if error.context and error.context_mark is not None and error.problem_mark is not None:
        began = f", {error.context} that begins in line {error.context_mark.line + 1}"
    return " ".join(f"{place}{error.problem or error.context or 'unreadable'}{began}".split())
