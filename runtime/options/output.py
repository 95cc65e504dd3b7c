"""In which form a command prints, as kubectl has it: one group for all commands that read a cluster.

Only argparse is imported here. A command names the forms that it has; others are refused with those.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, Final

from runtime.text import BadInput

TABLE: Final = "table"
WIDE: Final = "wide"
JSON: Final = "json"
YAML: Final = "yaml"
NAME: Final = "name"
#: As kubectl has them; a command offers some of them.
FORMS: Final = (TABLE, WIDE, JSON, YAML, NAME)
#: For programs: all that is known, exactly.
FOR_PROGRAMS: Final = frozenset({JSON, YAML})
#: What a form was called of old, by commands that print lines.
_OLD: Final = {"lines": TABLE}


def add(
    parser: argparse.ArgumentParser, forms: Sequence[str] = FORMS, *, hint: str = "", has_header: bool = True
) -> None:
    """Add the group. ``hint``: where else a form is had. ``has_header``: whether the table has one to leave out."""
    group = parser.add_argument_group("output")
    group.add_argument(
        "-o",
        "--output",
        type=_form(forms, hint),
        choices=forms,
        default=forms[0],
        metavar="|".join(forms),
        help=f"output format (default {forms[0]})",
    )
    if has_header:
        group.add_argument("--no-headers", action="store_true", help="print rows without titles and header lines")
    else:
        group.add_argument("--no-headers", action=_Refused, help=argparse.SUPPRESS)


def check(arguments: argparse.Namespace) -> None:
    """Raise BadInput for a header that is left out of what has none."""
    if arguments.no_headers and arguments.output not in {TABLE, WIDE}:
        raise BadInput(f"--no-headers: allowed with -o {TABLE} and -o {WIDE}; -o {arguments.output} has no header")


class _Refused(argparse.Action):
    """Refuses ``--no-headers`` where it would change nothing."""

    def __init__(self, option_strings: Sequence[str], dest: str, **given: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **given)

    def __call__(self, parser: argparse.ArgumentParser, *_given: Any, **_more: Any) -> None:  # type: ignore[explicit-override] # typing_extensions takes 20 ms
        raise argparse.ArgumentError(self, f"{parser.prog} prints no header lines that could be left out")


def _form(forms: Sequence[str], hint: str) -> Callable[[str], str]:
    def read(given: str) -> str:
        form = _OLD.get(given, given)
        if form in forms:
            return form
        allowed = f"{', '.join(forms[:-1])} and {forms[-1]}" if len(forms) > 1 else forms[0]
        are = "are" if len(forms) > 1 else "is"
        raise argparse.ArgumentTypeError(f"{given!r}: allowed {are} {allowed}{hint and f'; {hint}'}")

    return read
