"""What ``moorage simulate`` does with a cluster or a snapshot of one: read, decide twice, compare, print tables."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import anyio
import msgspec

from cli.simulation import added as manifests_of
from cli.simulation import comparison as changes
from cli.simulation import options
from cli.simulation.added import NOTHING, Added, Addition
from cli.simulation.comparison import Comparison, Counts, Kind, PodChange, QueueChange, Scheduling, compared, ended
from cli.snapshots import command
from cli.snapshots import file as saved
from cli.snapshots.file import MOST_BYTES, Refused, Saved
from kube.client.errors import ApiError
from runtime.options import manifests
from runtime.options.output import FOR_PROGRAMS, WIDE
from runtime.output import Progress, write
from runtime.process import HARDLY_EVER, rare_collections
from runtime.processes.scheduler import settings
from runtime.settings import file
from runtime.settings.declaration import declared
from runtime.settings.scheduler import SchedulerOptions
from runtime.text import BadInput, line
from scheduler.conditions.suggestion_messages import edit_text
from scheduler.core.report.queue_view import Amounts
from scheduler.core.what_if.edits import Edit
from ui.explain.views import EditView
from ui.queues.tables import GPU, amount
from ui.tables import Cell, Look, Sheet, first_rows, show

#: What a kind means, after a number of pods.
_WORDS: Final = {
    Kind.WAITS: ("waits", "wait"),
    Kind.ENDS: ("ends for good", "end for good"),
    Kind.MOVES: ("starts again on another node", "start again on another node"),
    Kind.RESTARTS: ("starts again on its node", "start again on their nodes"),
    Kind.STARTS: ("starts", "start"),
    Kind.STAYS: ("is not evicted", "are not evicted"),
    Kind.ELSEWHERE: ("that waits now starts on another node", "that wait now start on another node"),
}
_STYLES: Final = {Kind.WAITS: "red", Kind.ENDS: "red", Kind.MOVES: "yellow", Kind.STARTS: "green"}


def sheets(found: Comparison) -> Iterator[Sheet]:
    """What was changed, what comes of it, and a table each for pods, reasons and queues."""
    yield _said(f"Changes: {'; '.join(each.message for each in found.changes)}.")
    yield _said(f"Without them: {_counted(found.without)}. With them: {_counted(found.with_)}.")
    yield _said(_in_all(found))
    for name, side in (("Without", found.without), ("With", found.with_)):
        if not side.is_at_rest:
            yield _said(f"{name} the changes more was to be done when the number of decisions was up.")
    if isinstance(found, Addition):
        yield from manifests_of.sheets(found.new)
    if shown := [pod for pod in found.pods if pod.change is not Kind.ELSEWHERE]:
        yield _pods(shown)
    if isinstance(found, Addition) and len(found.changes) == 1:
        return
    if found.reasons:
        yield _reasons(found)
    if found.queues:
        yield _queues(found)


def _said(text: str) -> Sheet:
    return Sheet(title=text, columns=(), rows=())


def _pods_text(count: int) -> str:
    return f"{count} pod{'s' * (count != 1)}"


def _counted(side: Counts) -> str:
    gone = f", {_pods_text(side.gone)} gone" if side.gone else ""
    evicted = f", {side.evicted} evicted for others" if side.evicted else ""
    return f"{_pods_text(side.placed)} placed, {side.waiting} waiting{gone}{evicted}"


def _in_all(found: Comparison) -> str:
    counts = Counter(pod.change for pod in found.pods)
    told = [f"{_pods_text(count)} {_WORDS[kind][count > 1]}" for kind in Kind if (count := counts[kind])]
    others = [f"{_pods_text(found.others_gone)} of other schedulers must leave"] if found.others_gone else []
    return f"With the changes: {', '.join([*told, *others]) or 'no pod has another place'}."


def _pods(pods: list[PodChange]) -> Sheet:
    rows = [
        [
            Cell(f"{pod.namespace}/{pod.name}"),
            Cell(pod.queue),
            Cell(_WORDS[pod.change][0], _STYLES.get(pod.change, "")),
            Cell(pod.node_now),
            Cell(pod.node_without),
            Cell(pod.node_with),
            Cell(pod.reason),
        ]
        for pod in pods
    ]
    columns = ("POD", "QUEUE", "WITH THE CHANGES", "NODE NOW", "WITHOUT", "WITH", "WAITS FOR")
    return Sheet(
        title="Pods:", columns=columns, rows=first_rows(rows), spare=("NODE NOW", "QUEUE", "WITHOUT"), folds=("POD",)
    )


def _reasons(found: Comparison) -> Sheet:
    rows = [
        [Cell(each.reason), Cell(str(each.pods_without)), Cell(str(each.pods_with)), Cell(each.help)]
        for each in found.reasons
    ]
    return Sheet(
        title="Why pods wait:", columns=("REASON", "PODS WITHOUT", "PODS WITH", "HELP"), rows=rows, spare=("HELP",)
    )


def _queues(found: Comparison) -> Sheet:
    rows = [[Cell(each.name), *_gpus(each)] for each in found.queues]
    columns = ("QUEUE", *(f"{what} {side}" for what in ("USED", "FAIR SHARE", "REQUESTED") for side in _SIDES))
    spare = ("REQUESTED WITHOUT", "REQUESTED WITH")
    return Sheet(title="GPUs of queues:", columns=columns, rows=rows, spare=spare, folds=("QUEUE",))


_SIDES: Final = ("WITHOUT", "WITH")


def _gpus(each: QueueChange) -> Iterator[Cell]:
    for before, after in (
        (each.without.allocated, each.with_.allocated),
        (each.without.fair_share, each.with_.fair_share),
        (each.without.requested, each.with_.requested),
    ):
        yield Cell(_gpu(before))
        yield Cell(_gpu(after), "" if before == after else "bold")


def _gpu(of: Amounts | None) -> str:
    return "" if of is None else amount(GPU, of.gpu_nano, up=True)


_STRATEGY: Final = "strategy"
#: The setting that a snapshot may know.
_TAINT_RULES: Final = "device_taint_rules"


def run(arguments: argparse.Namespace) -> int:
    """Compare and print; return 1 if the cluster can't be read, or a recount differs from the ledger.

    Raises BadInput.
    """
    edits = changes.read(options.changes(arguments))
    strategy = options.strategy_given(arguments)
    scheduling = _scheduling(arguments.scheduler_config)
    try:
        found = _source(arguments)
    except ApiError as error:
        sys.stderr.write(f"moorage: {line(str(error))}\n")
        return 1
    with rare_collections(HARDLY_EVER):
        has_files = bool(arguments.files or arguments.filename)
        added = manifests_of.read(found, arguments, Progress()) if has_files else NOTHING
        result, problems = comparison(found, scheduling, edits, strategy, added=added)
    if arguments.output in FOR_PROGRAMS:
        write(result, arguments.output)
    else:
        show([*sheets(result)], result.unread, Look(is_wide=arguments.output == WIDE))
    sys.stderr.writelines(f"moorage: {line(text)}\n" for text in problems)
    return 1 if problems else 0


def comparison(
    found: Saved,
    scheduling: Scheduling,
    edits: Sequence[Edit],
    strategy: tuple[str, str] | None = None,
    *,
    added: Added = NOTHING,
) -> tuple[Comparison, tuple[str, ...]]:
    """Decide without the changes and with them; return what differs, and where a ledger differs from a recount.

    ``added``: objects that the changed side has as well. Raises BadInput for a change that is not possible in this
    cluster.
    """
    progress, views = Progress(), [*filter(None, [added.view()]), *_views(edits, strategy)]
    without = ended(found, scheduling, told=_told(progress, "without"))
    with_ = ended(added.to(found), _changed(scheduling, strategy), edits, told=_told(progress, "with"))
    unread = (*found.unread, *added.notes, *scheduling.unread(added.to(found)), *with_.problems)
    result = compared(without, with_, taken_at=found.taken_at, changes=views, unread=unread)
    if added.objects:
        new = manifests_of.outcome(added, without, with_)
        result = Addition(**{field: getattr(result, field) for field in result.__struct_fields__}, new=new)
    return result, (*without.differences, *with_.differences)


def _source(arguments: argparse.Namespace) -> Saved:
    """The cluster or the file that is named; without either the cluster, if there is one. Raises ApiError, BadInput."""
    if arguments.from_snapshot is not None:
        return read(arguments.from_snapshot)
    if arguments.from_cluster:
        return anyio.run(command.read, arguments)
    try:
        return anyio.run(command.read, arguments)
    except (ApiError, BadInput) as error:
        nodes = "--nodes: missing; give the nodes to simulate, as in --nodes 4x8x80GiB"
        raise BadInput(f"{nodes}, or a cluster that can be read: {error}") from error


def read(name: str) -> Saved:
    """Read a file of ``moorage snapshot``, or stdin. Raises BadInput."""
    try:
        if name == manifests.STDIN:
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
    return Scheduling(made.decisions, made.staleness_grace_s, follows)


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
