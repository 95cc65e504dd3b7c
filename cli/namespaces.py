"""``-n``: some namespaces instead of all, for who may not read all pods of a cluster."""

from __future__ import annotations

import argparse
import re
from typing import Final

from cli.refusing import BadInput

#: Each takes four watches.
MOST: Final = 64
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add the option; ``chosen`` reads it."""
    parser.add_argument(
        "-n",
        "--namespace",
        action="append",
        default=[],
        metavar="NAMESPACE",
        help="show pods of this namespace alone, for who may not read all; may be given several times (default: all)",
    )


def chosen(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Those that are named, each once; none: all. Raises BadInput for a name that can't be."""
    found = tuple(dict.fromkeys(arguments.namespace))
    for name in found:
        if not _NAMESPACE.fullmatch(name):
            raise BadInput(
                f"--namespace {name}: allowed is the name of a namespace: up to 63 lower-case letters, digits, dashes"
            )
    if len(found) > MOST:
        raise BadInput(f"--namespace: {len(found)} are given; allowed are {MOST}, or all")
    return found
