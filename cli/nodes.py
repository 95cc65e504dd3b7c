"""``moorage nodes``: simulated GPU nodes on a real API server, for people without GPUs (docs/simulated-nodes.md).

What it runs is runtime/processes/nodes.py, imported when called.
"""

from __future__ import annotations

import argparse
import importlib
import re
from pathlib import Path
from typing import Final

from cli.components import start
from runtime.settings.common import Process
from runtime.settings.declaration import add_options as add_settings
from runtime.settings.sources import from_line
from runtime.text import BadInput

_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Simulate nodes with GPUs on a real API server: they take pods, assign devices and run the real "
        "reservation process, but no container. Runs until it is stopped (Ctrl-C), then deletes its nodes."
    )
    parser.add_argument(
        "--nodes",
        action="append",
        required=True,
        metavar="NxGxMEM",
        help="N nodes of G GPUs of MEM: 4x8x80GiB; GPUs that differ: 1x2x24GiB+2x80GiB; may be repeated",
    )
    parser.add_argument(
        "--prefix", default="simulated", help="nodes are called PREFIX-0, PREFIX-1... (default simulated)"
    )
    parser.add_argument("--seed", type=int, default=0, help="the UUIDs of the devices follow from it (default 0)")
    parser.add_argument(
        "--state",
        type=Path,
        metavar="FOLDER",
        help="remember there which pod has which device, so that a restart does not look like a swap of GPUs",
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="append what really happens on the machines, a JSON object a line: which container sees which device",
    )
    parser.add_argument("--keep", action="store_true", help="leave the nodes on the API server when this ends")
    parser.add_argument(
        "--no-taint", action="store_true", help="let pods come that don't tolerate simulator.moorage.dev/simulated"
    )
    add_settings(parser, Process)
    parser.set_defaults(run=_nodes)


def _nodes(arguments: argparse.Namespace) -> int:
    if not _PREFIX.fullmatch(arguments.prefix):
        raise BadInput(
            f"--prefix: {arguments.prefix!r} is not 1 to 52 lower-case letters, digits and dashes, no dash at an end"
        )
    process = importlib.import_module("runtime.processes.nodes")
    arguments.shapes = process.shapes(arguments)
    return start(process.run_nodes, from_line(Process, arguments), arguments)
