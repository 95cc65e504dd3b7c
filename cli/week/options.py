"""Options of ``moorage simulate --workload``. Only argparse is imported here."""

from __future__ import annotations

import argparse
from typing import Final

from cli.refusing import BadInput

UNIVERSITY: Final = "university"
ROOM: Final = ("both", "off", "on")
MOST_DAYS: Final = 28


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the group; ``--part``, ``--seed`` and ``--plot`` are there already."""
    group = parser.add_argument_group("workloads", "draw jobs that come to queues for days, in place of manifests")
    group.add_argument("--workload", metavar="FILE|university", help="nodes, queues and kinds of jobs, as YAML")
    group.add_argument("--days", type=int, default=7, metavar="N", help="from a Monday on (default 7)")
    group.add_argument("--room", choices=ROOM, default="both", help="with or without making room (default both)")


def days(number: int) -> int:
    """Return the number of days. Raises BadInput."""
    if not 1 <= number <= MOST_DAYS:
        raise BadInput(f"--days: {number}; allowed: from 1 to {MOST_DAYS}")
    return number
