"""A component's settings from everywhere: what the command line says, then the environment, the file, the defaults."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from runtime.settings.declaration import Declared, declared, nearest, prefix, read_many
from runtime.text import BadInput

_HOST: Final = "_SERVICE_HOST"
_OF_SERVICE: Final = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)|_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?")
_LINK: Final = re.compile(r"(tcp|udp|sctp)://\S+")


def read(
    settings: Sequence[Declared], component: str, environment: Mapping[str, str]
) -> tuple[dict[str, Any], list[str]]:
    """Return values of the environment by their fields, and a sentence for each variable that can't be.

    Variables are ``MOORAGE_<COMPONENT>_<NAME>``; several values have commas between them.
    """
    known = {each.variable(component): each for each in settings}
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for name, value in sorted(_ours(component, environment)):
        setting = known.get(name)
        if setting is None:
            meant = nearest(name, known, prefix=prefix(component))
            wrong.append(f"environment variable {name}: the {component} has no such setting; {meant}")
            continue
        try:
            values[setting.field] = _value(setting, value)
        except ValueError as error:
            wrong.append(f"environment variable {name}: {error}")
    return values, wrong


def _value(setting: Declared, value: str) -> Any:
    kind = setting.setting.kind
    if not setting.setting.many:
        return kind.read(value)
    return tuple(read_many((part.strip() for part in value.split(",")) if value else (), kind))


def _ours(component: str, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    ours = prefix(component)
    services = {name.removesuffix(_HOST) for name in environment if name.endswith(_HOST)}
    for name, value in environment.items():
        if name.startswith(ours) and not any(_is_of(service, name, value) for service in services):
            yield name, value


def _is_of(service: str, name: str, value: str) -> bool:
    """Whether a variable is one of those that Kubernetes makes of a Service.

    Kubernetes sets them for each Service of the namespace, and ours are called as our components are:
    ``MOORAGE_ADMISSION_SERVICE_HOST``, ``MOORAGE_ADMISSION_PORT=tcp://10.96.0.7:443``. They are no settings.
    """
    rest = name.removeprefix(service)
    if rest == name:
        return False
    return _OF_SERVICE.fullmatch(rest) is not None or (rest == "_PORT" and _LINK.fullmatch(value) is not None)


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
    said, wrong = read(known, component, variables)
    path = flags.get("config", said.get("config", ""))
    written: dict[str, Any] = {}
    if path:
        from runtime.settings import file  # YAML takes 2 MiB, for those who have a file

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
