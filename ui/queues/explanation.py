"""Why a queue gets what it gets, as tables: its numbers up to the root, each division, and its turn."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from scheduler.core.model.quota import DIMENSIONS
from scheduler.core.queues.fair_share import StepKind
from scheduler.core.queues.order import Criterion
from scheduler.core.report.queue_explanation import DivisionView, Explanation, LevelView, NextView, OrderView, PartView
from scheduler.core.report.queue_view import QueueView
from ui.queues.tables import COUNTED, amount, each_of, percent, requested, weight
from ui.tables import Cell, Sheet

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


def sheets(explained: Explanation, *, wide: bool = False) -> list[Sheet]:
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
