"""A component's settings are a struct whose fields are annotated with ``Setting``: there each is declared, once.

From it are made: the options of the command line, the variables of the environment, the keys of the file, and
docs/reference/settings.md. A field ``idle_s`` of the binder is ``--idle-s``, ``MOORAGE_BINDER_IDLE_S`` and ``idle-s``.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Final, get_type_hints

import msgspec

from runtime.settings.kinds import Kind

PREFIX: Final = "MOORAGE_"
_FEW: Final = 3


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What a field of a struct of settings is annotated with.

    ``many``: it is a tuple, and the option may be given several times. ``default``: what to tell of the default where
    it is no value of the field. ``in_file``: whether a file may say it.
    """

    help: str
    kind: Kind
    many: bool = False
    default: str = ""
    in_file: bool = True


class Declared(msgspec.Struct, frozen=True):
    """A field with its setting: ``field`` is its name in the struct, ``key`` in a file, and with ``--`` on a line."""

    field: str
    setting: Setting
    default: Any

    @property
    def key(self) -> str:
        """The name in a file."""
        return self.field.replace("_", "-")

    @property
    def flag(self) -> str:
        """The option on a command line."""
        return f"--{self.key}"

    def variable(self, component: str) -> str:
        """The name in the environment."""
        return prefix(component) + self.field.upper()

    def told_default(self) -> str:
        """The default, for people."""
        setting, default = self.setting, self.default
        if setting.default or default is None or default in {"", ()}:
            return setting.default or "none"
        return ", ".join(map(setting.kind.written, default)) if setting.many else setting.kind.written(default)


def prefix(component: str) -> str:
    """Return how all variables of a component begin."""
    return f"{PREFIX}{component}_".replace("-", "_").upper()


@functools.cache
def declared(settings: type[msgspec.Struct]) -> tuple[Declared, ...]:
    """Return all settings of a struct, those of its bases first. Raises TypeError for a field without one.

    Reading annotations takes 5 ms, and the start of a component asks three times.
    """
    hints = get_type_hints(settings, include_extras=True)
    found = []
    for field in msgspec.structs.fields(settings):
        marks = [mark for mark in getattr(hints[field.name], "__metadata__", ()) if isinstance(mark, Setting)]
        if len(marks) != 1 or field.required:
            raise TypeError(f"{settings.__name__}.{field.name} needs a default and one Setting")
        default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        found.append(Declared(field.name, marks[0], default))
    return tuple(found)


def add_options(parser: argparse.ArgumentParser, settings: type[msgspec.Struct]) -> None:
    """Add an option for each setting. What is not given is not in the namespace."""
    for each in declared(settings):
        setting = each.setting
        bare: dict[str, Any] = (
            {"nargs": "?", "const": setting.kind.read(setting.kind.bare)} if setting.kind.bare else {}
        )
        told = f"{setting.help}{'; may be given several times' if setting.many else ''}"
        parser.add_argument(
            each.flag,
            type=_for_argparse(setting.kind.read),
            action="append" if setting.many else "store",
            default=argparse.SUPPRESS,
            metavar=setting.kind.metavar,
            help=f"{told} (default: {each.told_default()})".replace("%", "%%"),
            **bare,
        )


def nearest(word: str, known: Iterable[str], *, prefix: str = "") -> str:
    """Say which names were perhaps meant, and where all are told if none is like it. All begin with ``prefix``."""
    rests = sorted(name.removeprefix(prefix) for name in known)
    close = [prefix + rest for rest in get_close_matches(word.removeprefix(prefix), rests, n=_FEW)]
    return f"did you mean {' or '.join(close)}?" if close else "docs/reference/settings.md names them all"


def read_many(values: Iterable[str], kind: Kind) -> Iterator[Any]:
    """Read each of several values. Raises ValueError."""
    for value in values:
        yield kind.read(value)


def _for_argparse(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def checked(given: str) -> Any:
        try:
            return read(given)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return checked
