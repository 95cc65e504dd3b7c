"""Why a group waits, as data: the verdict, the nodes by reason, its queue, who could go, what it waits for, what helps.

All of it is computed on a snapshot by what decides. ``scheduler/status`` has the words for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from scheduler.core.model.preemption import Found, Intent, NoRoom
from scheduler.core.model.quota import DIMENSIONS, Resources
from scheduler.core.model.steps import Steps, ended
from scheduler.core.model.verdict import NodeReason, Verdict
from scheduler.core.queues.tree import TreeQueue
from scheduler.core.report.queue_view import shown
from scheduler.core.what_if.below_minimum import BelowMinimum, below_minimum
from scheduler.core.what_if.queue_changes import needed
from scheduler.core.what_if.room_answer import room_answer
from scheduler.core.what_if.suggest import Suggestion, suggestions
from scheduler.core.what_if.trying import Outcome, Trying


class Stands(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """One resource of a queue on the way up, in its smallest unit. -1: unlimited.

    ``adds``: what the group adds when it starts. ``passes``: ``limit`` or ``quota``, whichever it would pass; else "".
    """

    queue: str
    resource: str
    quota: int
    limit: int
    holds: int
    fair_share: int
    adds: int
    passes: str = ""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """An intent that concerns the group. ``gone``: of its victims those that are gone."""

    intent: Intent
    is_holder: bool
    gone: int


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one group. ``nodes``: how many there are. ``tried``: decisions made to find it out.

    ``outcome``: alone, as things are; ``comes_later``: it starts so, but not before others that wait.
    ``on_their_way``: pods of it with a place, and the node. ``below``: how it stands if it runs below its minimum.
    ``is_cut``: not all changes that might help were tried.
    """

    trying: Trying
    outcome: Outcome
    nodes: int
    comes_later: bool = False
    on_their_way: tuple[tuple[str, str], ...] = ()
    queue: tuple[Stands, ...] = ()
    room: Found | NoRoom | None = None
    standing: tuple[Standing, ...] = ()
    below: BelowMinimum | None = None
    helps: tuple[Suggestion, ...] = ()
    is_cut: bool = False

    @property
    def verdict(self) -> Verdict | None:
        """Why it waits."""
        return self.outcome.verdict

    @property
    def node_reasons(self) -> tuple[NodeReason, ...]:
        """Nodes by what keeps them out, most first."""
        reasons = () if self.outcome.verdict is None else self.outcome.verdict.node_reasons
        return tuple(sorted(reasons, key=lambda each: (-each.nodes, each.kind, each.resource)))


def explained(trying: Trying, *, suggest: Callable[[Trying], Iterable[Suggestion]] = suggestions) -> Explained:
    """Explain a group. ``suggest``: finds what helps."""
    found = ended(explaining(trying))
    return msgspec.structs.replace(found, helps=tuple(suggest(trying)))


def explaining(trying: Trying) -> Steps[Explained]:
    """Explain a group in steps, without what helps."""
    snapshot, subject = trying.snapshot, trying.subject
    found = (yield from trying.trying_alone()) if subject.waiting else Outcome()
    is_beside = found.starts and (yield from trying.finding_rivals()).uids
    beside = (yield from trying.trying_beside(makes_room=not found.placed)) if is_beside else found
    room = None
    if not found.starts:
        room = yield from room_answer(snapshot, subject, now_ns=trying.now_ns, wall_s=trying.wall_s)
    return Explained(
        trying=trying,
        outcome=found,
        nodes=len(snapshot.ledger.row_of),
        comes_later=found.starts and not (beside.starts and beside.is_beside_all),
        on_their_way=tuple(_on_their_way(trying)),
        queue=tuple(_queue(trying)),
        room=room,
        standing=tuple(_standing(trying)),
        below=below_minimum(snapshot, subject.group, now_ns=trying.now_ns, wall_s=trying.wall_s),
    )


def _on_their_way(trying: Trying) -> Iterator[tuple[str, str]]:
    for pod in trying.subject.waiting:
        charges = trying.snapshot.commits.under_way(pod.uid)
        if charges:
            yield pod.name, charges[0].node


def _standing(trying: Trying) -> Iterator[Standing]:
    """Intents of which pods of the group are holders or victims."""
    snapshot, subject = trying.snapshot, trying.subject
    own = subject.uids | {pod.uid for pod in subject.bound}
    for intent in snapshot.commits.intents.all():
        is_holder = any(place.pod_uid in own for place in intent.places)
        if is_holder or any(victim.pod_uid in own for victim in intent.victims):
            gone = sum(snapshot.pod(victim.pod_uid) is None for victim in intent.victims)
            yield Standing(intent=intent, is_holder=is_holder, gone=gone)


# --- its queue -------------------------------------------------------------------------------------------------------
def _queue(trying: Trying) -> Iterator[Stands]:
    """Its queue and each above it, for what the group adds."""
    use = needed(trying)
    accounts = trying.snapshot.queues.accounts()
    leaf = None if use is None else accounts.tree.leaf(use.queue)
    if use is None or not isinstance(leaf, TreeQueue):
        return
    for number in leaf.path:
        record, account = accounts.tree.queues[number].record, accounts.of[number]
        for at, resource in enumerate(DIMENSIONS):
            if not use.amounts[at]:
                continue
            passes = "limit" if _passes(account.held, use.amounts, record.limit, at) else ""
            if use.is_fixed and not passes and _passes(account.fixed, use.amounts, record.quota, at):
                passes = "quota"
            yield Stands(
                queue=record.name,
                resource=resource,
                quota=shown(record.quota[at]),
                limit=shown(record.limit[at]),
                holds=account.held[at],
                fair_share=shown(account.fair[at]),
                adds=use.amounts[at],
                passes=passes,
            )


def _passes(held: Resources, asked: Resources, most: Resources, at: int) -> bool:
    return held[at] + asked[at] > most[at]
