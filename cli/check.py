"""``moorage check``: does a cluster keep what docs/security.md promises? The work is done by cli/checks."""

from __future__ import annotations

import argparse
import functools
import importlib
from typing import Any, Final

import anyio

from cli.settings.common import AsKubectl
from cli.settings.declaring import add_options

_Commands = Any  # argparse keeps the type of sub-commands private

_DESCRIPTION: Final = (
    "Look whether a cluster keeps what docs/security.md promises: policies, webhooks, rights, namespaces, leaders. "
    "Changes nothing; for its trials it asks the API server to create things that are not kept (dry run), so it needs "
    "the rights of an administrator. Exit code 0: nothing failed; 1: something did; 2: bad input."
)


def add_command(commands: _Commands) -> None:
    """Add the sub-command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "check", help="see whether a cluster is as safe as it should be", description=_DESCRIPTION
    )
    parser.add_argument("-o", "--output", choices=("lines", "json"), default="lines", help="form of the result")
    parser.add_argument(
        "--runtime-class",
        default="nvidia",
        help="RuntimeClass of pods with shares; empty: they need none (default: nvidia)",
    )
    add_options(parser, AsKubectl)
    parser.set_defaults(run=_check)


def _check(arguments: argparse.Namespace) -> int:
    process = importlib.import_module("cli.checkprocess")
    code: int = anyio.run(functools.partial(process.run, arguments))
    return code
