"""``moorage version``: which version this is, and which ones a cluster has.

The same number is in pyproject.toml and in the chart. Only argparse is imported here; what reads a cluster is
ui/commands/version.py.
"""

from __future__ import annotations

import argparse

from runtime.options import connection, output
from runtime.text import BadInput
from runtime.version import VERSION


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Print the version of this program and, where a cluster is configured, those of Kubernetes and of "
        "Moorage's components. Exit code 0: printed; 1: the cluster can't be read; 2: bad input."
    )
    parser.add_argument("--client", action="store_true", help="print the version of this program alone")
    output.add(parser, (output.TABLE, output.WIDE, output.JSON, output.YAML))
    connection.add(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    output.check(arguments)
    if arguments.client and connection.chosen(arguments) != connection.Where():
        raise BadInput("--client: not with options of a connection such as --context")
    if arguments.client and arguments.output == output.TABLE:
        print(f"moorage {VERSION}")
        return 0
    from ui.commands import version

    return version.run(arguments)
