"""``moorage explain``: read, explain, print.

Imports are most of its cost. Queues are explained by what is listed, without what decides and without NumPy
(tests/cli/test_startup.py); what explains pods and nodes is imported for them. A queue is explained by tables: its
numbers up to the root, each division, and its turn.
"""

from __future__ import annotations

import argparse
import datetime
import difflib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import msgspec

from kube.client.clock import SystemClock
from kube.client.errors import ApiError
from runtime.options.output import FOR_PROGRAMS, WIDE
from runtime.options.selection import GROUP, IN_NAMESPACES, NODE, POD, QUEUE
from runtime.output import Progress, write
from runtime.text import BadInput, line
from scheduler.core.model.quota import DIMENSIONS
from scheduler.core.queues.fair_share import StepKind
from scheduler.core.queues.order import Criterion
from scheduler.core.report.queue_explanation import DivisionView, Explanation, LevelView, NextView, OrderView, PartView
from scheduler.core.report.queue_view import QueueView
from ui.queues.tables import COUNTED, amount, each_of, percent, requested, weight
from ui.tables import Cell, Look, Sheet
from ui.tables import show as show_tables
from wire.units import SECOND_NS

#: Siblings of a queue that are shown; -o json has all.
_MOST_QUEUES: Final = 12
#: Each has a column of its own in the table of steps, while they are so few.
_MOST_COLUMNS: Final = 4
_MOST_STEPS: Final = 30
_OTHERS: Final = "OTHERS"
_NUMBERS: Final = ("", *(each.upper() for each in COUNTED))

_BECAUSE: Final = {
    Criterion.SHARE.value: "above its fair share",
    Criterion.QUOTA.value: "above its quota with it",
    Criterion.PRIORITY.value: "lower priority",
    Criterion.VOID.value: "may have none of what it requests",
    Criterion.SHARE_USED_WITH.value: "uses more of its share with it",
    Criterion.SHARE_USED_WITHOUT.value: "uses more of its share",
    Criterion.SMALLER_SHARE.value: "larger share",
    Criterion.AGE.value: "younger",
    Criterion.NAME.value: "name comes later",
}


