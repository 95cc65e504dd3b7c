"""Who is decided first of one queue (queues/order.py), the same for any order of events.

Priority, highest first, then groups below their minimum, then the older, then UID.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from scheduler.core.model.records import PodGroupRecord, PodRecord

#: ``Candidate.above`` of a gang that has more than its minimum.
ABOVE: Final = 2


class Rank(NamedTuple):
    """Smaller comes first. ``above`` as in ``Candidate``; ``uid``: of the pod or the PodGroup."""

    minus_priority: int
    above: int
    created: str
    uid: str


def rank_alone(pod: PodRecord) -> Rank:
    """The rank of a pod alone."""
    return Rank(-pod.priority, 0, pod.created, pod.uid)


@dataclass(slots=True)
class Candidate:
    """What is decided as one: a pod alone, or the waiting pods of a PodGroup. ``pods`` in order of decision."""

    pods: list[PodRecord]
    pod_group: PodGroupRecord | None = None
    #: 0: its minimum is not bound yet, as of a pod alone; 1: just that is bound; ABOVE: more is (as in KAI).
    above: int = 0

    @property
    def rank(self) -> Rank:
        """A gang is as important as its most important pod, and as old as its PodGroup."""
        first = self.pods[0]
        if self.pod_group is None:
            return rank_alone(first)
        return Rank(-first.priority, self.above, self.pod_group.created, self.pod_group.uid)


def order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Candidates in the order of decision."""
    return sorted(candidates, key=lambda candidate: candidate.rank)


def order_members(pods: Iterable[PodRecord]) -> list[PodRecord]:
    """Members of one PodGroup in the order of decision: priority, KAI's task priority, age, UID."""
    return sorted(pods, key=lambda pod: (-pod.priority, -pod.task_priority, pod.created, pod.uid))
