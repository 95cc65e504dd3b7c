"""``moorage admin``: the commands for those who run a cluster, in one group.

Each also works without ``admin``, as it did before there was the group; no list shows it there.
"""

from __future__ import annotations

import argparse
import functools
from typing import Any, Final

from cli import check, check_kai, clean_nodes, upgrade_crds

_Commands = Any  # argparse keeps the type of sub-commands private
_MEMBERS: Final = (check, check_kai, clean_nodes, upgrade_crds)


def add_command(commands: _Commands) -> None:
    """Add the group, and its members under their old names. Without a command it prints its help."""
    group: argparse.ArgumentParser = commands.add_parser(
        "admin", help="check, clean and upgrade a cluster", description="Check, clean and upgrade a cluster."
    )
    members = group.add_subparsers(title="commands", metavar="COMMAND")
    for each in _MEMBERS:
        each.add_command(members, help=each.HELP)
        each.add_command(commands)
    group.set_defaults(run=functools.partial(_help, group))


def _help(group: argparse.ArgumentParser, _arguments: argparse.Namespace) -> int:
    group.print_help()
    return 0
