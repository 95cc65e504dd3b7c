"""Which changes would let a group start: each was tried, cheapest for who asks first, at most 8.

Two are combined only if no single one helps: fewer members that request less, and more of a queue with more nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

import msgspec

from scheduler.core.what_if import (
    asking_less,
    constraints,
    endings,
    known_ends,
    members,
    more_nodes,
    node_kinds,
    queue_changes,
)
from scheduler.core.what_if.asking import Finding, Pause, Question, about, first
from scheduler.core.what_if.edit import Edit, Family
from scheduler.core.what_if.trying import Trying

#: Suggestions in all.
MOST: Final = 8

#: Finds edits of one family that help.
Finder: TypeAlias = Callable[[Trying], Finding]
#: Yields questions, takes whether the group starts then, and returns what helps.
Search: TypeAlias = Generator[Question | Pause, bool, Sequence["Suggestion"]]
#: By family, in their order: what finds edits, and how many are told.
FINDERS: Final[Mapping[Family, tuple[Finder, int]]] = {
    Family.WAIT: (known_ends.candidates, 1),
    Family.ASK_LESS: (asking_less.candidates, 2),
    Family.FEWER_MEMBERS: (members.candidates, 1),
    Family.WITHOUT_CONSTRAINT: (constraints.candidates, 2),
    Family.QUEUE: (queue_changes.candidates, 2),
    Family.ENDED: (endings.candidates, 2),
    Family.MORE_NODES: (more_nodes.candidates, 1),
}


class Suggestion(msgspec.Struct, frozen=True):
    """Edits that together let the group start: one, or two where no single one does."""

    edits: tuple[Edit, ...]


def suggestions(trying: Trying, finders: Mapping[Family, tuple[Finder, int]] = FINDERS) -> Sequence[Suggestion]:
    """Find what helps; () where nothing that was tried does, and where the group starts as it is."""
    return suggestions_within(trying, None, finders)[0]


def suggestions_within(
    trying: Trying, operations: int | None, finders: Mapping[Family, tuple[Finder, int]] = FINDERS
) -> tuple[Sequence[Suggestion], bool]:
    """Find likewise, and whether the search was carried to its end; it begins no try after this many operations."""
    found: list[Suggestion] = []
    search = searching(trying, found, finders)
    done = 0
    try:
        question = next(search)
        while operations is None or done < operations:
            answering = question.answering(trying)
            try:
                while True:
                    done += next(answering)
            except StopIteration as answered:
                question = search.send(bool(answered.value))
    except StopIteration:
        return tuple(found[:MOST]), True
    return tuple(found[:MOST]), False


def searching(
    trying: Trying,
    found: list[Suggestion] | None = None,
    finders: Mapping[Family, tuple[Finder, int]] = FINDERS,
) -> Search:
    """Search likewise, one question at a time. ``trying`` may be made to go on from another snapshot in between.

    ``found`` takes what helps family by family: so there is something where the search is not carried to its end.
    """
    found = [] if found is None else found
    if not trying.subject.waiting or (yield from _starts(trying)):
        return ()
    for candidates, most in finders.values():
        found += [Suggestion((edit,)) for edit in (yield from first(most, candidates(trying)))]
    if not found:
        found += yield from _combined(trying, finders.keys())
    return tuple(found[:MOST])


def _starts(trying: Trying) -> Generator[Question, bool, bool]:
    """Whether the group starts without any change, as far as that can be tried."""
    return trying.outcome().starts and (trying.rivals.are_too_many or (yield Question()))


# --- two together ----------------------------------------------------------------------------------------------------
def _combined(trying: Trying, wanted: Collection[Family]) -> Generator[Question, bool, list[Suggestion]]:
    found: list[Suggestion] = []
    if Family.FEWER_MEMBERS in wanted and Family.ASK_LESS in wanted:
        found += yield from _less_for_fewer(trying)
    if Family.QUEUE in wanted and Family.MORE_NODES in wanted:
        found += yield from _queue_and_nodes(trying)
    return found


def _less_for_fewer(trying: Trying) -> Generator[Question, bool, list[Suggestion]]:
    """The most members that start with the least request, and the largest request with which they do."""
    subject, found = trying.subject, list[Suggestion]()
    if subject.group is None:
        return found
    for what, least, now in asking_less.ranges(subject):

        def question(minimum: int, amount: int, what: str = what) -> Question:
            return about(trying, members.Members(minimum), asking_less.Asking(what, amount))

        minimum = yield from members.most(subject, partial(_flipped, question, least))
        if minimum is None:
            continue
        amount = yield from asking_less.most(least, now, partial(question, minimum))
        if amount is not None:
            found.append(Suggestion((members.Members(minimum), asking_less.Asking(what, amount))))
    return found


def _flipped(question: Callable[[int, int], Question], amount: int, minimum: int) -> Question:
    return question(minimum, amount)


def _queue_and_nodes(trying: Trying) -> Generator[Question, bool, list[Suggestion]]:
    found: list[Suggestion] = []
    for amount in tuple(queue_changes.amounts_needed(trying)):
        for like in node_kinds.kinds(trying):

            def question(count: int, like: str = like, amount: Edit = amount) -> Question:
                return about(trying, amount, more_nodes.MoreNodes(count, like))

            count = yield from more_nodes.fewest(question)
            if count is not None:
                found.append(Suggestion((amount, more_nodes.MoreNodes(count, like))))
    return found
