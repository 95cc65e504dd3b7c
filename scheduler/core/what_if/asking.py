"""A search for edits that help, one question at a time: its caller may do something else between two.

A family's finder yields a ``Question`` and takes whether the group starts then, and yields an edit that was found.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TypeAlias

import msgspec

from scheduler.core.decide.changes import Change
from scheduler.core.what_if.edit import Edit
from scheduler.core.what_if.trying import Trying


class Question(msgspec.Struct, frozen=True):
    """Whether the group starts after these changes. ``wall_s``: at this time; None: now. ``is_own``: see Trying."""

    changes: tuple[Change, ...] = ()
    is_own: bool = False
    wall_s: int | None = None

    def answer(self, trying: Trying) -> bool:
        """Try it. Raises NotPossible and UnknownObject."""
        return trying.helps(*self.changes, is_own=self.is_own, wall_s=self.wall_s)


#: Yields questions, each answered with a bool, and edits that help, each answered with None.
Finding: TypeAlias = "Generator[Question | Edit, bool | None, None]"


def about(trying: Trying, *edits: Edit) -> Question:
    """Ask whether the group starts after all of these edits. Raises NotPossible."""
    changes = [change for edit in edits for change in edit.changes(trying.snapshot, trying.subject)]
    return Question(tuple(changes), is_own=all(edit.is_own for edit in edits))


def first(most: int, finding: Finding) -> Generator[Question, bool, list[Edit]]:
    """Pass questions on until ``most`` edits are found; return them."""
    found: list[Edit] = []
    answer: bool | None = None
    while len(found) < most:
        try:
            step = finding.send(answer)
        except StopIteration:
            break
        if isinstance(step, Question):
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
        answer = step.answer(trying) if isinstance(step, Question) else None
        if not isinstance(step, Question):
            yield step
