"""Who could be evicted for a group, and what protects the others: the search for room, asked for one group."""

from __future__ import annotations

from dataclasses import replace

from scheduler.core.backlog.notes import Notes
from scheduler.core.decide import costs
from scheduler.core.decide.allowance import LIMITS, Allowance
from scheduler.core.decide.as_if import filed
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.changes import OnlyThese
from scheduler.core.decide.needed import gang_need, pod_need
from scheduler.core.decide.room_trial import room_trial
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.preemption import Found, NoRoom
from scheduler.core.model.steps import Steps
from scheduler.core.room.need import Need
from scheduler.core.room.search import ACTIONS
from scheduler.core.room.trial import Trial
from scheduler.core.what_if.subject import Subject


def room_answer(snapshot: Snapshot, subject: Subject, *, now_ns: int, wall_s: int) -> Steps[Found | NoRoom | None]:
    """Search for room by all rules; None where nobody is evicted for anybody, and where room is not what it lacks."""
    if not snapshot.settings.makes_room or not subject.waiting:
        return None
    changed = filed(snapshot, OnlyThese(subject.uids), now_ns=now_ns)
    allowance = Allowance(namespaces=1, most=LIMITS.most)
    attempts = Attempts(changed, now_ns, LIMITS, allowance, Notes(changed.backlog), wall_s)
    need = _need(subject, attempts)
    if need is None:
        return None
    yield costs.of_changing(snapshot)
    return (yield from changed.finding_room(need, _trial(attempts, wall_s), *ACTIONS))


def with_residents(snapshot: Snapshot, *, now_ns: int, wall_s: int) -> Snapshot:
    """Read who may be evicted of a snapshot that no decision was made on: else each try would read all of them."""
    if not snapshot.settings.makes_room:
        return snapshot
    changed = filed(snapshot, OnlyThese(frozenset()), now_ns=now_ns)
    allowance = Allowance(namespaces=1, most=LIMITS.most)
    attempts = Attempts(changed, now_ns, LIMITS, allowance, Notes(changed.backlog), wall_s)
    trial = _trial(attempts, wall_s)
    trial.residents.refresh(trial)
    return replace(snapshot, residents=trial.residents)


def _trial(attempts: Attempts, wall_s: int) -> Trial:
    facts, intents = attempts.snapshot.room_facts, attempts.snapshot.commits.intents
    return room_trial(
        attempts,
        wall_s=wall_s,
        taken={*intents.victims, *intents.holders},
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
