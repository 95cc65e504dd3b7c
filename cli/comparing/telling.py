"""What changes of a cluster change, as tables for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from cli.comparing.comparison import Comparison, Counts, Kind, PodChange, QueueChange
from cli.inspection.sheets import Cell, Sheet
from cli.queueing.texts import GPU, amount
from scheduler.core.report.queue_view import Amounts

#: Pods that the table has; -o json has all.
_MOST_PODS: Final = 50
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
    if shown := [pod for pod in found.pods if pod.change is not Kind.ELSEWHERE]:
        yield _pods(shown)
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
        for pod in pods[:_MOST_PODS]
    ]
    if len(pods) > _MOST_PODS:
        rows.append([Cell(f"and {len(pods) - _MOST_PODS} more (-o json)"), *[Cell("")] * 6])
    columns = ("POD", "QUEUE", "WITH THE CHANGES", "NODE NOW", "WITHOUT", "WITH", "WAITS FOR")
    return Sheet(title="Pods:", columns=columns, rows=rows, spare=("NODE NOW", "QUEUE", "WITHOUT"), folds=("POD",))


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
