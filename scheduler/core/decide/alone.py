"""One pod that is not part of a start: alone, or beyond the minimum of its gang."""

from __future__ import annotations

import enum

from scheduler.core.decide import supposed_nodes
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.kept_nodes import KeptOff
from scheduler.core.model.plan import Bind, Entry, Placement
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.queues.accounts import HeldBack


class Outcome(enum.Enum):
    """What became of a pod that has no verdict which holds for its class."""

    #: It was placed, or room is being made for it.
    SERVED = enum.auto()
    #: It is left to the next decision.
    PUT_OFF = enum.auto()


def decide_alone(pod: PodRecord, attempts: Attempts, entries: list[Entry]) -> Outcome | Verdict | HeldBack | KeptOff:
    """Place a pod, or make room for it; else say why it fits nowhere, or that its queue takes no more.

    Or that it fits only where nodes are kept for others.
    """
    outcome = attempts.held_back([pod]) or _decide_by_nodes(pod, attempts, entries)
    if attempts.snapshot.supposes_nodes and isinstance(outcome, Verdict | KeptOff):
        return _decide_by_supposed_nodes(pod, outcome, attempts, entries)
    return outcome


def _decide_by_supposed_nodes(
    pod: PodRecord, refusal: Verdict | KeptOff, attempts: Attempts, entries: list[Entry]
) -> Outcome | Verdict | HeldBack:
    verdict = refusal if isinstance(refusal, Verdict) else refusal.verdict
    placed = supposed_nodes.for_share(attempts, pod, verdict)
    if isinstance(placed, Placement):
        entries.append(Bind(placed))
        return Outcome.SERVED
    return placed


def _decide_by_nodes(
    pod: PodRecord, attempts: Attempts, entries: list[Entry]
) -> Outcome | Verdict | HeldBack | KeptOff:
    known = attempts.classes.verdict(pod.cls, pod.namespace)
    if known is not None:
        return known
    if not attempts.affords([pod]):
        return Outcome.PUT_OFF
    placed = attempts.place(pod)
    if isinstance(placed, Placement):
        entries.append(attempts.placer.entry_alone(pod, placed))
        return Outcome.SERVED
    if isinstance(placed, HeldBack | KeptOff):
        return placed
    found = attempts.make_room(pod)
    if found is None or isinstance(found, KeptOff):
        return found or placed
    node, retired = found
    entries.extend(retired)
    attempts.notes.say((pod.uid,), Verdict(code=Code.WAITING_FOR_DEVICE, detail=node))
    return Outcome.SERVED
