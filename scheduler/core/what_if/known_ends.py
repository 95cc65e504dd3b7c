"""Family 1: when the group starts at the latest, by ends that are known: of pods, of what protects them.

Nothing is estimated from averages. A pod ends at the latest when its kubelet ends it (``activeDeadlineSeconds``), or
when its own annotation says (``moorage.dev/max-runtime``). The answer is a bound, with what it assumes: that these pods
end by then, that nothing else changes, and that nobody comes who goes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from scheduler.core.decide.changes import Change, WithoutPods
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.records import PodRecord
from scheduler.core.model.steps import Steps
from scheduler.core.what_if.edits import Family, Subject, smallest
from scheduler.core.what_if.trials import Finding, Question, Trying, paused

#: Whose end is named.
_NAMED: Final = 3
#: Pods that are read in one step, and what one costs, in operations.
_AT_ONCE: Final = 512
_READING: Final = 2


class KnownEnd(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that ends at the latest at this time. ``by``: ``deadline`` or ``max-runtime``."""

    namespace: str
    name: str
    at_s: int
    by: str


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """The group waits until this time (wall clock). ``ends``: pods that end until then, the last ones first.

    ``uids``: of all of them. Without any it is a protection or delay that is over then.
    """

    until_s: int
    uids: tuple[str, ...] = ()
    ends: tuple[KnownEnd, ...] = ()

    @property
    def family(self) -> Family:
        """Family 1."""
        return Family.WAIT

    @property
    def is_own(self) -> bool:
        """Others may take what comes free."""
        return False

    def spelled(self) -> str:
        """Return "": nobody has to write that time passes."""
        return ""

    def changes(self, snapshot: Snapshot, subject: Subject) -> tuple[Change, ...]:
        """Drop the pods that have ended."""
        del snapshot, subject
        return (WithoutPods(self.uids),) if self.uids else ()


def candidates(trying: Trying) -> Finding:
    """Find the earliest time that helps, if one is known."""
    ends = sorted((yield from paused(_finding_ends(trying))), key=lambda pair: (pair[0].at_s, pair[1]))

    def question(count: int) -> Question:
        wait = until(ends[:count], trying.wall_s)
        return Question((WithoutPods(wait.uids),), wall_s=wait.until_s)

    count = yield from smallest(1, len(ends), question)
    if count is not None:
        yield until(ends[:count], trying.wall_s)


def until(ends: Sequence[tuple[KnownEnd, str]], wall_s: int) -> Wait:
    """Wait until all of these have ended; they come in the order of their ends. ``wall_s``: now."""
    last = tuple(end for end, _ in reversed(ends))
    return Wait(until_s=max(wall_s, last[0].at_s), uids=tuple(uid for _, uid in ends), ends=last[:_NAMED])


def _finding_ends(trying: Trying) -> Steps[list[tuple[KnownEnd, str]]]:
    """Bound pods whose end is known, with their UIDs. The pods are those of the first step."""
    own = {pod.uid for pod in trying.subject.bound}
    pods, found = [*trying.snapshot.pods.records.values()], list[tuple[KnownEnd, str]]()
    for start in range(0, len(pods), _AT_ONCE):
        found += (pair for pair in all_ends(pods[start : start + _AT_ONCE]) if pair[1] not in own)
        yield _AT_ONCE * _READING
    return found


def all_ends(pods: Iterable[PodRecord]) -> Iterator[tuple[KnownEnd, str]]:
    """Those of these pods that are bound and whose end is known, with their UIDs."""
    for pod in pods:
        if pod.node and not pod.is_reservation and (end := known_end(pod)) is not None:
            yield end, pod.uid


def known_end(pod: PodRecord) -> KnownEnd | None:
    """When a bound pod ends at the latest; None if nobody knows."""
    said = ((pod.cls.deadline_s, "deadline"), (pod.cls.max_runtime_s, "max-runtime"))
    known = [(pod.started_s + seconds, by) for seconds, by in said if seconds and pod.started_s]
    if not known:
        return None
    at_s, by = min(known)
    return KnownEnd(namespace=pod.namespace, name=pod.name, at_s=at_s, by=by)
