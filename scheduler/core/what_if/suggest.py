"""Which changes would let a group start: each was tried, cheapest for who asks first, at most 8.

Two are combined only if no single one helps: fewer members that request less, and more of a queue with more nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from scheduler.core.what_if import (
    asking_less,
    constraints,
    endings,
    known_ends,
    members,
    more_nodes,
    queue_changes,
)
from scheduler.core.what_if.edit import Edit, Family
from scheduler.core.what_if.trying import Trying

#: Suggestions in all.
MOST: Final = 8

#: Finds edits of one family that help.
Finder: TypeAlias = Callable[[Trying], Iterator[Edit]]
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
    if not trying.subject.waiting or _starts(trying):
        return ()
    found = [Suggestion((edit,)) for candidates, most in finders.values() for edit in islice(candidates(trying), most)]
    return tuple(islice(found or _combined(trying, finders.keys()), MOST))


def _starts(trying: Trying) -> bool:
    """Whether the group starts without any change, as far as that can be tried."""
    return trying.outcome().starts and (trying.rivals.are_too_many or trying.helps(is_own=False))


# --- two together ----------------------------------------------------------------------------------------------------
def _combined(trying: Trying, wanted: Collection[Family]) -> Iterator[Suggestion]:
    if Family.FEWER_MEMBERS in wanted and Family.ASK_LESS in wanted:
        yield from _less_for_fewer(trying)
    if Family.QUEUE in wanted and Family.MORE_NODES in wanted:
        yield from _queue_and_nodes(trying)


def _less_for_fewer(trying: Trying) -> Iterator[Suggestion]:
    """The most members that start with the least request, and the largest request with which they do."""
    subject = trying.subject
    if subject.group is None:
        return
    for what, least, most in asking_less.ranges(subject):

        def helps(minimum: int, amount: int, what: str = what) -> bool:
            return _help(trying, members.Members(minimum), asking_less.Asking(what, amount))

        minimum = members.most(subject, partial(_flipped, helps, least))
        amount = None if minimum is None else asking_less.most(least, most, partial(helps, minimum))
        if minimum is not None and amount is not None:
            yield Suggestion((members.Members(minimum), asking_less.Asking(what, amount)))


def _flipped(helps: Callable[[int, int], bool], amount: int, minimum: int) -> bool:
    return helps(minimum, amount)


def _queue_and_nodes(trying: Trying) -> Iterator[Suggestion]:
    for amount in queue_changes.amounts_needed(trying):
        for like in more_nodes.kinds(trying):

            def helps(count: int, like: str = like, amount: Edit = amount) -> bool:
                return _help(trying, amount, more_nodes.MoreNodes(count, like))

            count = more_nodes.fewest(helps)
            if count is not None:
                yield Suggestion((amount, more_nodes.MoreNodes(count, like)))


def _help(trying: Trying, *edits: Edit) -> bool:
    """Whether the group starts after all of these edits."""
    changes = [change for edit in edits for change in edit.changes(trying.snapshot, trying.subject)]
    return trying.helps(*changes, is_own=all(edit.is_own for edit in edits))
