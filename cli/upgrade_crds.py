"""``moorage admin upgrade-crds``: bring a cluster's CRDs to this version. It runs cli/checks/crds.py."""

from __future__ import annotations

import argparse
import functools
import importlib
from typing import Any, Final

from runtime.options import connection, output

_Commands = Any  # argparse keeps the type of sub-commands private

_DESCRIPTION: Final = (
    "Bring the CustomResourceDefinitions of a cluster to this version; the chart does it before an upgrade. One that "
    "knows a version or field that this version does not know is left as it is, so that no object loses anything. "
    "Exit code 0: each is as this version wants it, or newer; 1: one is missing, could not be written, or knows what "
    "this version does not know and the other way round; 2: bad input."
)


NAME: Final = "upgrade-crds"
HELP: Final = "bring the cluster's CRDs to this version"


def add_command(commands: _Commands, **shown: str) -> None:
    """Add the sub-command; ``shown``: its help, where a list has it."""
    parser: argparse.ArgumentParser = commands.add_parser(NAME, description=_DESCRIPTION, **shown)
    output.add(parser, (output.TABLE, output.JSON, output.YAML), has_header=False)
    connection.add(parser)
    parser.set_defaults(run=_upgrade)


def _upgrade(arguments: argparse.Namespace) -> int:
    import anyio  # noqa: PLC0415 - lazily, so that --help costs nothing

    process = importlib.import_module("cli.checks.crds")
    code: int = anyio.run(functools.partial(process.run, arguments))
    return code
