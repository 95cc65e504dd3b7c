"""``moorage inspect``: who is on which GPU, what is free, and why pods wait (docs/inspect.md).

Only argparse is imported here; what reads and shows is ui/commands/inspect.py, imported when called.
"""

from __future__ import annotations

import argparse
from typing import Final

from runtime.options import connection, output, selection
from runtime.options.selection import ALIYUN, CLUSTER, FORMATS, GROUP, POD, QUEUE, SPELLINGS, UNITS_MIB
from runtime.text import BadInput

NAME: Final = "inspect"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Read nodes, pods and reservations and show the GPUs: all nodes (cluster), the devices of nodes (node), "
        "what pods asked, in whose words, what they got and why they wait (pod), how many pods of each PodGroup "
        "run and wait (podgroup), or the tree of queues with what each may use, uses and requests (queue). Changes "
        "nothing. Exit code 0: shown; 1: the cluster can't be read; 2: bad input."
    )
    parser.add_argument(
        "what", nargs="?", default=CLUSTER, metavar="cluster|node|pod|podgroup|queue", help="(default cluster)"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="names of objects; without names all of them")
    parser.add_argument(
        "--format", choices=FORMATS, default=FORMATS[0], help="aliyun: the table of kubectl inspect gpushare"
    )
    parser.add_argument("-d", "--details", action="store_true", help="with --format aliyun: its table of pods")
    parser.add_argument(
        "--memory-unit", choices=tuple(UNITS_MIB), default="GiB", help="with --format aliyun (default GiB)"
    )
    parser.add_argument(
        "-f", "--filename", action="append", default=[], metavar="FILE", help="with queue: read files, not a cluster"
    )
    parser.add_argument("--use", action="store_true", help="show use of shares, as node agents report it")
    selection.add(parser, default="the context's, for pods", labels="objects")
    output.add(parser)
    connection.add(parser)
    parser.set_defaults(run=_inspect)


def _inspect(arguments: argparse.Namespace) -> int:
    put_right(arguments)
    from runtime.process import rare_collections

    with rare_collections():
        from ui.commands import inspect

        return inspect.run(arguments)


def put_right(arguments: argparse.Namespace) -> None:
    """Read what is meant: ``node/NAME`` too. Raises BadInput where that makes no sense."""
    what, slash, name = arguments.what.partition("/")
    if what not in SPELLINGS:
        raise BadInput(
            f"inspect {arguments.what}: allowed are cluster, node, pod, podgroup and queue, and names but for cluster"
        )
    arguments.what = SPELLINGS[what]
    if slash:
        arguments.names.insert(0, name)
    if arguments.what == CLUSTER and arguments.names:
        raise BadInput(f"inspect cluster takes no name; did you mean inspect node {arguments.names[0]}?")
    if arguments.filename and arguments.what != QUEUE:
        raise BadInput("-f: allowed with queue; pods and nodes are read from a cluster")
    if arguments.use and (arguments.what in {GROUP, QUEUE} or arguments.format == ALIYUN):
        raise BadInput("--use: allowed with cluster, node and pod, and not with --format aliyun")
    _check_selection(arguments)
    connection.refuse_beside_files(arguments)
    output.check(arguments)
    _check_format(arguments)


def _check_selection(arguments: argparse.Namespace) -> None:
    """Raise BadInput for a selection that makes no sense."""
    some = selection.namespaces(arguments)
    if arguments.what == QUEUE and (arguments.namespace or arguments.all_namespaces):
        raise BadInput("-n and -A: queues have no namespace, and count pods of all of them")
    if arguments.what in {POD, GROUP} and arguments.names and (arguments.all_namespaces or len(some) > 1):
        option = "-A" if arguments.all_namespaces else "-n"
        raise BadInput(f"{option}: {arguments.what}s that are named are of one namespace; name it by one -n")
    if arguments.names:
        selection.refuse_labels(arguments, "not with names")
    if arguments.filename:
        selection.refuse_labels(arguments, "not with -f; a cluster selects by labels")


def _check_format(arguments: argparse.Namespace) -> None:
    """Raise BadInput for what Aliyun's table has not."""
    if arguments.format != ALIYUN:
        if arguments.details:
            raise BadInput("-d: allowed with --format aliyun; with other formats use -o wide")
        return
    if arguments.what in {POD, GROUP, QUEUE}:
        raise BadInput("--format aliyun: allowed with cluster and node")
    if arguments.output not in {output.TABLE, output.WIDE, output.JSON}:
        raise BadInput(f"-o {arguments.output}: allowed with --format aliyun are table, wide and json")
    if arguments.no_headers:
        raise BadInput("--no-headers: not with --format aliyun")
