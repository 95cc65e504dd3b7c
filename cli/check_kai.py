"""``moorage admin check-kai``: what would differ if Moorage took a cluster over from KAI? The work is cli/migration's.

A command of its own, since ``moorage admin check`` asks about a cluster in which Moorage is at work, and this one about
one in which it is not yet. There is none that migrates: nothing has to be moved, the binder adopts what it finds.
"""

from __future__ import annotations

import argparse
import functools
import importlib
from typing import Final

from runtime.options import connection, output

_DESCRIPTION: Final = (
    "A dry run of coming from KAI Scheduler: read its Config, shards, Queues, PodGroups, running shares and what of it "
    "still runs. List what Moorage does differently, what does not change, and what has to be done first. "
    "Changes nothing. Exit code 0: nothing has to be done first; 1: something has; 2: bad input."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = _DESCRIPTION
    output.add(parser, (output.TABLE, output.WIDE, output.JSON, output.YAML), has_header=False)
    parser.add_argument(
        "--details", action="store_true", help="name the options of KAI's that change nothing here, too"
    )
    connection.add(parser)
    parser.set_defaults(run=_check)


def _check(arguments: argparse.Namespace) -> int:
    import anyio

    process = importlib.import_module("cli.migration.command")
    code: int = anyio.run(functools.partial(process.run, arguments))
    return code
