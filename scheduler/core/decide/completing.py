"""Whether a gang that has lost members could be completed now, by members that wait (kai-contract 14.13).

A decision that changes nothing, on a working copy of its own: the gang is decided first, without what it waits for in
the real ones (its pace, a namespace's share of a decision, an idle reservation that is being given back).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler.core.decide import queue_use
from scheduler.core.decide.filing import obstacle
from scheduler.core.decide.gang_search import Search, Tried
from scheduler.core.decide.placer import Placer
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.priority_order import order_members
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.queues.accounts import Accounts


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
        use = queue_use.least(self.snapshot, [pod])
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
