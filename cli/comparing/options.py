"""Options of ``moorage simulate --from-snapshot`` and ``--from-cluster``. Only argparse is imported here."""

from __future__ import annotations

import argparse
from typing import Final

from cli.options import connection
from cli.options.connection import Where
from cli.refusing import BadInput
from cli.traces import options as traces

#: A comparison has no more changes.
MOST_CHANGES: Final = 64
#: Options of simulations that have a value in any case.
_DEFAULTS: Final = (("until", "idle"), ("delay", "0s"), ("seed", 0))
_ONLY: Final = "only with --from-snapshot or --from-cluster; name one, or leave it out"
_NOT: Final = "not with --from-snapshot or --from-cluster; leave it out"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the groups; ``--strategy`` is there already."""
    group = parser.add_argument_group("changes of a cluster", "compare placements with and without them")
    group.add_argument("--from-snapshot", metavar="FILE", help="file of moorage snapshot, or - for stdin")
    group.add_argument("--from-cluster", action="store_true", help="read the cluster of the connection")
    group.add_argument("--drain", action="append", default=[], metavar="NODE", help="drain a node; repeatable")
    group.add_argument(
        "--what-if", action="append", default=[], metavar="CHANGE", help="node +2 like n17, weight a gpu=2; repeatable"
    )
    group.add_argument("--scheduler-config", default="", metavar="FILE", help="settings file of the scheduler")
    connection.add(parser)


def is_asked(arguments: argparse.Namespace) -> bool:
    """Whether a cluster's changes are compared. Raises BadInput for options that don't belong together."""
    is_asked = arguments.from_snapshot is not None or arguments.from_cluster
    if not is_asked:
        for name in ("drain", "what_if", "scheduler_config"):
            _refuse(name, getattr(arguments, name), _ONLY)
        if connection.chosen(arguments) != Where():
            raise BadInput(f"options of a connection such as --context: {_ONLY}")
        return False
    if arguments.from_snapshot is not None and arguments.from_cluster:
        raise BadInput("--from-snapshot, --from-cluster: allowed is one of the two")
    if arguments.from_snapshot is not None and connection.chosen(arguments) != Where():
        raise BadInput("options of a connection such as --context: not with --from-snapshot; a file is read")
    if arguments.files or arguments.filename:
        raise BadInput(f"manifests: {_NOT}")
    for name in ("nodes", "trace", "workload", "record", "adopt_all", "real_time", "details", "full", "plot"):
        _refuse(name, getattr(arguments, name), _NOT)
    for name in ("node_label", "node_resource", "dialects"):
        _refuse(name, getattr(arguments, name), _NOT)
    for name, default in _DEFAULTS:
        _refuse(name, getattr(arguments, name) != default, _NOT)
    return True


def changes(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return all changes as ``--what-if`` takes them: drains first. Raises BadInput."""
    found = (*(f"drain {node}" for node in arguments.drain), *arguments.what_if)
    if not found and not arguments.strategy:
        raise BadInput("--drain, --what-if, --strategy: missing; name a change, as in --drain n4")
    if len(found) > MOST_CHANGES:
        raise BadInput(f"--drain, --what-if: {len(found)} changes; allowed are {MOST_CHANGES} together")
    return found


def strategy(arguments: argparse.Namespace) -> tuple[str, str] | None:
    """Return the strategies for GPUs and for pods without, None if none is named. Raises BadInput."""
    if not arguments.strategy:
        return None
    if len(arguments.strategy) > 1:
        raise BadInput("--strategy: given twice; allowed: once, with --from-snapshot or --from-cluster")
    return traces.strategy(arguments.strategy[0], traces.STRATEGIES)


def _refuse(name: str, is_given: object, says: str) -> None:
    if is_given:
        raise BadInput(f"--{name.replace('_', '-')}: {says}")