class Explained(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is printed as JSON and YAML. ``unread``: what could not be read, and so is missing here."""

    queue: Explanation
    unread: tuple[str, ...] = ()


def queue_sheets(explained: Explanation, *, wide: bool = False) -> list[Sheet]:
    """All that is known of a queue. ``wide``: also divisions in which each queue gets what it requests."""
    names = {view.name for view in explained.path}
    found = [_said(_summary(explained)), *_no_use(explained.use_stale_since_s)]
    found += [_numbers(view) for view in explained.path]
    for level in explained.levels:
        for division in level.divisions:
            found += _division(_divided(level, explained), division, names, wide=wide)
    found += [_order(order, names) for order in explained.orders if wide or _is_told(order, names)]
    if explained.unusable is None:
        found.append(_said(_next(explained.name, explained.next)))
    return found


def _said(text: str) -> Sheet:
    return Sheet(title=text, columns=(), rows=())


def _no_use(since_s: int | None) -> Iterator[Sheet]:
    """That use over time counts for nobody, and why."""
    if since_s is None:
        return
    since = datetime.datetime.fromtimestamp(since_s, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    answered = f"answered last at {since}" if since_s else "has never answered"
    yield _said(f"Use over time counts for no queue now: Prometheus {answered}.")


# --- numbers ---------------------------------------------------------------------------------------------------------
def _summary(explained: Explanation) -> str:
    queue = explained.path[0]
    way = " < ".join(view.name for view in explained.path)
    if explained.unusable is not None:
        return f"Queue {way} takes nobody: {explained.unusable.message}. What runs in it goes on."
    if queue.children:
        others = f" {queue.pods} pods name it and wait." if queue.pods else ""
        return f"Queue {way} can be used. It has queues below it, so it takes no pods itself.{others}"
    return f"Queue {way} can be used. Pods that name it: {queue.pods}."


def _numbers(view: QueueView) -> Sheet:
    weights = view.weight_millionths
    rows = [
        _row("quota", each_of(view.quota)),
        _row("limit", each_of(view.limit)),
        [Cell("weight"), *(Cell(weight(each)) for each in (weights.cpu, weights.memory, weights.gpu))],
        _row("allocated", each_of(view.allocated), up=True),
        _row("  non-preemptible", each_of(view.allocated_non_preemptible), up=True),
        _row("  terminating", each_of(view.terminating), up=True),
        _row("requested", each_of(view.requested), up=True),
    ]
    if view.unusable is None:
        rows.append(_row("fair share", each_of(view.fair_share), up=True))
    return Sheet(title=f"{view.name}, priority {view.priority}:", columns=_NUMBERS, rows=rows)


def _row(name: str, amounts: Sequence[int], *, up: bool = False) -> list[Cell]:
    return [Cell(name), *(Cell(amount(at, value, up=up)) for at, value in enumerate(amounts))]


# --- divisions -------------------------------------------------------------------------------------------------------
def _divided(level: LevelView, explained: Explanation) -> str:
    """What a level divides."""
    if level.below:
        return f"the share of {level.below}"
    pool = explained.path[0].node_pool
    return f"node pool {pool}" if pool else "the cluster"


def _division(of: str, division: DivisionView, names: set[str], *, wide: bool) -> Iterator[Sheet]:
    at = DIMENSIONS.index(division.resource)
    total = f"{COUNTED[at]} of {of}: {amount(at, division.total, up=True)}"
    if not wide and all(part.fair_share == part.requested for part in division.queues):
        yield _said(f"{total}. Each queue gets what it requests.")
        return
    shown = _shown(division, names)
    more = len(division.queues) - len(shown)
    beside = f" Not shown: {more} more." if more else ""
    yield Sheet(
        title=f"{total}, {_among(division.queues)}.{beside}",
        columns=("QUEUE", "PRIORITY", "QUOTA", "LIMIT", "WEIGHT", *_used_head(division), "REQUESTED", "FAIR SHARE"),
        rows=[_part(at, division.queues[number], names) for number in shown],
        spare=("WEIGHT", "PRIORITY", "USED BEFORE", "LIMIT", "QUOTA"),
        folds=("QUEUE",),
    )
    yield _steps(at, division, shown, names)


def _used_head(division: DivisionView) -> tuple[str, ...]:
    return ("USED BEFORE",) if any(part.used_ppb is not None for part in division.queues) else ()


def _among(parts: Sequence[PartView]) -> str:
    return f"for {parts[0].queue} alone" if len(parts) == 1 else f"divided among {len(parts)} queues"


def _shown(division: DivisionView, names: set[str]) -> list[int]:
    """Positions of the queues that are shown: the one in question, and those with the largest shares."""
    parts = division.queues
    first = sorted(
        range(len(parts)), key=lambda at: (parts[at].queue not in names, -parts[at].fair_share, parts[at].queue)
    )
    return sorted(first[:_MOST_QUEUES])


def _part(at: int, part: PartView, names: set[str]) -> list[Cell]:
    style = "bold" if part.queue in names else ""
    cells = (
        part.queue,
        str(part.priority),
        amount(at, part.quota),
        amount(at, part.limit),
        weight(part.weight_millionths),
        *(() if part.used_ppb is None else (percent(part.used_ppb),)),
        amount(at, part.requested, up=True),
        amount(at, part.fair_share, up=True),
    )
    return [Cell(text, style) for text in cells]


def _steps(at: int, division: DivisionView, shown: Sequence[int], names: set[str]) -> Sheet:
    """What each step gave: to each queue that is shown, or to the one in question and to all others."""
    apart = list(shown)
    if len(division.queues) > _MOST_COLUMNS:
        apart = [number for number in shown if division.queues[number].queue in names] or list(shown[:_MOST_COLUMNS])
    heads = [division.queues[number].queue for number in apart]
    has_others = len(apart) < len(division.queues)
    rows = []
    rounds = 0
    for step in division.steps[:_MOST_STEPS]:
        rounds += step.kind == StepKind.ROUND.value
        given = [step.given[number] for number in apart]
        others = [sum(step.given) - sum(given)] if has_others else []
        texts = [
            _step(step.kind, step.priority, rounds),
            *(amount(at, each, up=True) for each in (step.offered, *given, *others)),
        ]
        rows.append([Cell(text) for text in texts])
    width = len(rows[0]) - 2 if rows else 0
    if (more := len(division.steps) - len(rows)) > 0:
        rows.append([Cell(f"{more} further steps"), *([Cell("")] * (width + 1))])
    rows.append([Cell("nobody gets"), Cell(amount(at, division.left, up=True)), *([Cell("")] * width)])
    columns = ("STEP", "OFFERED", *heads, *([_OTHERS] if has_others else []))
    spare = (_OTHERS, *(head for head in reversed(heads) if head not in names), "OFFERED")
    return Sheet(columns=columns, rows=rows, spare=spare, prose=("STEP",))


def _step(kind: str, priority: int | None, rounds: int) -> str:
    if kind == StepKind.QUOTA.value:
        return "quotas"
    return f"round {rounds}, priority {priority}" if kind == StepKind.ROUND.value else f"leftovers, priority {priority}"


# --- turns -----------------------------------------------------------------------------------------------------------
def _is_told(order: OrderView, names: set[str]) -> bool:
    """Whether there is anything to tell: a queue that has no other beside it is next."""
    return len(order.turns) > 1 or order.turns[0].queue not in names


def _order(order: OrderView, names: set[str]) -> Sheet:
    of = f"below {order.below}" if order.below else "at the top"
    rows = []
    for turn, each in list(enumerate(order.turns, 1))[:_MOST_QUEUES]:
        rows.append(
            [
                Cell(str(turn)),
                Cell(each.queue, "bold" if each.queue in names else ""),
                Cell(_workload(each.next)),
                Cell(requested(each.next.requested)),
                Cell(_BECAUSE.get(each.after_by, "")),
            ]
        )
    return Sheet(
        title=f"Turns of the queues {of}:",
        columns=("TURN", "QUEUE", "NEXT WORKLOAD", "REQUESTS", "WHY NOT EARLIER"),
        rows=rows,
        spare=("REQUESTS",),
        prose=("NEXT WORKLOAD", "REQUESTS", "WHY NOT EARLIER"),
        folds=("QUEUE",),
    )


def _workload(waits: NextView) -> str:
    return f"{waits.kind} {waits.namespace}/{waits.name}"


def _next(name: str, waits: NextView | None) -> str:
    if waits is None:
        return f"Nothing waits in {name}."
    said = f"Next in {name}: {_workload(waits)}, which requests {requested(waits.requested)}."
    return said if waits.held_back is None else f"{said} It waits: {waits.held_back.message}"


if TYPE_CHECKING:
    from ui.explain.explanation import Whole
    from ui.queues.count import Known
    from ui.queues.pools import About, Divided

_DEFAULT_NAMESPACE: Final = "default"


def run(arguments: argparse.Namespace) -> int:
    """Explain the object that the arguments name; return 1 if the cluster can't be read. Raises BadInput."""
    wall_s = SystemClock().now_ns() // SECOND_NS
    try:
        show_found = _of_files(arguments, wall_s) if arguments.filename else anyio.run(_read, arguments, wall_s)
    except ApiError as error:
        sys.stderr.write(f"moorage: {line(str(error))}\n")
        return 1
    show_found()
    return 0


def _of_files(arguments: argparse.Namespace, wall_s: int) -> Callable[[], None]:
    """Read files; return what prints the explanation. Raises BadInput."""
    from ui.queues import files  # YAML is not needed to read a cluster

    if arguments.what == QUEUE:
        return partial(show_queue, files.read_listed(arguments.filename), arguments.names[0], arguments.output)
    return partial(show, files.read(arguments.filename, _about(arguments), wall_s=wall_s), arguments, wall_s)


async def _read(arguments: argparse.Namespace, wall_s: int) -> Callable[[], None]:
    """Take the scheduler's answer where it explains, else read the cluster; return what prints the explanation.

    Raises ApiError, BadInput.
    """
    from runtime.client import reached
    from ui.queues import reader

    async with reached(arguments, "explain", only_reads=True) as cluster:
        arguments.namespace = arguments.namespace or cluster.credentials.namespace
        if arguments.what in IN_NAMESPACES:
            from ui.explain import explanation as client

            try:
                answer = await client.ask(cluster, arguments, arguments.namespace or _DEFAULT_NAMESPACE)
                return partial(_show_whole, answer, arguments.output)
            except client.NotServed:
                pass
            except client.NoAnswer as why:
                sys.stderr.write(f"moorage: the scheduler gave no answer ({line(str(why))}): reading the cluster\n")
        with Progress("reading the cluster").waiting():
            api = cluster.api()
            if arguments.what == QUEUE:
                return partial(show_queue, await reader.read_listed(api), arguments.names[0], arguments.output)
            known = await reader.read(api, wall_s=wall_s, about=_about(arguments))
            return partial(show, known, arguments, wall_s)


def _about(arguments: argparse.Namespace) -> About:
    """The object of the question. The scheduler that decides on it is explained."""
    from ui.queues.pools import About

    namespace = (arguments.namespace or _DEFAULT_NAMESPACE) if arguments.what in IN_NAMESPACES else ""
    return About(kind=arguments.what, namespace=namespace, name=arguments.names[0])


def show(known: Known, arguments: argparse.Namespace, wall_s: int) -> None:
    """Print the explanation of the pod, PodGroup or node that the arguments name. Raises BadInput for one not there."""
    _SHOW[arguments.what](known, arguments, wall_s)


def _print(view: msgspec.Struct, tables: Callable[[], Sequence[Sheet]], unread: Sequence[str], output: str) -> None:
    if output in FOR_PROGRAMS:
        write(view, output)
        return
    show_tables(list(tables()), unread, Look(is_wide=output == WIDE))


# --- queues ----------------------------------------------------------------------------------------------------------
def show_queue(divided: Divided, name: str, output: str) -> None:
    """Print the explanation of a queue, for the scheduler of its node pool. Raises BadInput for one not there."""
    from scheduler.conditions.messages import told
    from scheduler.core.report.queue_explanation import explanation

    listed = divided.of_queue(name)
    explained = None if listed is None else explanation(listed, name, lambda verdict: told(verdict).message)
    if explained is None:
        raise BadInput(_unknown_queue(divided, name))
    unread = tuple(divided.unread)
    view = Explained(queue=explained, unread=unread)
    _print(view, lambda: queue_sheets(explained, wide=output == WIDE), unread, output)


def _unknown_queue(divided: Divided, name: str) -> str:
    there, named = divided.names(), divided.waiting_in(name)
    waits = f"; {named} pods name it and wait" if named and there else ""
    from ui.queues.pools import unread_of

    near = difflib.get_close_matches(name, there, n=1)
    alone = "; without any Queue all pods may use everything"
    meant = f"; did you mean {near[0]}?" if near else "" if there else alone
    return f"there is no queue {name}{waits}{meant}{unread_of('Queue', divided.unread)}"


# --- pods and PodGroups ----------------------------------------------------------------------------------------------
def _show_group(known: Known, arguments: argparse.Namespace, wall_s: int) -> None:
    from ui.explain import explanation as supposing
    from ui.explain import tables as groups

    namespace = arguments.namespace or _DEFAULT_NAMESPACE
    edits = supposing.edits(arguments.what_if)
    subject = supposing.subject(known, arguments.what, namespace, arguments.names[0])
    explained = supposing.explained(known, subject, edits, wall_s)
    view = groups.group_view(explained, edits, is_in_doubt=supposing.is_in_doubt(known, subject, explained))
    unread = (*known.unread, *supposing.not_looked_at(known, subject, explained))
    _show_whole(supposing.Whole(group=view, unread=unread), arguments.output)


def _show_whole(whole: Whole, output: str) -> None:
    from ui.explain import tables as groups

    _print(whole, lambda: list(groups.group_sheets(whole.group)), whole.unread, output)


# --- nodes -----------------------------------------------------------------------------------------------------------
def _show_node(known: Known, arguments: argparse.Namespace, _: int) -> None:
    from scheduler.core.what_if.explanation import node_explained
    from ui.explain import tables as nodes
    from ui.queues.count import NOW_NS

    explained = node_explained(known.snapshot, arguments.names[0], NOW_NS)
    if explained is None:
        near = difflib.get_close_matches(arguments.names[0], known.snapshot.ledger.row_of, n=1)
        raise BadInput(f"there is no node {arguments.names[0]}" + (f"; did you mean {near[0]}?" if near else ""))
    view = nodes.node_view(explained)
    whole = nodes.Whole(node=view, unread=known.unread)
    _print(whole, lambda: list(nodes.node_sheets(view)), known.unread, arguments.output)


_SHOW: Final[Mapping[str, Callable[[Known, argparse.Namespace, int], None]]] = {
    POD: _show_group,
    GROUP: _show_group,
    NODE: _show_node,
}
