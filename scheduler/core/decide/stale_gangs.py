"""Gangs that can't be whole any more: what is left of them goes after a grace time (the last phase of a decision; S4).

A gang starts whole, but a member may be deleted on its way, refused by kubelet, or lost with its node. Then the rest
holds devices for nothing. If the gang is not whole again within the grace time (as in KAI), and could not be
completed now by members that wait, the rest is released. Whether it could is a decision that changes nothing, on a
working copy of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from scheduler.core.decide.attempts import Attempts, least_use
from scheduler.core.decide.gang_search import Search, Tried
from scheduler.core.decide.placer import Placer
from scheduler.core.decide.snapshot import Snapshot, obstacle
from scheduler.core.model.plan import Entry, Evict, Nominate, placements
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.preemption import Victim
from scheduler.core.model.priority_order import order_members
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.stale import Stale, StaleFacts, StaleMemo
from scheduler.core.preemption.need import owner_of
from scheduler.core.queues.accounts import Accounts
from scheduler.core.scheduling_queue.verdicts import Key
from wire.units import SECOND_NS


def candidates(snapshot: Snapshot, group: PodGroupRecord, now_ns: int) -> list[PodRecord]:
    """Members that wait for nothing but room, in their order."""
    waiting = snapshot.waiting_members(group.namespace, group.name, now_ns)
    return order_members(pod for pod in waiting if not pod.gated and obstacle(snapshot, pod, now_ns)[0] is None)


def can_complete(snapshot: Snapshot, group: PodGroupRecord, waiting: list[PodRecord], now_ns: int) -> bool:
    """Whether these members reach the gang's minimum with the room that there is, or that idle reservations hold."""
    state = snapshot.quorum(group)
    if group.blocker is not None or not waiting or not state.is_reachable(waiting):
        return False
    return Search(state, waiting, _Trying(snapshot, Placer(snapshot), snapshot.queues.accounts())).run()


@dataclass(slots=True)
class _Trying:
    """Places members on a working copy that nobody else sees."""

    snapshot: Snapshot
    placer: Placer
    accounts: Accounts
    #: Classes that fit nowhere. A decision only ever charges, so that holds until something is taken back.
    hopeless: set[PodClass] = field(default_factory=set)

    def place(self, pod: PodRecord) -> Tried:
        """Give a member a place, or one that comes free when idle reservations go."""
        is_shut = pod.cls in self.hopeless and not (pod.cls.rules is not None and pod.cls.rules.may_open)
        if is_shut or self.placer.taken_claim(pod):
            return Tried.PASSED
        use = least_use(self.snapshot, [pod])
        if self.accounts.refusal(use) is not None:
            return Tried.STOPPED
        mask = self.placer.all_but(pod.cls.excluded)
        if self.placer.place(pod, mask) or self.placer.wait_for_device(pod, mask):
            self.accounts.charge(use)
            return Tried.PLACED
        self.hopeless.add(pod.cls)
        return Tried.PASSED

    def failed(self, subgroup: str, placed: int) -> None:
        """Nothing is reported."""

    def checkpoint(self) -> tuple[int, int]:
        """A point to come back to."""
        return self.placer.statement.checkpoint(), self.accounts.checkpoint()

    def rollback(self, mark: tuple[int, int]) -> None:
        """Take back all places since ``mark``."""
        if self.checkpoint() != mark:
            self.placer.statement.rollback(mark[0])
            self.accounts.rollback(mark[1])
            self.hopeless.clear()


#: So long a gang is not released after its time because waiting members could complete it.
HELD_NS: Final = 30 * SECOND_NS
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
        memo, facts, now_ns = (
            self.attempts.snapshot.scheduling_queue.stale,
            self.attempts.snapshot.stale,
            self.attempts.now_ns,
        )
        if memo.version == facts.version and (memo.next_ns is None or now_ns < memo.next_ns):
            self.next_ns = memo.next_ns
            return
        due = [group for key, gang in facts.gangs.items() if (group := self._due(key, gang)) is not None]
        judged_ns = memo.judged_ns
        if judged_ns is not None and judged_ns <= now_ns < judged_ns + facts.interval_ns:
            if due:
                self._look_at(judged_ns + facts.interval_ns)
        elif due:
            self._judge(due)
            judged_ns = now_ns
        self.attempts.effects.stale_looked(StaleMemo(facts.version, judged_ns, self.next_ns))

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
                self._look_at(self.attempts.now_ns + facts.interval_ns)

    def _look_at(self, at_ns: int) -> None:
        self.next_ns = at_ns if self.next_ns is None else min(self.next_ns, at_ns)

    def _starting(self) -> set[Key]:
        """Gangs of which this decision places a member, or for which room is made."""
        snapshot = self.attempts.snapshot
        placed = (snapshot.pod(placement.pod_uid) for placement in placements(self.entries))
        made = (entry.nomination for entry in self.entries if isinstance(entry, Nominate))
        return {
            *((pod.namespace, pod.pod_group) for pod in placed if pod is not None and pod.pod_group),
            *((nomination.namespace, nomination.pod_group) for nomination in made if nomination.pod_group),
            *snapshot.commits.nominations.gangs,
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
