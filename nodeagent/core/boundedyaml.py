"""YAML of a settings file, bounded before it is built: its size, its depth, and no aliases, tags or repeated keys.

Numbers are decimal. YAML 1.1 reads ``1:0`` as sixty, and a MIG slice is written so.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml
from typing_extensions import override

from wire.yaml_text import WrittenOut, why_not_yaml

#: A file of 32 GPUs with an entry each has 5 KiB.
MOST_BYTES: Final = 65_536
_MOST_LEVELS: Final = 20
_DECIMAL: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})", re.ASCII)
_INTEGER, _STRING = "tag:yaml.org,2002:int", "tag:yaml.org,2002:str"
#: Words that YAML makes something else of than text.
_KEPT: Final = frozenset({"tag:yaml.org,2002:bool", "tag:yaml.org,2002:null"})


class Unreadable(ValueError):
    """Raised when a text is no YAML of this kind; the message says where and why."""


class _Loader(WrittenOut):
    """Builds mappings, lists, text, decimal numbers, booleans and null."""

    _level = 0

    @override
    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self._level == _MOST_LEVELS:
            mark = parent.start_mark if parent else None
            raise yaml.composer.ComposerError(None, None, f"more than {_MOST_LEVELS} levels", mark)
        event = self.peek_event()  # type: ignore[no-untyped-call]  # its stub has no types
        if getattr(event, "tag", None) is not None:
            raise yaml.composer.ComposerError(None, None, "tags (!name) are not read here", event.start_mark)
        self._level += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._level -= 1

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key is no text", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, "a key is there twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, expression) for tag, expression in resolvers if tag in _KEPT]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_INTEGER, re.compile(f"(?:{_DECIMAL.pattern})$", re.ASCII), list("-+0123456789"))


def decoded(text: str) -> object:
    """Read a text of at most ``MOST_BYTES``. Raises Unreadable."""
    if len(text.encode(errors="surrogatepass")) > MOST_BYTES:
        raise Unreadable(f"has more than {MOST_BYTES} bytes")
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Unreadable(why_not_yaml(error)) from error
