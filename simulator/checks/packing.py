"""Whether enough members of a gang fit, whichever of them is tried first and wherever it is put.

Who places greedily may spoil the room of a later member by an early choice, and nobody is promised that it doesn't. So
a gang fits here only if no order, and no choice of nodes and devices, leaves it without its minimum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from simulator.checks import counting
from simulator.checks.room import Room, share_of
from simulator.facts import PodFacts
from wire import names

#: The most situations that are looked at; a gang that needs more is not judged.
_MOST: Final = 2000

Counts = tuple[int, ...]
"""How many members of each form are still to be placed."""


def is_uniform(members: Sequence[PodFacts]) -> bool:
    """Whether all ask the same, of one device each: then no order and no place is better than another."""
    share = share_of(members[0]) if members else None
    return len({_form(pod) for pod in members}) <= 1 and (share is None or share.devices == 1)


def fits_greedily(members: Sequence[PodFacts], number: int, free: Sequence[Room]) -> bool:
    """Whether all fit one after the other, each in the first place that has room."""
    tried = [room.copy() for room in free]
    return len(members) >= number and all(_taken(tried, pod) for pod in members[:number])


def _taken(tried: list[Room], pod: PodFacts) -> bool:
    for i, room in enumerate(tried):
        after = room.copy()
        if after.take(pod):
            tried[i] = after
            return True
    return False


def fits_anyhow(members: Sequence[PodFacts], number: int, free: Sequence[Room]) -> bool:
    """Whether all fit in every order and at every place; False, too, where that is too much to look at."""
    forms = Counter(map(_form, members))
    examples = [next(pod for pod in members if _form(pod) == form) for form in forms]
    enough = len(members) - number
    start = tuple(forms.values()), tuple(free)
    seen = {_key(*start)}
    open_ = [start] if enough >= 0 else []
    while open_ and len(seen) <= _MOST:
        counts, rooms = open_.pop()
        if sum(counts) == enough:
            continue
        further = {_key(*after): after for after in _further(examples, counts, rooms)}
        if not further:
            return False
        open_ += [after for key, after in further.items() if key not in seen]
        seen |= further.keys()
    return enough >= 0 and not open_


def _further(
    examples: Sequence[PodFacts], counts: Counts, rooms: tuple[Room, ...]
) -> Iterator[tuple[Counts, tuple[Room, ...]]]:
    """Yield every situation after one more member was placed."""
    for form, pod in enumerate(examples):
        if not counts[form]:
            continue
        left = (*counts[:form], counts[form] - 1, *counts[form + 1 :])
        for at, room in enumerate(rooms):
            for after in room.ways(pod):
                yield left, (*rooms[:at], after, *rooms[at + 1 :])


def _key(counts: Counts, rooms: tuple[Room, ...]) -> object:
    """The same for situations in which the same fits."""
    return counts, tuple(sorted(room.key for room in rooms))


def _form(pod: PodFacts) -> tuple[object, ...]:
    amounts = [counting.demand(pod, name, per=counting.MILLI) for name in ("cpu", "memory", names.GPU_RESOURCE)]
    return (share_of(pod), *amounts)
