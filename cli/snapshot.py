"""``moorage snapshot``: what the scheduler reads of a cluster, as a file for ``simulate --from-snapshot``.

Only argparse is imported here; what reads and writes is cli/snapshots/command.py, imported when called.
"""

from __future__ import annotations

import argparse

from runtime.options import connection


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Read a cluster and print one JSON object that simulate --from-snapshot reads. Commands, arguments, "
        "environment, Secrets and annotations that the scheduler does not read are left out. Changes nothing. "
        "Exit code 0: printed; 1: the cluster can't be read; 2: bad input."
    )
    parser.add_argument("--anonymize", action="store_true", help="replace names by numbers in their order")
    connection.add(parser)
    parser.set_defaults(run=_snapshot)


def _snapshot(arguments: argparse.Namespace) -> int:
    from runtime.process import rare_collections

    with rare_collections():
        from cli.snapshots import command

        return command.run(arguments)
