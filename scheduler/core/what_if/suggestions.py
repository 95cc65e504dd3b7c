"""Which changes would let a group start: each was tried, cheapest for who asks first, at most 8.

Two are combined only if no single one helps: fewer members that request less, a dropped constraint with a smaller
request, another constraint or more of a queue, and more of a queue with more nodes. What a waiting group's own
condition says is a hint: a few changes of families 1 to 3, searched one bounded try at a time, so that decisions pass
between two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

import msgspec

from scheduler.core.decide.allowance import Limits
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.what_if import known_ends, queue_changes
from scheduler.core.what_if.edits import Edit, Family, Subject, largest
from scheduler.core.what_if.group_changes import (
    Asking,
    Members,
    constraint_edits,
    dropped_constraints,
    fewer_members,
    most_members,
    most_requested,
    request_ranges,
    smaller_requests,
)
from scheduler.core.what_if.known_ends import KnownEnd, Wait
from scheduler.core.what_if.node_changes import MoreNodes, added_nodes, ended_groups, fewest_nodes, kinds_of_nodes
from scheduler.core.what_if.trials import Finding, Pause, Question, Trying, about, first

#: Suggestions in all.
MOST: Final = 8

#: Of these a dropped constraint with something else.
_MOST_WITH_CONSTRAINT: Final = 2

#: Finds edits of one family that help.
Finder: TypeAlias = Callable[[Trying], Finding]
#: Yields questions, takes whether the group starts then, and returns what helps.
Search: TypeAlias = Generator[Question | Pause, bool, Sequence["Suggestion"]]
#: By family, in their order: what finds edits, and how many are told.
FINDERS: Final[Mapping[Family, tuple[Finder, int]]] = {
    Family.WAIT: (known_ends.candidates, 1),
    Family.ASK_LESS: (smaller_requests, 2),
    Family.FEWER_MEMBERS: (fewer_members, 1),
    Family.WITHOUT_CONSTRAINT: (dropped_constraints, 2),
    Family.QUEUE: (queue_changes.candidates, 2),
    Family.ENDED: (ended_groups, 2),
    Family.MORE_NODES: (added_nodes, 1),
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
    if Family.WITHOUT_CONSTRAINT in wanted:
        found += yield from _constraint_and_another(trying, wanted)
    if Family.QUEUE in wanted and Family.MORE_NODES in wanted:
        found += yield from _queue_and_nodes(trying)
    return found


def _constraint_and_another(trying: Trying, wanted: Collection[Family]) -> Generator[Question, bool, list[Suggestion]]:
    """A constraint that is dropped, with the largest request that starts then, another constraint, or a queue."""
    dropped, found = constraint_edits(trying), list[Suggestion]()
    amounts = tuple(queue_changes.amounts_needed(trying)) if dropped and Family.QUEUE in wanted else ()
    for number, edit in enumerate(dropped):
        if Family.ASK_LESS in wanted:
            found += yield from _with_less(trying, edit)
        for other in (*dropped[number + 1 :], *amounts):
            if (yield about(trying, edit, other)):
                found.append(Suggestion((edit, other)))
        if len(found) >= _MOST_WITH_CONSTRAINT:
            return found[:_MOST_WITH_CONSTRAINT]
    return found


def _with_less(trying: Trying, edit: Edit) -> Generator[Question, bool, list[Suggestion]]:
    found: list[Suggestion] = []
    for what, least, now in request_ranges(trying.subject):

        def question(amount: int, what: str = what) -> Question:
            return about(trying, edit, Asking(what, amount))

        amount = yield from most_requested(least, now, question)
        if amount is not None:
            found.append(Suggestion((edit, Asking(what, amount))))
    return found


def _less_for_fewer(trying: Trying) -> Generator[Question, bool, list[Suggestion]]:
    """The most members that start with the least request, and the largest request with which they do."""
    subject, found = trying.subject, list[Suggestion]()
    if subject.group is None:
        return found
    for what, least, now in request_ranges(subject):

        def question(minimum: int, amount: int, what: str = what) -> Question:
            return about(trying, Members(minimum), Asking(what, amount))

        minimum = yield from most_members(subject, partial(_flipped, question, least))
        if minimum is None:
            continue
        amount = yield from most_requested(least, now, partial(question, minimum))
        if amount is not None:
            found.append(Suggestion((Members(minimum), Asking(what, amount))))
    return found


def _flipped(question: Callable[[int, int], Question], amount: int, minimum: int) -> Question:
    return question(minimum, amount)


def _queue_and_nodes(trying: Trying) -> Generator[Question, bool, list[Suggestion]]:
    found: list[Suggestion] = []
    for amount in tuple(queue_changes.amounts_needed(trying)):
        for like in kinds_of_nodes(trying):
            count = yield from fewest_nodes(trying, like, amount)
            if count is not None:
                found.append(Suggestion((amount, MoreNodes(count, like))))
    return found


#: Pods that wait of a group for which changes are tried.
MOST_PODS: Final = 64
#: Beside more pods that wait than that nobody is said when it starts: they would all have to be tried beside it.
_MOST_BESIDE: Final = 64
#: Ends of other pods that are tried, the first ones.
_MOST_ENDS: Final = 64
#: Changes of what the pods request that are told.
_MOST_LESS: Final = 2
#: Operations of one try (allowance.py): a few milliseconds. One that needs more counts as one that does not help.
_LIMITS: Final = Limits(most=5_000, searching=5_000, retold=0)

#: Yields an edit to try, None for the group as it is; takes whether the group starts then; returns those that help.
HintSearch: TypeAlias = Generator[Edit | None, bool, tuple[Edit, ...]]
#: Bound pods with their UIDs, by their ends.
Ends: TypeAlias = Sequence[tuple[KnownEnd, str]]


def hint_search(subject: Subject, ends: Ends, wall_s: int) -> HintSearch:
    """Search for what would help. ``ends``: known ends, the first ones first. ``wall_s``: now."""
    if not 0 < len(subject.waiting) <= MOST_PODS or (yield None):
        return ()
    found = [
        (yield from _waiting(ends[:_MOST_ENDS], wall_s)),
        *(yield from _asking_less(subject)),
        (yield from _fewer_members(subject)),
    ]
    return tuple(edit for edit in found if edit is not None)


def hint_trying(snapshot: Snapshot, subject: Subject, now_ns: int, wall_s: int) -> Trying:
    """Return what answers questions about a group of a cluster on which a decision was just made."""
    return Trying(snapshot, subject, now_ns, wall_s, limits=_LIMITS, is_settled=True, looks_ahead=False)


def hint_helps(tried: Trying, edit: Edit | None) -> bool:
    """Whether the group starts after an edit; None: as it is. Raises NotPossible, UnknownObject."""
    if edit is None:
        return tried.outcome().starts
    wall_s = None
    if isinstance(edit, Wait):
        if edit.until_s <= tried.wall_s or len(tried.snapshot.pods.unbound) > _MOST_BESIDE:
            return False
        wall_s = edit.until_s
    changes = edit.changes(tried.snapshot, tried.subject)
    return tried.helps(*changes, is_own=edit.is_own, wall_s=wall_s)


# --- one family each -------------------------------------------------------------------------------------------------
_One: TypeAlias = Generator[Edit | None, bool, Edit | None]


def _waiting(ends: Ends, wall_s: int) -> _One:
    """The first time that helps: searched backwards, so that the last one is asked about first."""
    return _largest(-len(ends), -1, lambda number: known_ends.until(ends[:-number], wall_s))


def _asking_less(subject: Subject) -> HintSearch:
    found: list[Edit] = []
    for what, least, now in request_ranges(subject):
        edit = yield from _largest(1, (now - 1) // least, _amounts(what, least))
        if edit is not None:
            found.append(edit)
        if len(found) == _MOST_LESS:
            break
    return tuple(found)


def _amounts(what: str, least: int) -> Callable[[int], Edit]:
    return lambda steps: Asking(what, steps * least)


def _fewer_members(subject: Subject) -> _One:
    group = subject.group
    if group is None:
        return None
    return (yield from _largest(max(1, group.tree.fewest), group.minimum - 1, Members))


def _largest(low: int, high: int, edit: Callable[[int], Edit]) -> _One:
    number = yield from largest(low, high, edit)
    return None if number is None else edit(number)
