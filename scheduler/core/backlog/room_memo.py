"""What is remembered of needs for which room was looked for, so that nothing is searched twice for the same answer."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping

import msgspec

from scheduler.core.backlog.shape import ShapeKey
from scheduler.core.model.preemption import NoRoom
from scheduler.core.nodes.ledger import Capacity

#: What a need is known by: a shape, a line of gangs, or a gang.
NeedKey = Hashable
#: What answers depend on; equal stamps, equal answers, but for times.
Stamp = tuple[object, ...]


class Refused(msgspec.Struct, frozen=True):
    """A need that was refused at ``at_ns``. ``again_ns``: when time alone may change the answer; None: it does not.

    ``priority``: of the pod or gang that was refused; one that comes before it may take from others.
    """

    stamp: Stamp
    at_ns: int
    answer: NoRoom
    again_ns: int | None = None
    priority: int = 0


class Passed(msgspec.Struct, frozen=True):
    """A need that was looked at, at ``at_ns``, and lacked something else than room, or nothing."""

    stamp: Stamp
    at_ns: int


class RoomMemo(msgspec.Struct, frozen=True):
    """As of the last look, at ``looked_ns``. ``next_ns``: when there is something to look for again.

    ``passed``: needs that needed no room when they were looked at last. ``leaving``: pods (UIDs) that were to go then,
    and since when that is known. ``revised``: how often intents were, by id. ``too_large``: shapes that were refused
    and that no empty node holds, by ``capacity``: what nodes had in all. The stamp of such an answer is its version.
    """

    looked_ns: int | None = None
    stamp: Stamp = ()
    refused: Mapping[NeedKey, Refused] = {}
    passed: Mapping[NeedKey, Passed] = {}
    leaving: Mapping[str, int] = {}
    revised: Mapping[str, int] = {}
    next_ns: int | None = None
    capacity: Capacity | None = None
    too_large: frozenset[ShapeKey] = frozenset()

    def without_answers_to(self, keys: Collection[NeedKey]) -> RoomMemo:
        """The same where these needs were refused, or passed over, on another ground: they ask something else now."""
        if not keys:
            return self
        refused, passed = {**self.refused}, {**self.passed}
        refused.update({key: msgspec.structs.replace(refused[key], stamp=()) for key in keys if key in refused})
        passed.update({key: msgspec.structs.replace(passed[key], stamp=()) for key in keys if key in passed})
        return msgspec.structs.replace(self, stamp=(), refused=refused, passed=passed)


NEVER_LOOKED = RoomMemo()
