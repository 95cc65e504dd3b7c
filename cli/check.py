"""``moorage admin check``: does a cluster keep what docs/security.md promises? The work is done by cli/checks."""

from __future__ import annotations

import argparse
import functools
import importlib
from typing import Final

from runtime.options import connection, output

_DESCRIPTION: Final = (
    "Look whether a cluster keeps what docs/security.md promises: policies, webhooks, rights, namespaces, leaders. "
    "Changes nothing; for its trials it asks the API server to create things that are not kept (dry run), so it needs "
    "the rights of an administrator. Exit code 0: nothing failed; 1: something did; 2: bad input."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = _DESCRIPTION
    output.add(parser, (output.TABLE, output.JSON, output.YAML), has_header=False)
    parser.add_argument(
        "--runtime-class",
        default="nvidia",
        help="RuntimeClass of pods with shares; empty: they need none (default: nvidia)",
    )
    connection.add(parser)
    parser.set_defaults(run=_check)


def _check(arguments: argparse.Namespace) -> int:
    import anyio

    process = importlib.import_module("cli.checks.command")
    code: int = anyio.run(functools.partial(process.run, arguments))
    return code
