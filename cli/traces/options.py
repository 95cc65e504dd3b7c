"""Options of ``moorage simulate --trace``. Only argparse is imported here."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Final

from cli.refusing import BadInput

#: Strategies of the scheduler, and scores that a trace may be replayed with: the last one only to compare with.
STRATEGIES: Final = ("binpack", "spread", "priced")
_OF_TRACES: Final = (*STRATEGIES, "best-fit")
PRICES: Final = ("trace", "arrivals")
MOST_LOAD: Final = 1_000
MOST_SEEDS: Final = 1_000
MOST_STEP: Final = 10_000
_ALLOWED_SEEDS: Final = f"whole numbers and ranges as in 42-51,60; {MOST_SEEDS} at most"
_ONLY: Final = "only with --trace; name a trace, or leave it out"
_ONLY_STRATEGY: Final = "only with --trace, --from-snapshot or --from-cluster; name one, or leave it out"
_SEEDS: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the group."""
    group = parser.add_argument_group("traces", "replay a trace of pods on its nodes, in place of manifests")
    group.add_argument("--trace", metavar="openb:FOLDER|csv:FILE", help="pods as CSV; csv: on the nodes of --nodes")
    group.add_argument("--variant", default="default", metavar="NAME", help="of an openb trace (default: default)")
    group.add_argument(
        "--strategy",
        action="append",
        default=[],
        metavar="GPU[/CPU]",
        help=f"{', '.join(_OF_TRACES)}; may be repeated (default priced)",
    )
    group.add_argument("--load", type=int, default=130, metavar="PERCENT", help="GPUs asked, of all (default 130)")
    group.add_argument("--seeds", default="42", metavar="N-M,...", help="orders of arrival (default 42)")
    group.add_argument("--prices", choices=PRICES, default="trace", help="learn prices from all pods or those so far")
    group.add_argument("--full", action="store_true", help="through API server, admission, scheduler and binder")
    group.add_argument("--part", type=int, default=1, metavar="N", help="take every Nth node and pod (default 1)")
    group.add_argument("--plot", metavar="FILE", help="draw the result as SVG")


def check(arguments: argparse.Namespace) -> None:
    """Raise BadInput for options that would change nothing: of traces without one, of others with one."""
    if arguments.trace is None:
        _refuse(("--strategy", arguments.strategy), says=_ONLY_STRATEGY)
        _refuse(("--full", arguments.full), says=_ONLY)
        if arguments.workload is None:
            _refuse(("--plot", arguments.plot), says=_ONLY)
        return
    of_others = (
        ("manifests", arguments.files or arguments.filename),
        ("--workload", arguments.workload),
        ("--record", arguments.record),
        ("--adopt-all", arguments.adopt_all),
        ("--real-time", arguments.real_time),
    )
    _refuse(*of_others, says="not with --trace; leave it out")


def _refuse(*options: tuple[str, object], says: str) -> None:
    for name, is_given in options:
        if is_given:
            raise BadInput(f"{name}: {says}")


def seeds(text: str) -> list[int]:
    """Read seeds, each once. Raises BadInput."""
    found: dict[int, None] = {}
    for part in text.split(","):
        match = _SEEDS.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < first + MOST_SEEDS:
            raise BadInput(f"--seeds: {part[:40]!r}; allowed: {_ALLOWED_SEEDS}")
        found.update(dict.fromkeys(range(first, last + 1)))
    if len(found) > MOST_SEEDS:
        raise BadInput(f"--seeds: {len(found)} seeds; allowed: {_ALLOWED_SEEDS}")
    return list(found)


def strategy(text: str, among: Sequence[str] = _OF_TRACES) -> tuple[str, str]:
    """Read the strategies for GPUs and for pods without. Raises BadInput."""
    gpu, slash, cpu = text.partition("/")
    cpu = cpu if slash else gpu
    if gpu not in among or cpu not in among:
        names = ", ".join(among)
        raise BadInput(f"--strategy: {text[:40]!r}; allowed: one of {names}, or two with / between, GPUs first")
    return gpu, cpu


def load(percent: int) -> int:
    """Return the load. Raises BadInput."""
    if not 1 <= percent <= MOST_LOAD:
        raise BadInput(f"--load: {percent}; allowed: from 1 to {MOST_LOAD} percent of the GPUs")
    return percent


def part(step: int) -> int:
    """Return which nodes and pods are taken. Raises BadInput."""
    if not 1 <= step <= MOST_STEP:
        raise BadInput(f"--part: {step}; allowed: from 1 to {MOST_STEP}")
    return step
