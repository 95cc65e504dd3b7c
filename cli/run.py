"""``moorage run``: start a command on a part of a GPU of this machine, without a cluster (docs/run.md).

Only argparse is imported here; what reads GPUs is cli/machine.
"""

from __future__ import annotations

import argparse

from cli.options import output
from cli.refusing import BadInput

FOLDER = "/run/moorage/run"


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "run",
        help="start a command on a share of this machine's GPUs",
        usage="%(prog)s [options] -- COMMAND [ARGUMENT ...]\n       %(prog)s --list [-o FORMAT]",
        description=(
            "Start a command on a part of a GPU, or on whole GPUs, of this machine, without a cluster. The share is "
            "free again when the command has ended. Exit code: that of the command; 1: the GPUs can't be read; 2: bad "
            "input; 75: no room; 126, 127: the command can't be started."
        ),
    )
    parser.add_argument("--gpus", metavar="NUMBER", help="0.5: a part; 2: whole GPUs; 1-4: as many as are free")
    parser.add_argument("--gpu-memory", metavar="SIZE", help="memory of each GPU at least: 4Gi")
    parser.add_argument("--wait", default="0s", metavar="TIME", help="how long to wait for room (default 0s)")
    parser.add_argument("--list", action="store_true", help="list GPUs and the commands that share them")
    parser.add_argument("--folder", default=FOLDER, metavar="FOLDER", help=f"where shares are kept (default {FOLDER})")
    parser.add_argument("--beside-kubelet", action="store_true", help="start though a kubelet may give out these GPUs")
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="what to start, after --")
    output.add(parser, (output.TABLE, output.WIDE, output.JSON, output.YAML))
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    output.check(arguments)
    if arguments.list == bool(arguments.command):
        raise BadInput("--list: not with a command" if arguments.list else "COMMAND: missing; give it after --")
    from cli.machine import running  # noqa: PLC0415 - lazily, so that --help costs nothing

    return running.run(arguments)
