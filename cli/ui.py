"""``moorage ui``: the page of a cluster (docs/page.md). What it runs is ui/commands/page.py, imported when called."""

from __future__ import annotations

import argparse
import importlib
import re
from pathlib import Path
from typing import Final

from runtime.options import connection, selection
from runtime.settings.declaration import add_options as add_settings
from runtime.settings.page import NODES, PageSettings
from runtime.settings.sources import from_line
from runtime.text import BadInput

_DESCRIPTION: Final = (
    "Serve a read-only web page: tenants of each GPU, idle and stranded GPUs, a pod's history, why pods wait, events "
    "and groups, as they change. On loopback it shows what the kubeconfig may see; elsewhere each reader shows a token "
    "of the cluster and is shown what that may see. Runs until it is stopped (Ctrl-C). Exit code 2: bad input."
)
_SPEED: Final = r"[0-9]{1,4}(\.[0-9]{1,3})?"
_LEAST_SPEED: Final = 0.1
_MOST_SPEED: Final = 1000


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = _DESCRIPTION
    parser.add_argument(
        "--simulate", action="store_true", help="show a simulated cluster at work, in real time; needs no cluster"
    )
    parser.add_argument(
        "--nodes",
        action="append",
        default=[],
        metavar="NxGxMEM",
        help=f"with --simulate: N nodes of G GPUs of MEM; may be repeated (default: {' '.join(NODES)})",
    )
    parser.add_argument("--seed", type=int, default=0, help="with --simulate: what happens follows from it (default 0)")
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="write what the page is made of into a new file, for --open"
    )
    parser.add_argument(
        "--open", type=Path, metavar="FILE", help="show a recorded run, at any moment of it; needs no cluster"
    )
    parser.add_argument("--speed", default="1", metavar="X", help="with --open: play it X times as fast (default 1)")
    selection.add(parser, default="all", labels="")
    connection.add(parser)
    add_settings(parser, PageSettings)
    parser.set_defaults(run=_ui)


def _ui(arguments: argparse.Namespace) -> int:
    put_right(arguments)
    process = importlib.import_module("ui.commands.page")
    code: int = process.run(arguments, from_line(PageSettings, arguments))
    return code


def put_right(arguments: argparse.Namespace) -> None:
    """Read the speed. Raises BadInput for what makes no sense together."""
    if arguments.nodes and not arguments.simulate:
        raise BadInput("--nodes: allowed with --simulate")
    if arguments.open and (arguments.simulate or arguments.record):
        raise BadInput(f"--open and --{'simulate' if arguments.simulate else 'record'}: allowed is one of the two")
    selection.namespaces(arguments)
    selection.refuse_labels(arguments, "not with ui, which counts all pods on a GPU; the page has a search of its own")
    if arguments.namespace and (arguments.open or arguments.record):
        raise BadInput(
            f"--namespace and --{'open' if arguments.open else 'record'}: allowed is one of the two; a recording is of "
            "the whole cluster"
        )
    if arguments.speed != "1" and not arguments.open:
        raise BadInput("--speed: allowed with --open")
    if not re.fullmatch(_SPEED, arguments.speed) or not _LEAST_SPEED <= float(arguments.speed) <= _MOST_SPEED:
        raise BadInput(f"--speed {arguments.speed}: allowed are numbers from {_LEAST_SPEED} to {_MOST_SPEED}")
    arguments.speed = float(arguments.speed)
