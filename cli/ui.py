"""``moorage ui``: the page of a cluster (docs/page.md). What it runs is cli/uiprocess.py, imported when called."""

from __future__ import annotations

import argparse
import importlib
from typing import Any, Final

from cli.page.settings import PageSettings
from cli.refusing import BadInput
from cli.settings.declaring import add_options
from cli.settings.gathering import from_line

_Commands = Any  # argparse keeps the type of sub-commands private

_DESCRIPTION: Final = (
    "Serve a read-only web page: who is on which GPU, what is idle and stranded, a pod's way, why pods wait, events "
    "and groups, as they change. On loopback it shows what the kubeconfig may see; elsewhere each reader shows a token "
    "of the cluster and is shown what that may see. Runs until it is told to stop (Ctrl-C). Exit code 2: bad input."
)
#: Of a simulated cluster where none are named.
NODES: Final = ("3x8x80GiB", "1x4x24GiB")


def add_command(commands: _Commands) -> None:
    """Add the sub-command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "ui", help="serve a web page that shows the GPUs of a cluster, live", description=_DESCRIPTION
    )
    parser.add_argument(
        "--simulate", action="store_true", help="show a simulated cluster at work, in real time; needs no cluster"
    )
    parser.add_argument(
        "--nodes",
        action="append",
        default=[],
        metavar="NxGxMEM",
        help=f"with --simulate: N nodes of G cards of MEM; may be repeated (default: {' '.join(NODES)})",
    )
    parser.add_argument("--seed", type=int, default=0, help="with --simulate: what happens follows from it (default 0)")
    add_options(parser, PageSettings)
    parser.set_defaults(run=_ui)


def _ui(arguments: argparse.Namespace) -> int:
    if arguments.nodes and not arguments.simulate:
        raise BadInput("--nodes: allowed with --simulate")
    process = importlib.import_module("cli.uiprocess")
    code: int = process.run(arguments, from_line(PageSettings, arguments))
    return code
