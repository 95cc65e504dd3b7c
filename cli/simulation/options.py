"""Options of ``moorage simulate`` for ``--trace``, ``--workload``, and ``--from-snapshot`` or ``--from-cluster``.

Only argparse is imported here.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Final

from runtime.options import connection
from runtime.options.connection import Where
from runtime.text import BadInput

#: Strategies of the scheduler, and scores that a trace may be replayed with: the last one only to compare with.
STRATEGIES: Final = ("binpack", "spread", "priced")
_OF_TRACES: Final = (*STRATEGIES, "best-fit")
PRICES: Final = ("trace", "arrivals")
MOST_LOAD: Final = 1_000
MOST_SEEDS: Final = 1_000
MOST_STEP: Final = 10_000
_ALLOWED_SEEDS: Final = f"whole numbers and ranges as in 42-51,60; {MOST_SEEDS} at most"
_ONLY_TRACE: Final = "only with --trace; name a trace, or leave it out"
_ONLY_STRATEGY: Final = "only with --trace, --from-snapshot or --from-cluster; name one, or leave it out"
_SEEDS: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def add_trace_arguments(parser: argparse.ArgumentParser) -> None:
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
        _refuse(("--full", arguments.full), says=_ONLY_TRACE)
        if arguments.workload is None:
            _refuse(("--plot", arguments.plot), says=_ONLY_TRACE)
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


def strategy_of(text: str, among: Sequence[str] = _OF_TRACES) -> tuple[str, str]:
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


UNIVERSITY: Final = "university"
PREEMPTION: Final = ("both", "off", "on")
MOST_DAYS: Final = 28


def add_workload_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the group; ``--part``, ``--seed`` and ``--plot`` are there already."""
    group = parser.add_argument_group("workloads", "draw jobs that come to queues for days, in place of manifests")
    group.add_argument("--workload", metavar="FILE|university", help="nodes, queues and kinds of jobs, as YAML")
    group.add_argument("--days", type=int, default=7, metavar="N", help="from a Monday on (default 7)")
    group.add_argument(
        "--preemption", choices=PREEMPTION, default="both", help="simulate with or without preemption (default both)"
    )


def days(number: int) -> int:
    """Return the number of days. Raises BadInput."""
    if not 1 <= number <= MOST_DAYS:
        raise BadInput(f"--days: {number}; allowed: from 1 to {MOST_DAYS}")
    return number


#: A comparison has no more changes.
MOST_CHANGES: Final = 64
_STDIN: Final = "-"
_ONLY_MANIFESTS: Final = "only with manifests; name them, or leave it out"
#: Options of simulations, and those that have a value in any case.
_OF_SIMULATIONS: Final = (
    *("nodes", "trace", "workload", "record", "real_time", "details", "full", "plot"),
    *("node_label", "node_resource"),
)
_DEFAULTS: Final = (("until", "idle"), ("delay", "0s"), ("seed", 0))
_ONLY_CHANGE: Final = "only with --from-snapshot or --from-cluster; name one, or leave it out"
_NOT: Final = "not with --from-snapshot or --from-cluster; leave it out"
_ONLY_NODES: Final = "only with --nodes; give the nodes to simulate, as in --nodes 4x8x80GiB, or leave it out"


def add_change_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the groups; ``--strategy`` is there already."""
    group = parser.add_argument_group("changes of a cluster", "compare placements with and without them, and manifests")
    group.add_argument("--from-snapshot", metavar="FILE", help="file of moorage snapshot, or - for stdin")
    group.add_argument("--from-cluster", action="store_true", help="read the cluster of the connection")
    group.add_argument("--drain", action="append", default=[], metavar="NODE", help="drain a node; repeatable")
    group.add_argument(
        "--what-if", action="append", default=[], metavar="CHANGE", help="node +2 like n17, weight a gpu=2; repeatable"
    )
    group.add_argument("--scheduler-config", default="", metavar="FILE", help="settings file of the scheduler")
    connection.add(parser)


def is_asked(arguments: argparse.Namespace) -> bool:
    """Whether a cluster is read: it is named, or there are manifests without anything to run them on.

    Raises BadInput for options that don't belong together.
    """
    is_named = arguments.from_snapshot is not None or arguments.from_cluster
    has_files = bool(arguments.files or arguments.filename)
    is_meant = has_files and not (arguments.nodes or arguments.trace is not None or arguments.workload is not None)
    if not (is_named or is_meant):
        for name in ("drain", "what_if", "scheduler_config"):
            _refuse_change(name, getattr(arguments, name), _ONLY_CHANGE)
        if connection.chosen(arguments) != Where():
            raise BadInput(f"options of a connection such as --context: {_ONLY_CHANGE}")
        return False
    _check_source(arguments)
    says = _NOT if is_named else _ONLY_NODES
    for name in _OF_SIMULATIONS:
        _refuse_change(name, getattr(arguments, name), says)
    for name in ("adopt_all", "dialects"):
        _refuse_change(name, getattr(arguments, name) and not has_files, _ONLY_MANIFESTS)
    for name, default in _DEFAULTS:
        _refuse_change(name, getattr(arguments, name) != default, says)
    return True


def _check_source(arguments: argparse.Namespace) -> None:
    """Raise BadInput for two clusters, or two readers of stdin."""
    if arguments.from_snapshot is None:
        return
    if arguments.from_cluster:
        raise BadInput("--from-snapshot, --from-cluster: allowed is one of the two")
    if connection.chosen(arguments) != Where():
        raise BadInput("options of a connection such as --context: not with --from-snapshot; a file is read")
    if arguments.from_snapshot == _STDIN and _STDIN in (*arguments.files, *arguments.filename):
        raise BadInput("--from-snapshot -, and - as a manifest: allowed is one of the two; stdin is read once")


def changes(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return all changes as ``--what-if`` takes them: drains first. Raises BadInput."""
    found = (*(f"drain {node}" for node in arguments.drain), *arguments.what_if)
    if not (found or arguments.strategy or arguments.files or arguments.filename):
        raise BadInput("--drain, --what-if, --strategy: missing; name a change, as in --drain n4, or manifests")
    if len(found) > MOST_CHANGES:
        raise BadInput(f"--drain, --what-if: {len(found)} changes; allowed are {MOST_CHANGES} together")
    return found


def strategy_given(arguments: argparse.Namespace) -> tuple[str, str] | None:
    """Return the strategies for GPUs and for pods without, None if none is named. Raises BadInput."""
    if not arguments.strategy:
        return None
    if len(arguments.strategy) > 1:
        raise BadInput("--strategy: given twice; allowed: once, with --from-snapshot or --from-cluster")
    return strategy_of(arguments.strategy[0], STRATEGIES)


def _refuse_change(name: str, is_given: object, says: str) -> None:
    if is_given:
        raise BadInput(f"--{name.replace('_', '-')}: {says}")
