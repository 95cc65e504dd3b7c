"""``kubectl moorage top``: the GPUs of a cluster and the pods that wait, live on a terminal (docs/top.md).

Only argparse is imported here; what it runs is ui/commands/top.py, imported when called.
"""

from __future__ import annotations

import argparse
from typing import Final

from runtime.options import connection, output, selection
from runtime.options.selection import COLOURS
from runtime.text import BadInput

_FOR_PROGRAMS: Final = "programs and -o wide: moorage inspect"
_ALL_COUNT: Final = (
    "not with top, which counts all pods on a GPU; pods with labels are listed by: moorage inspect pod -l"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Follow a cluster and show on this terminal who is on which GPU and how much of it, the tree of queues, "
        "and why pods wait. Changes nothing. Where stdout is no terminal it is shown once. Exit code 0: ended by "
        "q or Ctrl-C, or shown once; 1: the cluster can't be read; 2: bad input."
    )
    parser.add_argument("--by", choices=COLOURS, default=COLOURS[0], help="whose shares have one letter and colour")
    parser.add_argument("--details", action="store_true", help="begin with a line for each device")
    parser.add_argument("--queues", action="store_true", help="begin with the tree of queues, not the map")
    parser.add_argument("--use", action="store_true", help="begin with use of shares, idle ones first")
    parser.add_argument("--idle", action="store_true", help="begin with idle shares only, by GPU-hours")
    parser.add_argument("--once", action="store_true", help="show it once and end")
    parser.add_argument("--simulate", action="store_true", help="show a simulated cluster at work; needs no cluster")
    parser.add_argument(
        "--nodes",
        action="append",
        default=[],
        metavar="NxGxMEM",
        help="with --simulate: N nodes of G GPUs of MEM (default 3x8x80GiB and 1x4x24GiB)",
    )
    selection.add(parser, default="all", labels="")
    output.add(parser, (output.TABLE,), hint=_FOR_PROGRAMS, has_header=False)
    connection.add(parser)
    parser.set_defaults(run=_top)


def _top(arguments: argparse.Namespace) -> int:
    if arguments.nodes and not arguments.simulate:
        raise BadInput("--nodes: allowed with --simulate")
    for option in ("use", "idle"):
        if getattr(arguments, option) and arguments.queues:
            raise BadInput(f"--{option}: not with --queues; give one of them")
    selection.namespaces(arguments)
    selection.refuse_labels(arguments, _ALL_COUNT)
    from ui.commands import top

    return top.run(arguments)
