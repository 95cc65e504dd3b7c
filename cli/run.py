"""``moorage run``: start a command on a part of a GPU of this machine, without a cluster (docs/run.md).

Only argparse is imported here; what reads GPUs is cli/machine.
"""

from __future__ import annotations

import argparse

from runtime.options import output
from runtime.text import BadInput

FOLDER = "/run/moorage/run"


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "run",
        help="start a command on a share of this machine's GPUs",
        usage="%(prog)s [options] -- COMMAND [ARGUMENT ...]\n       %(prog)s --list [-o FORMAT]",
        description="Start a command on a share of this machine's GPUs, which is free again when the command ends.",
        epilog="Exit code: the command's; 1: no driver; 2: bad input; 75: no room; 126, 127: it can't be started.",
    )
    parser.add_argument("--gpus", metavar="NUMBER", help="0.5: a part; 2: whole GPUs; 1-4: as many as are free")
    parser.add_argument("--gpu-memory", metavar="SIZE", help="memory of each GPU at least: 4Gi")
    parser.add_argument("--wait", default="0s", metavar="TIME", help="how long to wait for room (default 0s)")
    parser.add_argument("--list", action="store_true", help="list GPUs and the commands that share them")
    parser.add_argument("--folder", default=FOLDER, metavar="FOLDER", help=f"where shares are kept (default {FOLDER})")
    parser.add_argument("--beside-kubelet", action="store_true", help="start though a kubelet may give out these GPUs")
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="COMMAND", help="what to start, with its own options"
    )
    output.add(parser, (output.TABLE, output.WIDE, output.JSON, output.YAML))
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    output.check(arguments)
    if arguments.command[:1] == ["--"]:
        del arguments.command[0]
    if arguments.list and (arguments.command or arguments.gpus or arguments.gpu_memory):
        raise BadInput("--list: not with a command, --gpus or --gpu-memory")
    if not (arguments.list or arguments.command):
        raise BadInput("COMMAND: missing; give it last, as in moorage run --gpus 0.5 -- python train.py")
    from cli.machine import command  # noqa: PLC0415 - lazily, so that --help costs nothing

    return command.run(arguments)
