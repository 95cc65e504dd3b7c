"""Gangs that can't be whole any more: what is left of them goes after a grace time (the last phase of a decision; S4).

A gang starts whole, but a member may be deleted on its way, refused by kubelet, or lost with its node. Then the rest
holds devices for nothing. If the gang is not whole again within the grace time (kai-contract 4.7: 60 s, or what its
PodGroup says in ``stalenessGracePeriod``, where less than nothing is for ever), its bound members are evicted, so that
their controller starts them again, together. What is whole is said by the tree of minimums (groups/quorum.py).

A member that is on its way when the time is over is waited for; that it was on its way, and failed, gives no second
time. A gang that waiting members could complete is not released yet: the next decisions place them (kai-contract
14.13). They have half a minute for it. Nor is one for which room is being made: in KAI, too, this comes after
preempting.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from scheduler.core.backlog.sayings import Key
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.completing import can_complete, candidates
from scheduler.core.model.plan import Entry, Evict, MakeRoom, placements
from scheduler.core.model.preemption import Victim
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.stale import Stale, StaleFacts, StaleMemo
from scheduler.core.room.need import owner_of

_S: Final = 1_000_000_000
#: So long a gang is not released after its time because waiting members could complete it.
HELD_NS: Final = 30 * _S
#: Waiting members that are tried in one look: some 50 microseconds each. A gang that has more of them is tried alone.
_TRIES: Final = 500


@dataclass(slots=True)
class StaleGangs:
    """One decision's. ``entries`` takes evictions, and has what was decided before."""

    attempts: Attempts
    entries: list[Entry]
    #: When there is something to judge again; None: never, as far as is known now.
    next_ns: int | None = None
    _tries: int = field(default=0, init=False)

    def run(self) -> None:
        """Release what has been below its minimum for its grace time, if it is time to look."""
        memo, facts, now_ns = self.attempts.snapshot.backlog.stale, self.attempts.snapshot.stale, self.attempts.now_ns
        if memo.version == facts.version and (memo.next_ns is None or now_ns < memo.next_ns):
            self.next_ns = memo.next_ns
            return
        due = [group for key, gang in facts.gangs.items() if (group := self._due(key, gang)) is not None]
        judged_ns = memo.judged_ns
        if judged_ns is not None and judged_ns <= now_ns < judged_ns + facts.every_ns:
            if due:
                self._look_at(judged_ns + facts.every_ns)
        elif due:
            self._judge(due)
            judged_ns = now_ns
        self.attempts.notes.stale_looked(StaleMemo(facts.version, judged_ns, self.next_ns))

    def _due(self, key: Key, gang: Stale) -> PodGroupRecord | None:
        """The PodGroup of a gang that is to be judged now."""
        snapshot = self.attempts.snapshot
        group = snapshot.pod_groups.get(key)
        at_ns = None if group is None or gang.is_going else _due_ns(group, gang, snapshot.stale)
        if at_ns is None or at_ns <= self.attempts.now_ns:
            return None if at_ns is None else group
        self._look_at(at_ns)
        return None

    def _judge(self, due: Iterable[PodGroupRecord]) -> None:
        facts, starting = self.attempts.snapshot.stale, self._starting()
        for group in due:
            key = (group.namespace, group.name)
            over_ns = facts.over_ns(facts.gangs[key], group.stale_ns)
            if key in starting or over_ns is None or not self._is_released(group, over_ns):
                self._look_at(self.attempts.now_ns + facts.every_ns)

    def _look_at(self, at_ns: int) -> None:
        self.next_ns = at_ns if self.next_ns is None else min(self.next_ns, at_ns)

    def _starting(self) -> set[Key]:
        """Gangs of which this decision places a member, or for which room is made."""
        snapshot = self.attempts.snapshot
        placed = (snapshot.pod(placement.pod_uid) for placement in placements(self.entries))
        made = (entry.intent for entry in self.entries if isinstance(entry, MakeRoom))
        return {
            *((pod.namespace, pod.pod_group) for pod in placed if pod is not None and pod.pod_group),
            *((intent.namespace, intent.pod_group) for intent in made if intent.pod_group),
            *snapshot.commits.intents.gangs,
        }

    def _is_released(self, group: PodGroupRecord, over_ns: int) -> bool:
        """Have what is left of a gang evicted, unless it is or may become whole. ``over_ns``: since when it is due."""
        snapshot, now_ns = self.attempts.snapshot, self.attempts.now_ns
        state = snapshot.quorum(group)
        if group.blocker is not None or not state.is_broken:
            return False
        members = snapshot.pods.members(group.namespace, group.name)
        if any(snapshot.commits.is_in_flight(pod.uid) for pod in members):
            return False
        if now_ns < over_ns + HELD_NS and self._may_be_completed(group):
            return False
        left = sorted((pod for pod in members if pod.node and not pod.deleting), key=lambda pod: (pod.name, pod.uid))
        self.entries.append(
            Evict(
                pod_group=(group.namespace, group.name),
                pod_group_uid=group.uid,
                pods=tuple(_victim(pod, group) for pod in left),
                minimum=state.minimum,
                short=state.short(),
            )
        )
        return True

    def _may_be_completed(self, group: PodGroupRecord) -> bool:
        """Whether waiting members could complete a gang now; also of one that is tried in the next look."""
        snapshot, now_ns = self.attempts.snapshot, self.attempts.now_ns
        waiting = candidates(snapshot, group, now_ns)
        if self._tries and self._tries + len(waiting) > _TRIES:
            return True
        self._tries += len(waiting)
        return can_complete(snapshot, group, waiting, now_ns)


def _due_ns(group: PodGroupRecord, gang: Stale, facts: StaleFacts) -> int | None:
    """When it is judged at the earliest; None: never."""
    over_ns = facts.over_ns(gang, group.stale_ns)
    return over_ns if over_ns is None or gang.again_ns is None else max(over_ns, gang.again_ns)


def _victim(pod: PodRecord, group: PodGroupRecord) -> Victim:
    return Victim(pod_uid=pod.uid, namespace=pod.namespace, name=pod.name, node=pod.node, owner=owner_of(pod, group))
