"""Family 3: the gang starts with fewer pods. The amount is the largest minimum that helps."""

from __future__ import annotations

from collections.abc import Callable, Generator

import msgspec

from scheduler.core.decide.changes import AnotherMinimum, Change
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.what_if.asking import Finding, Question, about
from scheduler.core.what_if.edit import Family, NotPossible, largest
from scheduler.core.what_if.subject import Subject
from scheduler.core.what_if.trying import Trying


class Members(msgspec.Struct, frozen=True):
    """The PodGroup's minMember is this. Minimums of its subgroups stay."""

    minimum: int

    @property
    def family(self) -> Family:
        """Family 3."""
        return Family.FEWER_MEMBERS

    @property
    def is_own(self) -> bool:
        """It concerns the group alone."""
        return True

    def spelled(self) -> str:
        """``members=6``."""
        return f"members={self.minimum}"

    def changes(self, snapshot: Snapshot, subject: Subject) -> tuple[Change, ...]:
        """Put the PodGroup. Raises NotPossible for a pod alone, and where subgroups say more."""
        del snapshot
        group = subject.group
        if group is None:
            raise NotPossible(f"members: {subject.namespace}/{subject.name} is a pod alone; allowed for a PodGroup")
        fewest = max(1, group.tree.fewest)
        if self.minimum < fewest:
            raise NotPossible(f"members={self.minimum}: allowed: {fewest} or more")
        return (AnotherMinimum(subject.namespace, subject.name, self.minimum),)


def candidates(trying: Trying) -> Finding:
    """Find the edit that helps with the largest minimum."""
    minimum = yield from most(trying.subject, lambda minimum: about(trying, Members(minimum)))
    if minimum is not None:
        yield Members(minimum)


def most(subject: Subject, question: Callable[[int], Question]) -> Generator[Question, bool, int | None]:
    """Return the largest minimum below the group's own that helps; None if none does, and for a pod alone."""
    group = subject.group
    if group is None:
        return None
    return (yield from largest(max(1, group.tree.fewest), group.minimum - 1, question))
