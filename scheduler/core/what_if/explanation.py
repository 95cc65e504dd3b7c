"""Why a group waits, as data: the verdict, the nodes by reason, its queue, who could go, what it waits for, what helps.

All of it is computed on a snapshot by what decides. ``scheduler/conditions`` has the words for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

import msgspec

from scheduler.core.decide.allowance import LIMITS, Allowance, cost_of_changing
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.changes import OnlyThese
from scheduler.core.decide.charging import preemption_trial
from scheduler.core.decide.decide import filed
from scheduler.core.decide.placer import Placer
from scheduler.core.decide.preemption_needs import gang_need, pod_need
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.explain.explain import EXCLUDED, explain
from scheduler.core.filters.registry import OK
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.preemption import Found, Nomination, NoVictims
from scheduler.core.model.quota import DIMENSIONS, Resources
from scheduler.core.model.records import NodeRecord, PodGroupRecord
from scheduler.core.model.settings import Settings
from scheduler.core.model.stale import Stale
from scheduler.core.model.steps import Steps, ended
from scheduler.core.model.verdict import NodeReason, SubgroupShort, Verdict
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.search import ACTIONS
from scheduler.core.preemption.trial import Trial
from scheduler.core.queues.tree import TreeQueue
from scheduler.core.report.queue_view import shown
from scheduler.core.scheduling_queue.effects import Effects
from scheduler.core.snapshot.node_count import only
from scheduler.core.what_if.edits import Subject
from scheduler.core.what_if.queue_changes import needed
from scheduler.core.what_if.suggestions import Suggestion, suggestions
from scheduler.core.what_if.trials import Outcome, Trying
from wire.rfc3339 import parse_ns
from wire.units import SECOND_NS


class BelowMinimum(msgspec.Struct, frozen=True, kw_only=True):
    """Since when a gang runs below its minimum, and for how long it may. Times are in seconds since the epoch.

    The scheduler that decides knows that itself, and a command goes by what the scheduler wrote on the PodGroup
    (kai-contract 4.7). ``until_s`` None: it may run so for ever. ``left_s``: until then, rounded up; 0: its time is
    over. ``bound``: members with a node. ``short``: the subgroup that lacks members, if one does. ``is_going``: its
    pods are being evicted. ``assumed_grace_s``: the grace time that was taken for the scheduler's; 0: it is known.
    """

    bound: int
    minimum: int
    since_s: int
    left_s: int
    until_s: int | None
    short: SubgroupShort | None = None
    is_going: bool = False
    assumed_grace_s: int = 0


def below_minimum(snapshot: Snapshot, group: PodGroupRecord | None, *, now_ns: int, wall_s: int) -> BelowMinimum | None:
    """Return how a gang stands that is below its minimum; None for another one, and where nobody knows since when."""
    if group is None or group.blocker is not None:
        return None
    facts, state = snapshot.stale, snapshot.quorum(group)
    known = facts.gangs.get((group.namespace, group.name))
    if known is None:
        since_ns = parse_ns(group.stale_since)
        # By the wall clock, so that now is that, too.
        gang, now_ns = Stale(since_ns=since_ns or 0), wall_s * SECOND_NS
    else:
        gang, since_ns = known, known.since_ns
    if not state.is_broken or since_ns is None:
        return None
    over_ns = facts.over_ns(gang, group.stale_ns)
    left_s = 0 if over_ns is None else max(0, -((now_ns - over_ns) // SECOND_NS))
    is_assumed = known is None and group.stale_ns is None
    return BelowMinimum(
        bound=state.bound,
        minimum=state.minimum,
        since_s=wall_s - max(0, now_ns - since_ns) // SECOND_NS,
        left_s=left_s,
        until_s=None if over_ns is None else wall_s - (now_ns - over_ns) // SECOND_NS,
        short=state.short(),
        is_going=gang.is_going,
        assumed_grace_s=facts.staleness_grace_ns // SECOND_NS if is_assumed else 0,
    )


#: Forms of pods that are looked at, those that most pods have first.
_MOST_CLASSES: Final = 200


class KeptOff(msgspec.Struct, frozen=True, gc=False):
    """Pods that wait and that this reason keeps off the node. A pod may have several."""

    reason: NodeReason
    pods: int


class NodeExplained(msgspec.Struct, frozen=True, kw_only=True):
    """Why a node takes none of the groups that wait. ``fits``: pods that fit here alone, though they wait.

    ``waiting``: in all; ``left_out``: not looked at.
    """

    node: NodeRecord
    waiting: int
    fits: int
    kept_off: tuple[KeptOff, ...]
    left_out: int = 0


def node_explained(snapshot: Snapshot, name: str, now_ns: int) -> NodeExplained | None:
    """Explain a node; None if it is not there."""
    row = snapshot.ledger.row_of.get(name)
    node = None if row is None else snapshot.ledger.nodes[row]
    if node is None:
        return None
    unbound = map(snapshot.pods.records.__getitem__, snapshot.pods.unbound)
    waiting = Counter(snapshot.judged(pod, now_ns).cls for pod in unbound if not (pod.gated or pod.deleting))
    placer = Placer(snapshot)
    kept: Counter[tuple[str, str]] = Counter()
    fits = 0
    looked_at = waiting.most_common(_MOST_CLASSES)
    for cls, pods in looked_at:
        reasons = _reasons(placer, name, cls, snapshot.settings)
        fits += 0 if reasons else pods
        for reason in reasons:
            kept[reason.kind, reason.resource] += pods
    found = [KeptOff(NodeReason(kind, resource, 1), pods) for (kind, resource), pods in kept.items()]
    return NodeExplained(
        node=node,
        waiting=waiting.total(),
        fits=fits,
        kept_off=tuple(sorted(found, key=lambda each: (-each.pods, each.reason))),
        left_out=waiting.total() - sum(pods for _, pods in looked_at),
    )


def _reasons(placer: Placer, name: str, cls: PodClass, settings: Settings) -> list[NodeReason]:
    """What keeps a pod of a class off this node, by the first of its ways that may be here at all."""
    statement = placer.statement
    position = statement.position_of[name]
    first: list[NodeReason] = []
    for way in placer.ways(cls):
        ranking = placer.ranking(way)
        judged = ranking.eligible[position]
        if judged != OK:
            found = [NodeReason(kind, "", 1) for kind, number in statement.filters.numbers.items() if number == judged]
        elif ranking.fitting(only([name], statement.position_of)):
            return []
        else:
            found = _lacks(placer, name, way, settings)
        first = first or found
    return first


def _lacks(placer: Placer, name: str, cls: PodClass, settings: Settings) -> list[NodeReason]:
    statement = placer.statement
    mask = only([name], statement.position_of)
    verdict: Verdict = explain(statement, placer.ranking(cls), cls, settings=settings, mask=mask)
    out = {*statement.filters.numbers, EXCLUDED}
    return [reason for reason in verdict.node_reasons if reason.kind not in out]


def preemption_answer(
    snapshot: Snapshot, subject: Subject, *, now_ns: int, wall_s: int
) -> Steps[Found | NoVictims | None]:
    """Search for room by all rules; None where nobody is evicted for anybody, and where room is not what it lacks."""
    if not snapshot.settings.preemption or not subject.waiting:
        return None
    changed = filed(snapshot, OnlyThese(subject.uids), now_ns=now_ns)
    allowance = Allowance(namespaces=1, most=LIMITS.most)
    attempts = Attempts(changed, now_ns, LIMITS, allowance, Effects(changed.scheduling_queue), wall_s)
    need = _need(subject, attempts)
    if need is None:
        return None
    yield cost_of_changing(snapshot)
    return (yield from changed.finding_victims(need, _trial(attempts, wall_s), *ACTIONS))


def with_residents(snapshot: Snapshot, *, now_ns: int, wall_s: int) -> Snapshot:
    """Read who may be evicted of a snapshot that no decision was made on: else each try would read all of them."""
    if not snapshot.settings.preemption:
        return snapshot
    changed = filed(snapshot, OnlyThese(frozenset()), now_ns=now_ns)
    allowance = Allowance(namespaces=1, most=LIMITS.most)
    attempts = Attempts(changed, now_ns, LIMITS, allowance, Effects(changed.scheduling_queue), wall_s)
    trial = _trial(attempts, wall_s)
    trial.residents.refresh(trial)
    return replace(snapshot, residents=trial.residents)


def _trial(attempts: Attempts, wall_s: int) -> Trial:
    facts, nominations = attempts.snapshot.preemption_facts, attempts.snapshot.commits.nominations
    return preemption_trial(
        attempts,
        wall_s=wall_s,
        taken={*nominations.victims, *nominations.nominees},
        refused=facts.refused,
        budgets=facts.budgets,
        labels=facts.labels,
        evicted=facts.evicted,
        settings=facts.settings,
    )


def _need(subject: Subject, attempts: Attempts) -> Need | None:
    if subject.group is not None:
        return gang_need((subject.namespace, subject.name), attempts)
    return pod_need(attempts.snapshot.judged(subject.waiting[0], attempts.now_ns), attempts)


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


class KnownNomination(msgspec.Struct, frozen=True, kw_only=True):
    """A nomination that concerns the group. ``gone``: of its victims those that are gone."""

    nomination: Nomination
    is_nominee: bool
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
    preemption: Found | NoVictims | None = None
    standing: tuple[KnownNomination, ...] = ()
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
    beside = (yield from trying.trying_beside(preemption=not found.placed)) if is_beside else found
    room = None
    if not found.starts:
        room = yield from preemption_answer(snapshot, subject, now_ns=trying.now_ns, wall_s=trying.wall_s)
    return Explained(
        trying=trying,
        outcome=found,
        nodes=len(snapshot.ledger.row_of),
        comes_later=found.starts and not (beside.starts and beside.is_beside_all),
        on_their_way=tuple(_on_their_way(trying)),
        queue=tuple(_queue(trying)),
        preemption=room,
        standing=tuple(_known_nominations(trying)),
        below=below_minimum(snapshot, subject.group, now_ns=trying.now_ns, wall_s=trying.wall_s),
    )


def _on_their_way(trying: Trying) -> Iterator[tuple[str, str]]:
    for pod in trying.subject.waiting:
        charges = trying.snapshot.commits.under_way(pod.uid)
        if charges:
            yield pod.name, charges[0].node


def _known_nominations(trying: Trying) -> Iterator[KnownNomination]:
    """Nominations of which pods of the group are nominated pods or victims."""
    snapshot, subject = trying.snapshot, trying.subject
    own = subject.uids | {pod.uid for pod in subject.bound}
    for nomination in snapshot.commits.nominations.all():
        is_nominee = any(place.pod_uid in own for place in nomination.places)
        if is_nominee or any(victim.pod_uid in own for victim in nomination.victims):
            gone = sum(snapshot.pod(victim.pod_uid) is None for victim in nomination.victims)
            yield KnownNomination(nomination=nomination, is_nominee=is_nominee, gone=gone)


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
