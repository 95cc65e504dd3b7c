"""``moorage admin``: the commands for those who run a cluster. Without one of them it prints its help."""

from __future__ import annotations

import argparse
import functools

from cli.commands import ADMIN, add_commands


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the group."""
    parser.description = "Check, clean and upgrade a cluster."
    add_commands(parser, ADMIN, required=False)
    parser.set_defaults(run=functools.partial(_help, parser))


def _help(group: argparse.ArgumentParser, _arguments: argparse.Namespace) -> int:
    group.print_help()
    return 0
