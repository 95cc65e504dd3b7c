"""How far a gang is from its minimum: what is bound, what is under way, what is missing. Counting only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.verdict import Code, Verdict

_NONE: Final[Mapping[str, int]] = {}


@dataclass(slots=True)
class Missing:
    """Members that are still to be placed: in all, and at least so many of each subgroup."""

    total: int
    of_subgroup: dict[str, int]
    #: Sum of ``of_subgroup``: a PodGroup may name thousands, and this is asked for each member.
    _of_subgroups: int = field(init=False)

    def __post_init__(self) -> None:
        self._of_subgroups = sum(self.of_subgroup.values())

    @property
    def is_reached(self) -> bool:
        """Whether the minimum is reached."""
        return self.total <= 0

    def wants(self, pod: PodRecord) -> bool:
        """Whether placing this pod brings the minimum nearer."""
        return self.of_subgroup.get(pod.subgroup, 0) > 0 or self.total > self._of_subgroups

    def take(self, pod: PodRecord) -> None:
        """Count a member that was placed."""
        self.total -= 1
        if self.of_subgroup.get(pod.subgroup, 0) > 0:
            self.of_subgroup[pod.subgroup] -= 1
            self._of_subgroups -= 1


@dataclass(slots=True)
class Quorum:
    """A gang's state. ``is_starting``: some members are under way, so nobody else is placed until they are shown.

    ``done``: members that have succeeded. ``is_below``: fewer are bound or done than the minimum. ``active``: members
    by subgroup that are bound; of a gang that has its minimum, those on their way besides.
    """

    minimum: int
    bound: int
    done: int
    total: int
    of_subgroup: dict[str, int]
    is_below: bool
    is_starting: bool
    active: Mapping[str, int]

    @property
    def is_met(self) -> bool:
        """Whether the minimum is bound, so that further members may come one at a time."""
        return self.total <= 0

    @property
    def above(self) -> int:
        """0 below the minimum, 1 at it, 2 above it."""
        return 0 if self.is_below else 1 + (sum(self.active.values()) + self.done > self.minimum)

    @property
    def is_broken(self) -> bool:
        """Whether some run, and too few."""
        return self.bound > 0 and self.is_below

    def missing(self) -> Missing:
        """What is missing, to be counted down."""
        return Missing(self.total, dict(self.of_subgroup))

    def is_reachable(self, ready: Iterable[PodRecord]) -> bool:
        """Whether these pods are enough."""
        missing = self.missing()
        for pod in ready:
            if missing.wants(pod):
                missing.take(pod)
        return missing.is_reached

    def needed(self, ready: Iterable[PodRecord]) -> list[PodRecord]:
        """The first of these pods that are enough, in their order; all that help, if they are not enough."""
        missing, needed = self.missing(), list[PodRecord]()
        for pod in ready:
            if missing.is_reached:
                break
            if missing.wants(pod):
                missing.take(pod)
                needed.append(pod)
        return needed

    def not_ready(self, waiting: Iterable[PodRecord], ready: Iterable[PodRecord]) -> Verdict:
        """The verdict while members are not there yet."""
        return Verdict(
            code=Code.GANG_NOT_READY,
            required=self.minimum,
            present=self.bound + self.done + sum(1 for _ in ready),
            gated=sum(pod.gated for pod in waiting),
        )


def quorum(
    group: PodGroupRecord,
    members: Iterable[PodRecord],
    is_in_flight: Callable[[str], bool],
    succeeded: Mapping[str, int] = _NONE,
) -> Quorum:
    """Count a gang's members. A member that is being deleted counts no more; one that is bound counts.

    ``succeeded``: how many of each subgroup have done their work (succeeded.py). They are as good as bound for members
    that could not reach the minimum by themselves; as many as it needs start together, whoever succeeded before.
    """
    members = [pod for pod in members if not pod.deleting]
    bound = Counter(pod.subgroup for pod in members if pod.node)
    living, there = Counter(pod.subgroup for pod in members), bound + Counter(succeeded)
    of_subgroup = {
        s.name: _lacking(s.minimum, there[s.name], bound=bound[s.name], living=living[s.name]) for s in group.subgroups
    }
    of_all = _lacking(group.minimum, there.total(), bound=bound.total(), living=living.total())
    underway = Counter(
        pod.subgroup for pod in members if not pod.node and (is_in_flight(pod.uid) or pod.uid in group.planned)
    )
    total = max(of_all, sum(of_subgroup.values()))
    return Quorum(
        minimum=max(group.minimum, sum(s.minimum for s in group.subgroups)),
        bound=bound.total(),
        done=sum(succeeded.values()),
        total=total,
        is_below=group.minimum > there.total() or any(s.minimum > there[s.name] for s in group.subgroups),
        of_subgroup=of_subgroup,
        is_starting=bool(underway),
        active=bound if total > 0 else bound + underway,
    )


def _lacking(minimum: int, there: int, *, bound: int, living: int) -> int:
    return max(0, minimum - there, min(minimum, living) - bound)
