"""``moorage version``: which version this is. The same number is in pyproject.toml and in the chart."""

from __future__ import annotations

import argparse
from typing import Final

VERSION: Final = "0.1.0"


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser("version", help="print the version", description="Print the version of this program.")
    parser.set_defaults(run=_run)


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--version``."""
    parser.add_argument("--version", action="version", version=f"moorage {VERSION}", help="print the version and exit")


def _run(_arguments: argparse.Namespace) -> int:
    print(f"moorage {VERSION}")
    return 0
