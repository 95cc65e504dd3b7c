"""What a waiting group's own condition says would help: a few changes of families 1 to 3, searched one try at a time.

A scheduler that decides has no time for ``suggestions``. So the search is a generator of questions: who drives it lets
decisions pass between two tries, and each try is bounded. What is not tried is not said: groups of many pods, and
waiting beside many others, are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final, TypeAlias

from scheduler.core.decide.allowance import Limits
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.what_if import asking_less, known_ends, members
from scheduler.core.what_if.edit import Edit, largest
from scheduler.core.what_if.known_ends import KnownEnd, Wait
from scheduler.core.what_if.subject import Subject
from scheduler.core.what_if.trying import Trying

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
Search: TypeAlias = Generator[Edit | None, bool, tuple[Edit, ...]]
#: Bound pods with their UIDs, by their ends.
Ends: TypeAlias = Sequence[tuple[KnownEnd, str]]


def search(subject: Subject, ends: Ends, wall_s: int) -> Search:
    """Search for what would help. ``ends``: known ends, the first ones first. ``wall_s``: now."""
    if not 0 < len(subject.waiting) <= MOST_PODS or (yield None):
        return ()
    found = [
        (yield from _waiting(ends[:_MOST_ENDS], wall_s)),
        *(yield from _asking_less(subject)),
        (yield from _fewer_members(subject)),
    ]
    return tuple(edit for edit in found if edit is not None)


def trying(snapshot: Snapshot, subject: Subject, now_ns: int, wall_s: int) -> Trying:
    """Return what answers questions about a group of a cluster on which a decision was just made."""
    return Trying(snapshot, subject, now_ns, wall_s, limits=_LIMITS, is_settled=True)


def helps(tried: Trying, edit: Edit | None) -> bool:
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


def _asking_less(subject: Subject) -> Search:
    found: list[Edit] = []
    for what, least, now in asking_less.ranges(subject):
        edit = yield from _largest(1, (now - 1) // least, _amounts(what, least))
        if edit is not None:
            found.append(edit)
        if len(found) == _MOST_LESS:
            break
    return tuple(found)


def _amounts(what: str, least: int) -> Callable[[int], Edit]:
    return lambda steps: asking_less.Asking(what, steps * least)


def _fewer_members(subject: Subject) -> _One:
    group = subject.group
    if group is None:
        return None
    return (yield from _largest(max(1, group.tree.fewest), group.minimum - 1, members.Members))


def _largest(low: int, high: int, edit: Callable[[int], Edit]) -> _One:
    number = yield from largest(low, high, edit)
    return None if number is None else edit(number)
