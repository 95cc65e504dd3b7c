"""What is remembered of needs for which room was looked for, so that nothing is searched twice for the same answer."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping

import msgspec

from scheduler.core.backlog.shape import ShapeKey
from scheduler.core.model.room import NoRoom
from scheduler.core.nodes.capacity import Capacity

#: What a need is known by: a shape, a line of gangs, or a gang.
NeedKey = Hashable
#: What answers depend on; equal stamps, equal answers, but for times.
Stamp = tuple[object, ...]


class Refused(msgspec.Struct, frozen=True):
    """A need that was refused at ``at_ns``. ``again_ns``: when time alone may change the answer; None: it does not."""

    stamp: Stamp
    at_ns: int
    answer: NoRoom
    again_ns: int | None = None


class RoomMemo(msgspec.Struct, frozen=True):
    """As of the last look, at ``looked_ns``. ``next_ns``: when there is something to look for again.

    ``leaving``: pods (UIDs) that were to go then, and since when that is known. ``revised``: how often intents were, by
    id. ``too_large``: shapes that were refused and that no empty node holds, by ``capacity``: what nodes had in all.
    The stamp of such an answer is its version.
    """

    looked_ns: int | None = None
    stamp: Stamp = ()
    refused: Mapping[NeedKey, Refused] = {}
    leaving: Mapping[str, int] = {}
    revised: Mapping[str, int] = {}
    next_ns: int | None = None
    capacity: Capacity | None = None
    too_large: frozenset[ShapeKey] = frozenset()

    def without_answers_to(self, keys: Collection[NeedKey]) -> RoomMemo:
        """The same where these needs were refused on another ground: they ask something else now."""
        if not keys:
            return self
        old = {key: msgspec.structs.replace(self.refused[key], stamp=()) for key in keys if key in self.refused}
        return msgspec.structs.replace(self, stamp=(), refused={**self.refused, **old})


NEVER_LOOKED = RoomMemo()
