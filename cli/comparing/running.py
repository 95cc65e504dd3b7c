"""What ``moorage simulate --from-snapshot`` and ``--from-cluster`` do: read, decide twice, compare, print."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import anyio
import msgspec

from cli import manifestfiles, snapshotprocess
from cli.comparing import changes, options, telling
from cli.comparing.comparison import Comparison, compared
from cli.comparing.ended import Scheduling, ended
from cli.explaining.views import EditView
from cli.inspection.sheets import Look, show
from cli.memory import HARDLY_EVER, rare_collections
from cli.options.output import FOR_PROGRAMS, WIDE
from cli.printable import line
from cli.progress import Progress
from cli.refusing import BadInput
from cli.schedulerprocess import settings
from cli.settings import file
from cli.settings.declaring import declared
from cli.settings.scheduler import SchedulerOptions
from cli.snapshots import saved
from cli.snapshots.saved import MOST_BYTES, Refused, Saved
from cli.writing import write
from kube.client.errors import ApiError
from scheduler.conditions.suggestion_messages import edit_text
from scheduler.core.what_if.edits import Edit

_STRATEGY: Final = "strategy"
#: The setting that a snapshot may know.
_TAINT_RULES: Final = "device_taint_rules"


def run(arguments: argparse.Namespace) -> int:
    """Compare and print; return 1 if the cluster can't be read, or a recount differs from the ledger.

    Raises BadInput.
    """
    edits = changes.read(options.changes(arguments))
    strategy = options.strategy(arguments)
    scheduling = _scheduling(arguments.scheduler_config)
    try:
        source = arguments.from_snapshot
        found = anyio.run(snapshotprocess.read, arguments) if source is None else read(source)
    except ApiError as error:
        sys.stderr.write(f"moorage: {line(str(error))}\n")
        return 1
    with rare_collections(HARDLY_EVER):
        result, problems = comparison(found, scheduling, edits, strategy)
    if arguments.output in FOR_PROGRAMS:
        write(result, arguments.output)
    else:
        show([*telling.sheets(result)], result.unread, Look(is_wide=arguments.output == WIDE))
    sys.stderr.writelines(f"moorage: {line(text)}\n" for text in problems)
    return 1 if problems else 0


def comparison(
    found: Saved,
    scheduling: Scheduling,
    edits: Sequence[Edit],
    strategy: tuple[str, str] | None = None,
) -> tuple[Comparison, tuple[str, ...]]:
    """Decide without the changes and with them; return what differs, and where a ledger differs from a recount.

    Raises BadInput for a change that is not possible in this cluster.
    """
    progress, views = Progress(), _views(edits, strategy)
    without = ended(found, scheduling, told=_told(progress, "without"))
    with_ = ended(found, _changed(scheduling, strategy), edits, told=_told(progress, "with"))
    unread = (*found.unread, *scheduling.unread(found), *with_.problems)
    result = compared(without, with_, taken_at=found.taken_at, changes=views, unread=unread)
    return result, (*without.differences, *with_.differences)


def read(name: str) -> Saved:
    """Read a file of ``moorage snapshot``, or stdin. Raises BadInput."""
    try:
        if name == manifestfiles.STDIN:
            text = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with Path(name).open("rb") as opened:
                text = opened.read(MOST_BYTES + 1)
        return saved.read(text)
    except OSError as error:
        raise BadInput(f"--from-snapshot {name}: {error.strerror or error}") from error
    except Refused as error:
        raise BadInput(f"--from-snapshot {name}: {error}") from error


def _scheduling(config: str) -> Scheduling:
    """How the scheduler is set: by its file, else by default. Raises BadInput."""
    values, wrong = file.read(declared(SchedulerOptions), "scheduler", config) if config else ({}, [])
    if wrong:
        raise BadInput(f"--scheduler-config: {'; '.join(wrong)}")
    made = settings(SchedulerOptions(**values))
    follows = made.device_taint_rules if _TAINT_RULES in values else None
    return Scheduling(made.decisions, made.broken_gang_s, follows)


def _changed(scheduling: Scheduling, strategy: tuple[str, str] | None) -> Scheduling:
    if strategy is None:
        return scheduling
    gpu, cpu = strategy
    decisions = msgspec.structs.replace(scheduling.decisions, gpu_strategy=gpu, cpu_strategy=cpu)
    return msgspec.structs.replace(scheduling, decisions=decisions)


def _views(edits: Sequence[Edit], strategy: tuple[str, str] | None) -> list[EditView]:
    found = [EditView(family=edit.family.value, message=edit_text(edit), what_if=edit.spelled()) for edit in edits]
    if strategy is not None:
        gpu, cpu = strategy
        message = f"place GPUs by {gpu}, and pods without GPUs by {cpu}"
        found.append(EditView(family=_STRATEGY, message=message))
    return found


def _told(progress: Progress, side: str) -> Callable[[int], None]:
    return lambda rounds: progress.tick(lambda: f"{side} the changes: {rounds} decisions")
