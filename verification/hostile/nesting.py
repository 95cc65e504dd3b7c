"""Gangs whose PodGroups have sub-groups, and these sub-groups of their own.

Drawn from what a gang is called and not from the scenario's own luck: so seeds mean the same with and without them.
"""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from verification.hostile.actions import Part
from wire import names

#: The part of all gangs that has sub-groups.
_SHARE: Final = 0.4


class Tree(NamedTuple):
    """Sub-groups of a gang, and the sub-group of each member by number; further members are of the last one."""

    parts: tuple[Part, ...] = ()
    least: int | None = None
    members: tuple[str, ...] = ()

    def labels(self, member: int) -> dict[str, str]:
        """What a member says of its sub-group."""
        return {names.SUBGROUP_LABEL: self.members[min(member, len(self.members) - 1)]} if self.members else {}


def draw(about: str, minimum: int) -> Tree:
    """Draw the sub-groups of a gang of which ``minimum`` members are to start together."""
    rng = random.Random(about)
    if rng.random() >= _SHARE:
        return Tree()
    return rng.choice((_leader, _either, _elastic, _deep, _contradicting))(rng, minimum)


def _leader(rng: random.Random, minimum: int) -> Tree:
    """A leader and one of two segments, or both."""
    parts = (
        Part(name="leader", pods=1),
        Part(name="workers", parts=rng.choice((None, 1, 1))),
        Part(name="s-0", parent="workers", pods=minimum - 1),
        Part(name="s-1", parent="workers", pods=1),
    )
    return Tree(parts, None, ("leader", *("s-0",) * (minimum - 1), "s-1"))


def _either(rng: random.Random, minimum: int) -> Tree:
    """One of two, and members of both."""
    parts = (Part(name="b", pods=minimum), Part(name="a", pods=rng.randrange(1, minimum + 1)))
    return Tree(parts, 1, tuple(rng.choice("aab") for _ in range(minimum + 2)))


def _elastic(rng: random.Random, minimum: int) -> Tree:
    """Segments of which the last ones need nobody."""
    parts = (
        Part(name="w", parts=rng.choice((1, 2, 2, 3))),
        Part(name="w-0", parent="w", pods=minimum - 1),
        Part(name="w-1", parent="w", pods=1),
        Part(name="w-2", parent="w", pods=0),
    )
    return Tree(parts, None, (*("w-0",) * (minimum - 1), "w-1", "w-2"))


def _deep(rng: random.Random, minimum: int) -> Tree:
    """Levels below levels, with a choice at the bottom."""
    chain = tuple(Part(name=f"l-{i}", parent=f"l-{i - 1}" if i else "") for i in range(rng.randrange(1, 5)))
    last = chain[-1].name
    chain = (*chain[:-1], Part(name=last, parent=chain[-1].parent, parts=1))
    parts = (Part(name="x", parent=last, pods=minimum), Part(name="y", parent=last, pods=minimum + 1))
    return Tree((*parts, *chain), rng.choice((None, 1)), ("x",) * minimum + ("y",))


def _contradicting(rng: random.Random, minimum: int) -> Tree:
    """What admission refuses while it answers, or what can't be satisfied."""
    parts = rng.choice((
        (Part(name="a", parent="b", pods=minimum), Part(name="b", parent="a")),
        (Part(name="a", parent="b", pods=minimum),),
        (Part(name="a", pods=minimum, parts=1),),
        (Part(name="a", pods=minimum), Part(name="b", parts=7), Part(name="c", parent="b", pods=1)),
    ))  # fmt: skip
    return Tree(parts, None, ("a",))
