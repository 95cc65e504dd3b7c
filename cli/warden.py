"""``moorage warden``: end what has more GPU memory than its cap (docs/enforcement.md)."""

from __future__ import annotations

import argparse
from typing import Any

from nodeagent.enforcement.memory_enforcer import options

_Commands = Any  # argparse keeps the type of sub-commands private


def add_command(commands: _Commands) -> None:
    """Add the sub-command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "warden",
        help="end processes that pass their GPU memory cap",
        description="End processes of pods that use more GPU memory than their cap. Runs on a node, beside its agent.",
    )
    options.add_options(parser)
    parser.set_defaults(run=_start)


def _start(arguments: argparse.Namespace) -> int:
    from runtime import process  # noqa: PLC0415 - for those who start one

    return process.run("nodeagent.enforcement.memory_enforcer.main", options.written(arguments))
