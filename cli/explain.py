"""``moorage explain``: why a pod, a group or a queue gets what it gets, and what would help (docs/pending.md).

Only argparse is imported here; what reads and shows is ui/commands/explain.py, imported when called. A further kind
is a name here and a way to explain it there.
"""

from __future__ import annotations

import argparse
import sys
from difflib import get_close_matches
from typing import Final

from runtime.options import connection, output
from runtime.options.selection import GROUP, IN_NAMESPACES, NODE, POD, QUEUE, called
from runtime.text import BadInput, line

NAME: Final = "explain"
#: What a column HELP names.
REASON: Final = "reason"
#: As kubectl's users write them.
SPELLINGS: Final = {
    **dict.fromkeys((POD, "pods", "po"), POD),
    **dict.fromkeys((GROUP, "podgroups", "pg", "group"), GROUP),
    **dict.fromkeys((NODE, "nodes", "no"), NODE),
    **dict.fromkeys((QUEUE, "queues"), QUEUE),
    REASON: REASON,
}
#: The most edits that are tried together.
_MOST_EDITS: Final = 8


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Read a cluster, or manifests of one (-f), and print why a pod or PodGroup waits, what its queue has, who "
        "could be evicted for it, and which changes would let it start, each of them tried; what keeps pods off a "
        "node; how the share of a queue comes about; or what to do about a reason that HELP names. Changes nothing. "
        "Exit code 0: explained; 1: the cluster "
        "can't be read; 2: bad input."
    )
    parser.add_argument("what", metavar="pod|podgroup|node|queue|reason", help="what to explain")
    parser.add_argument("names", nargs="*", metavar="NAME", help="its name")
    parser.add_argument("-n", "--namespace", default="", metavar="NAMESPACE", help="of a pod or PodGroup")
    parser.add_argument(
        "--what-if",
        action="append",
        default=[],
        metavar="CHANGE",
        help="suppose a change, as in members=6; may be repeated",
    )
    parser.add_argument(
        "-f", "--filename", action="append", default=[], metavar="FILE", help="read files or folders, not a cluster"
    )
    output.add(parser, (output.TABLE, output.WIDE, output.JSON, output.YAML), has_header=False)
    connection.add(parser)
    parser.set_defaults(run=_explain)


def _explain(arguments: argparse.Namespace) -> int:
    put_right(arguments)
    if arguments.what == REASON:
        return _reason(arguments.names[0])
    from runtime.process import rare_collections

    with rare_collections():
        from ui.commands import explain

        return explain.run(arguments)


def _reason(name: str) -> int:
    """Print what to do about a reason. Raises BadInput for one that there is not."""
    from scheduler.conditions import advice

    known = advice.by_name()
    found = known.get(advice.anchor(name))
    if found is None:
        near = ", ".join(get_close_matches(name, known)) or "docs/pending.md lists them"
        raise BadInput(f"explain reason {line(name)}: no such reason; the nearest: {near}")
    sys.stdout.write(f"{found}\n")
    return 0


def put_right(arguments: argparse.Namespace) -> None:
    """Read what is meant: ``queue/NAME`` too. Raises BadInput where that makes no sense."""
    what, slash, name = arguments.what.partition("/")
    if what not in SPELLINGS:
        raise BadInput(f"explain {arguments.what}: allowed are pod, podgroup, node, queue and reason, and a name")
    kind = arguments.what = SPELLINGS[what]
    if slash:
        arguments.names.insert(0, name)
    if kind == REASON and len(arguments.names) != 1:
        raise BadInput("explain reason: name one reason, as a column HELP does")
    if len(arguments.names) != 1:
        listed = "queues" if kind == QUEUE else "cluster" if kind == NODE else "pod"
        raise BadInput(f"explain {what}: name one {called(kind)}; names are listed by: inspect {listed}")
    if arguments.namespace and kind not in IN_NAMESPACES:
        raise BadInput(f"-n: a {kind} has no namespace; allowed with pod and podgroup")
    if arguments.what_if and kind not in IN_NAMESPACES:
        raise BadInput(f"--what-if: allowed with pod and podgroup, not with {kind}")
    if len(arguments.what_if) > _MOST_EDITS:
        raise BadInput(f"--what-if: {len(arguments.what_if)} are given; allowed are {_MOST_EDITS} together")
    connection.refuse_beside_files(arguments)
