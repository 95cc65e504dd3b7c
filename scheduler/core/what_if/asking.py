"""A search for edits that help, one question at a time: its caller may do something else between two.

A family's finder yields a ``Question`` and takes whether the group starts then, and yields an edit that was found.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TypeAlias, TypeVar

import msgspec

from scheduler.core.decide.changes import Change
from scheduler.core.model.steps import Steps, ended
from scheduler.core.what_if.edit import Edit
from scheduler.core.what_if.trying import Trying

T = TypeVar("T")


class Pause(msgspec.Struct, frozen=True):
    """Asks nothing: a finder that has looked at much lets its caller do something else. ``operations``: what it did."""

    operations: int

    def answering(self, trying: Trying) -> Steps[bool]:
        """Answer True."""
        del trying
        yield self.operations
        return True


class Question(msgspec.Struct, frozen=True):
    """Whether the group starts after these changes. ``wall_s``: at this time; None: now. ``is_own``: see Trying."""

    changes: tuple[Change, ...] = ()
    is_own: bool = False
    wall_s: int | None = None

    def answering(self, trying: Trying) -> Steps[bool]:
        """Try it in steps. Raises NotPossible and UnknownObject."""
        return trying.helping(*self.changes, is_own=self.is_own, wall_s=self.wall_s)


#: Yields questions, each answered with a bool, and edits that help, each answered with None.
Finding: TypeAlias = "Generator[Question | Pause | Edit, bool | None, None]"


def about(trying: Trying, *edits: Edit) -> Question:
    """Ask whether the group starts after all of these edits. Raises NotPossible."""
    changes = [change for edit in edits for change in edit.changes(trying.snapshot, trying.subject)]
    return Question(tuple(changes), is_own=all(edit.is_own for edit in edits))


def paused(steps: Steps[T]) -> Generator[Pause, bool | None, T]:
    """Look at much with pauses. The cluster may change in each, so ``steps`` must rest on nothing that does."""
    while True:
        try:
            operations = next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        yield Pause(operations)


def first(most: int, finding: Finding) -> Generator[Question | Pause, bool, list[Edit]]:
    """Pass questions and pauses on until ``most`` edits are found; return them."""
    found: list[Edit] = []
    answer: bool | None = None
    while len(found) < most:
        try:
            step = finding.send(answer)
        except StopIteration:
            break
        if isinstance(step, Question | Pause):
            answer = yield step
        else:
            found.append(step)
            answer = None
    return found


def answered(trying: Trying, finding: Finding) -> Iterator[Edit]:
    """Answer each question at once; yield the edits."""
    answer: bool | None = None
    while True:
        try:
            step = finding.send(answer)
        except StopIteration:
            return
        if isinstance(step, Question | Pause):
            answer = ended(step.answering(trying))
        else:
            answer = None
            yield step
