"""The state for reports: why pods wait, what of the GPUs is used, and by which queue. The leader knows it.

A replica that follows decides nothing, so it neither knows why pods wait nor counts its ledger; it says nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from scheduler.core.mig_partitioning.attempts import Attempts, GpuState, How
from scheduler.core.model.preemption import Action
from scheduler.core.model.verdict import Code
from scheduler.core.queues.fair_share import use_by_number
from scheduler.core.queues.use_over_time import Ppb
from scheduler.core.report.fragmentation import Cause, Use
from scheduler.core.report.pool_use import Pool, use_of_pools
from scheduler.core.report.state import QueueState, owed_nano_gpus, queue_states
from scheduler.watch.cache import Cache

#: In the place of a reason: a place was found, and it is being bound or waits for its device.
ON_ITS_WAY: Final = "OnItsWay"
#: In the place of a reason: it has just come.
UNDECIDED: Final = "Undecided"


class QueueReport(msgspec.Struct, frozen=True, gc=False):
    """One queue. ``owed``: nano-GPU that its pods wait for and that its quota guarantees.

    ``used_ppb``: what it and all queues below it used of the cluster over time; None where that does not count.
    """

    state: QueueState
    display_name: str
    owed: int = 0
    used_ppb: Ppb | None = None


class SchedulerState:
    """Reads the cache. ``codes``: why pods wait, by UID. ``is_leading`` is set by the scheduler.

    ``attempts``: at MIG layouts; None: none are made.
    """

    def __init__(self, cache: Cache, codes: Mapping[str, Code], attempts: Attempts | None = None) -> None:
        self._attempts = attempts
        self._cache = cache
        self._codes = codes
        self.is_leading = False

    def waiting(self) -> Mapping[str, int]:
        """How many pods of ours wait, by the value of their verdict's code, ``ON_ITS_WAY`` or ``UNDECIDED``."""
        if not self.is_leading:
            return {}
        found = Counter(self._why(uid) for uid in self._cache.waiting if self._cache.waits_here(uid))
        return {code: found[code] for code in (*(code.value for code in Code), ON_ITS_WAY, UNDECIDED)}

    def _why(self, uid: str) -> str:
        if self._cache.cluster.is_in_flight(uid):
            return ON_ITS_WAY
        code = self._codes.get(uid)
        return UNDECIDED if code is None else code.value

    def pools(self) -> Mapping[Pool, Use]:
        """What is used of each pool of GPUs, and what is not, by the ledger as it is now."""
        cluster = self._cache.cluster
        return use_of_pools(cluster.refresh(), cluster.settings.pool) if self.is_leading else {}

    def unusable(self) -> Mapping[Pool, Mapping[Cause, int]]:
        """What is free of each pool of GPUs and of no use to pods that wait or are usual, in nano-GPU, by cause."""
        return self._cache.cluster.fragmentation() if self.is_leading else {}

    def nominations(self) -> Mapping[str, int]:
        """How many decisions to evict pods for others stand, by action."""
        if not self.is_leading:
            return {}
        found = Counter(nomination.action for nomination in self._cache.cluster.commits.nominations.all())
        return {action.value: found[action] for action in Action}

    def clashing_claims(self) -> int:
        """How many ResourceClaims have devices that another one has, too."""
        return len(self._cache.cluster.claims.clashing) if self.is_leading else 0

    def mig_attempts(self) -> Mapping[str, int]:
        """How many attempts at MIG layouts there were, by what became of them."""
        counts = None if self._attempts is None else self._attempts.counts
        return {} if counts is None else {how.value: counts[how] for how in How}

    def mig_gpus(self, now_s: float) -> Mapping[str, int]:
        """How many GPUs are not cut now, and why. ``now_s``: the event loop's time."""
        if self._attempts is None or not self.is_leading:
            return {}
        found = self._attempts.states(now_s)
        return {state.value: found[state] for state in GpuState}

    def queues(self) -> Sequence[QueueReport]:
        """How each queue stands, by the counts of the last decision."""
        if not self.is_leading:
            return ()
        queues = self._cache.cluster.queues
        accounts = queues.accounts()
        owed = owed_nano_gpus(accounts)
        used = use_by_number(accounts.tree, queues.used) if queues.used.is_counted else [None] * len(owed)
        found = []
        for state in queue_states(queues.records.all(), accounts, queues.sums.sums):
            shown, at = self._cache.queues.get(state.record.name), accounts.tree.find(state.record.name)
            display_name = "" if shown is None else shown.what.display_name
            of_tree = (0, None) if at is None else (owed[at.number], used[at.number])
            found.append(QueueReport(state, display_name, *of_tree))
        return found
