"""``moorage admin``: the commands for those who run a cluster, in one group. Each also works without ``admin``."""

from __future__ import annotations

import argparse
import functools
from typing import Any

from cli import check, checkkai, cleannodes, upgradecrds

_Commands = Any  # argparse keeps the type of sub-commands private


def add_command(commands: _Commands) -> None:
    """Add the group. Without a command it prints its help."""
    group: argparse.ArgumentParser = commands.add_parser(
        "admin", help="check, clean and upgrade a cluster", description="Check, clean and upgrade a cluster."
    )
    members = group.add_subparsers(title="commands", metavar="COMMAND")
    for each in (check, checkkai, cleannodes, upgradecrds):
        each.add_command(members)
    group.set_defaults(run=functools.partial(_help, group))


def _help(group: argparse.ArgumentParser, _arguments: argparse.Namespace) -> int:
    group.print_help()
    return 0
