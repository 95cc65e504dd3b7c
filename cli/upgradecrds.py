"""``moorage upgrade-crds``: bring the cluster's CRDs to this version. What it runs is cli/upgradecrdsprocess.py."""

from __future__ import annotations

import argparse
import functools
import importlib
from typing import Any, Final

import anyio

from cli.options import connection, output

_Commands = Any  # argparse keeps the type of sub-commands private

_DESCRIPTION: Final = (
    "Bring the CustomResourceDefinitions of a cluster to this version; the chart does it before an upgrade. One that "
    "knows a version or field that this version does not know is left as it is, so that no object loses anything. "
    "Exit code 0: each is as this version wants it, or newer; 1: one is missing, could not be written, or knows what "
    "this version does not know and the other way round; 2: bad input."
)


def add_command(commands: _Commands) -> None:
    """Add the sub-command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "upgrade-crds", help="bring the cluster's CRDs to this version", description=_DESCRIPTION
    )
    output.add(parser, (output.TABLE, output.JSON, output.YAML), has_header=False)
    connection.add(parser)
    parser.set_defaults(run=_upgrade)


def _upgrade(arguments: argparse.Namespace) -> int:
    process = importlib.import_module("cli.upgradecrdsprocess")
    code: int = anyio.run(functools.partial(process.run, arguments))
    return code
