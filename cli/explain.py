"""``moorage explain``: why something gets what it gets (docs/queues.md).

Only argparse is imported here; what reads and shows is cli/explainprocess.py, imported when called. A further kind is a
name here and a way to explain it there.
"""

from __future__ import annotations

import argparse
from typing import Any, Final

from cli.inspection.options import QUEUE
from cli.options import connection, output
from cli.refusing import BadInput

_Commands = Any  # argparse keeps the type of sub-commands private

NAME: Final = "explain"
#: As kubectl's users write them.
SPELLINGS: Final = dict.fromkeys((QUEUE, "queues"), QUEUE)


def add_command(commands: _Commands) -> None:
    """Add the sub-command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        NAME,
        help="explain the share of a queue and when it is served",
        description=(
            "Read a cluster, or manifests of one (-f), and print how the share of a queue comes about, step by step, "
            "what it has allocated, and its place in the order. Changes nothing. Exit code 0: explained; 1: the "
            "cluster can't be read; 2: bad input."
        ),
    )
    parser.add_argument("what", metavar="queue", help="what to explain")
    parser.add_argument("names", nargs="*", metavar="NAME", help="its name")
    parser.add_argument(
        "-f", "--filename", action="append", default=[], metavar="FILE", help="read files or folders, not a cluster"
    )
    output.add(parser, (output.TABLE, output.WIDE, output.JSON, output.YAML), has_header=False)
    connection.add(parser)
    parser.set_defaults(run=_explain)


def _explain(arguments: argparse.Namespace) -> int:
    put_right(arguments)
    from cli import explainprocess  # noqa: PLC0415 - lazily, so that --help costs nothing

    return explainprocess.run(arguments)


def put_right(arguments: argparse.Namespace) -> None:
    """Read what is meant: ``queue/NAME`` too. Raises BadInput where that makes no sense."""
    what, slash, name = arguments.what.partition("/")
    if what not in SPELLINGS:
        raise BadInput(f"explain {arguments.what}: allowed is queue, and its name")
    arguments.what = SPELLINGS[what]
    if slash:
        arguments.names.insert(0, name)
    if len(arguments.names) != 1:
        raise BadInput(f"explain {what}: name one {SPELLINGS[what]}; names are listed by: inspect queues")
    connection.refuse_beside_files(arguments)
