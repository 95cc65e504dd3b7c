"""Who could be evicted for a group, and what protects the others: the search for room, asked for one group."""

from __future__ import annotations

from scheduler.core.backlog.notes import Notes
from scheduler.core.decide import costs
from scheduler.core.decide.allowance import LIMITS, Allowance
from scheduler.core.decide.as_if import filed
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.changes import OnlyThese
from scheduler.core.decide.needed import gang_need, pod_need
from scheduler.core.decide.room_trial import room_trial
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.room import Found, NoRoom
from scheduler.core.model.steps import Steps
from scheduler.core.room.need import Need
from scheduler.core.room.search import ACTIONS
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
    facts, intents = snapshot.room_facts, snapshot.commits.intents
    trial = room_trial(
        attempts,
        wall_s=wall_s,
        taken={*intents.victims, *intents.holders},
        refused=facts.refused,
        budgets=facts.budgets,
        labels=facts.labels,
        evicted=facts.evicted,
        settings=facts.settings,
    )
    yield costs.of_changing(snapshot)
    return (yield from changed.finding_room(need, trial, *ACTIONS))


def _need(subject: Subject, attempts: Attempts) -> Need | None:
    if subject.group is not None:
        return gang_need((subject.namespace, subject.name), attempts)
    return pod_need(attempts.snapshot.judged(subject.waiting[0], attempts.now_ns), attempts)
