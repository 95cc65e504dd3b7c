"""A component's settings from everywhere: what the command line says, then the environment, the file, the defaults."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from cli.refusing import BadInput
from cli.settings import environment
from cli.settings.declaring import Declared, declared

_Settings = TypeVar("_Settings", bound=msgspec.Struct)


class Gathered(msgspec.Struct, Generic[_Settings], frozen=True):
    """``said``: what is not as the defaults are, by its key, and where that was said."""

    settings: _Settings
    said: Mapping[str, str]


def from_line(settings: type[_Settings], arguments: argparse.Namespace) -> _Settings:
    """Return the settings that a command line says, which nothing else may: those of commands that people run."""
    return settings(**_flags(declared(settings), arguments))


def gathered(
    settings: type[_Settings], component: str, arguments: argparse.Namespace, variables: Mapping[str, str]
) -> Gathered[_Settings]:
    """Return a component's settings. Raises BadInput with a sentence for everything that can't be."""
    known = declared(settings)
    flags = _flags(known, arguments)
    said, wrong = environment.read(known, component, variables)
    path = flags.get("config", said.get("config", ""))
    written: dict[str, Any] = {}
    if path:
        from cli.settings import file  # noqa: PLC0415 - YAML takes 2 MiB, for those who have a file

        written, mistakes = file.read(known, component, path)
        wrong += mistakes
    if wrong:
        raise BadInput("; ".join(wrong))
    values = {**written, **said, **flags}
    sources = (("file", written), ("environment", said), ("command line", flags))
    source_of = {field: source for source, of_source in sources for field in of_source}
    told = {
        each.key: f"{_told(each, values[each.field])} ({source_of[each.field]})"
        for each in known
        if each.field in values and values[each.field] != each.default
    }
    return Gathered(settings(**values), told)


def _flags(known: tuple[Declared, ...], arguments: argparse.Namespace) -> dict[str, Any]:
    given = {each: getattr(arguments, each.field) for each in known if hasattr(arguments, each.field)}
    return {each.field: tuple(value) if each.setting.many else value for each, value in given.items()}


def _told(each: Declared, value: Any) -> str:
    written = each.setting.kind.written
    return ",".join(map(written, value)) if each.setting.many else written(value)
