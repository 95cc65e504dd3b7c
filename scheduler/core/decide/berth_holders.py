"""Groups that have a berth: whether each still waits for it, and what it needs now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.berth_choice import needed
from scheduler.core.decide.needed import gang_need, pod_need
from scheduler.core.model.plan import Entry, placements
from scheduler.core.model.priority_order import Candidate, Rank
from scheduler.core.model.records import PodRecord
from scheduler.core.queues.reserved_nodes import Berth
from scheduler.core.room.need import Need


@dataclass(frozen=True, slots=True)
class BerthHolders:
    """Holders of berths in one decision."""

    attempts: Attempts

    def members(self, berth: Berth) -> list[PodRecord]:
        """Pods of a holder that wait."""
        snapshot = self.attempts.snapshot
        if berth.is_gang:
            pods = snapshot.pods.members(berth.namespace, berth.name)
        else:
            pods = [pod for pod in (snapshot.pod(berth.uid),) if pod is not None]
        return [each for each in pods if self._waits(each)]

    def _waits(self, pod: PodRecord) -> bool:
        return not (pod.node or pod.deleting or pod.gated or self.attempts.snapshot.is_spoken_for(pod.uid))

    def waiting(self, berths: Iterable[Berth], entries: Iterable[Entry]) -> tuple[Berth, ...]:
        """Berths whose holders have no place yet: neither bound, on their way, placed now, nor kept by an intent.

        ``entries``: what the decision has done.
        """
        served = {placement.pod_uid for placement in placements(entries)}
        served |= self.attempts.snapshot.commits.intents.holders.keys()
        return tuple(berth for berth in berths if self._is_waiting(berth, served))

    def _is_waiting(self, berth: Berth, served: set[str]) -> bool:
        members, snapshot = self.members(berth), self.attempts.snapshot
        if not members or any(pod.uid in served for pod in members):
            return False
        if not berth.is_gang:
            return True
        group = snapshot.pod_group(berth.namespace, berth.name)
        if group is None or group.uid != berth.uid:
            return False
        state = snapshot.quorum(group)
        return not state.is_met and not state.is_starting

    def need(self, berth: Berth) -> Need | None:
        """What a holder needs; None if room is not all that it lacks."""
        attempts = self.attempts
        if berth.is_gang:
            need = gang_need((berth.namespace, berth.name), attempts)
        else:
            known = attempts.snapshot.pod(berth.uid)
            need = None if known is None else pod_need(attempts.snapshot.judged(known, attempts.now_ns), attempts)
        return need if need is not None and lacks_nodes(need, attempts) else None


def lacks_nodes(need: Need, attempts: Attempts) -> bool:
    """Whether a pod alone or a gang's minimum lacks nothing but nodes: its queue takes it."""
    if need.quorum is None:
        return need.group is None and attempts.held_back(need.pods) is None
    return need.quorum.has_choice(need.pods) or attempts.held_back(needed(need)) is None


def rank_of(need: Need) -> Rank:
    """When a need has its turn."""
    above = 0 if need.quorum is None else need.quorum.above
    return Candidate(list(need.pods), need.group, above=above).rank
