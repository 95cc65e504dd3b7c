"""What changes of a cluster change: pods, what keeps pods waiting, and queues, without them and with them."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from cli.comparing.ended import Ended, PodEnd
from cli.explaining.views import EditView
from scheduler.conditions.advice import link
from scheduler.core.report.queue_view import Amounts, amounts
from scheduler.core.report.state import QueueState

#: Of a pod that waits and was told nothing yet: it is on its way, or an eviction for it is.
UNTOLD: Final = "NotDecided"


class Kind(enum.StrEnum):
    """What the changes mean for one pod; in the order in which they are listed."""

    #: It is placed without the changes only.
    WAITS = "waits"
    #: Nothing makes it again, so it is lost.
    ENDS = "ends"
    #: It runs, and has to start again on another node, or on the same.
    MOVES = "moves"
    RESTARTS = "restarts"
    #: It is placed with the changes only.
    STARTS = "starts"
    #: It would be evicted for others without the changes, and is not.
    STAYS = "stays"
    #: It waits now, and is placed on another node than without the changes.
    ELSEWHERE = "elsewhere"


class PodChange(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A pod. ``node_now``: in the snapshot. ``reason``: why it waits with the changes, and ``help``: on which page.

    Nodes are "" while it waits, or where it is gone.
    """

    namespace: str
    name: str
    queue: str
    change: Kind
    node_now: str
    node_without: str
    node_with: str
    reason: str = ""
    help: str = ""


class Counts(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Pods of one side. ``evicted``: for others. ``is_at_rest``: else the number of decisions is bounded, and was up.

    ``passed_s``: the clock was put forward by so much, for what the scheduler waits for.
    """

    placed: int
    waiting: int
    gone: int
    evicted: int
    is_at_rest: bool
    passed_s: int


class ReasonCount(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Pods that wait for one reason, without the changes and with them."""

    reason: str
    pods_without: int
    pods_with: int
    help: str = ""


class QueueSide(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A queue with all below it. ``fair_share`` None: it can't be used. ``requested``: what it holds and waits for."""

    allocated: Amounts
    requested: Amounts
    fair_share: Amounts | None = None


class QueueChange(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A queue, without the changes and with them."""

    name: str
    parent: str
    without: QueueSide
    with_: QueueSide = msgspec.field(name="with")


class Comparison(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is printed as JSON and YAML. ``unread``: what the snapshot lacks. ``others_gone``: of other schedulers."""

    taken_at: str
    changes: tuple[EditView, ...]
    without: Counts
    with_: Counts = msgspec.field(name="with")
    pods: tuple[PodChange, ...]
    reasons: tuple[ReasonCount, ...]
    queues: tuple[QueueChange, ...]
    others_gone: int = 0
    unread: tuple[str, ...] = ()


def compared(
    without: Ended, with_: Ended, *, taken_at: str, changes: Sequence[EditView], unread: Sequence[str]
) -> Comparison:
    """Compare both sides, which are of one snapshot."""
    order = list(Kind)
    pods = sorted(
        _pod_changes(without.pods, with_.pods), key=lambda pod: (order.index(pod.change), pod.namespace, pod.name)
    )
    return Comparison(
        taken_at=taken_at,
        changes=tuple(changes),
        without=_counts(without),
        with_=_counts(with_),
        pods=tuple(pods),
        reasons=tuple(_reasons(without.pods.values(), with_.pods.values())),
        queues=tuple(_queues(without.queues, with_.queues)),
        others_gone=with_.others_gone,
        unread=tuple(unread),
    )


# --- pods ------------------------------------------------------------------------------------------------------------
def _pod_changes(without: Mapping[str, PodEnd], with_: Mapping[str, PodEnd]) -> Iterator[PodChange]:
    for uid, before in without.items():
        after = with_[uid]
        kind = _kind(before, after)
        if kind is None:
            continue
        reason = _reason(after) if _waits(after) else ""
        yield PodChange(
            namespace=after.namespace,
            name=after.name,
            queue=after.queue,
            change=kind,
            node_now=after.was_at,
            node_without=before.node,
            node_with=after.node,
            reason=reason,
            help=link(reason) if reason not in {"", UNTOLD} else "",
        )


def _kind(before: PodEnd, after: PodEnd) -> Kind | None:
    if after.is_gone:
        return None if before.is_gone else Kind.ENDS
    if not after.node:
        return Kind.WAITS if before.node else None
    if not before.node:
        return Kind.STARTS
    if after.starts_again and not before.starts_again:
        return Kind.RESTARTS if after.node == after.was_at else Kind.MOVES
    if before.starts_again and not after.starts_again:
        return Kind.STAYS
    return Kind.ELSEWHERE if before.node != after.node else None


def _waits(pod: PodEnd) -> bool:
    return not pod.node and not pod.is_gone


def _reason(pod: PodEnd) -> str:
    return UNTOLD if pod.verdict is None else pod.verdict.code.value


def _counts(side: Ended) -> Counts:
    pods = side.pods.values()
    return Counts(
        placed=sum(bool(pod.node) for pod in pods),
        waiting=sum(map(_waits, pods)),
        gone=sum(pod.is_gone for pod in pods),
        evicted=side.evicted,
        is_at_rest=side.rest.is_at_rest,
        passed_s=side.rest.passed_s,
    )


# --- reasons and queues ----------------------------------------------------------------------------------------------
def _reasons(without: Iterable[PodEnd], with_: Iterable[PodEnd]) -> Iterator[ReasonCount]:
    """Those with which most pods wait first."""
    before, after = (Counter(_reason(pod) for pod in side if _waits(pod)) for side in (without, with_))
    for reason in sorted(before.keys() | after.keys(), key=lambda each: (-after[each], each)):
        helped = "" if reason == UNTOLD else link(reason)
        yield ReasonCount(reason=reason, pods_without=before[reason], pods_with=after[reason], help=helped)


def _queues(without: Sequence[QueueState], with_: Sequence[QueueState]) -> Iterator[QueueChange]:
    before = {state.record.name: state for state in without}
    for state in with_:
        name = state.record.name
        yield QueueChange(name=name, parent=state.record.parent, without=_side(before[name]), with_=_side(state))


def _side(state: QueueState) -> QueueSide:
    return QueueSide(
        allocated=amounts(state.held),
        requested=amounts(state.asked),
        fair_share=None if state.fair is None else amounts(state.fair),
    )
