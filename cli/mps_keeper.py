"""``moorage mps-keeper``: limits of tenants by NVIDIA's MPS (docs/enforcement.md)."""

from __future__ import annotations

import argparse
from typing import Any

from nodeagent.mps.mps_daemon import options

_Commands = Any  # argparse keeps the type of sub-commands private


def add_command(commands: _Commands) -> None:
    """Add the sub-command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "mps-keeper",
        help="run NVIDIA's MPS daemon and keep tenants' limits",
        description="Run NVIDIA's MPS control daemon and keep tenants' limits. Runs on a node, beside its agent.",
    )
    options.add_options(parser)
    parser.set_defaults(run=_start)


def _start(arguments: argparse.Namespace) -> int:
    from runtime import process  # noqa: PLC0415 - for those who start one

    return process.run("nodeagent.mps.mps_daemon.main", options.written(arguments))
