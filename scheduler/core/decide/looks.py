"""When needs were looked at last, and whether another look may have another answer (docs/design/room.md).

A need that was refused is due when something has changed that its answer depends on, and a while has passed, or when
time alone may change the answer. One that needed no room is asked again in each look: what kept it is not in the stamp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from scheduler.core.backlog.room_memo import NeedKey, Passed, Refused, RoomMemo, Stamp

_MS: Final = 1_000_000
_S: Final = 1_000_000_000
#: So often it is looked for at most for a need that was refused.
AGAIN_NS: Final = 1 * _S
#: A need is looked at again so much later for each pod that its search placed.
_PAUSE_NS: Final = 5 * _MS
#: When a need was looked at that never was.
_NEVER_NS: Final = -1


@dataclass(frozen=True, slots=True)
class Looks:
    """As of before a look at ``now_ns``. ``refused`` and ``passed`` as in RoomMemo; ``stamps``: those that still hold.

    Without ``stamps`` everything is due.
    """

    now_ns: int = 0
    stamps: tuple[Stamp, ...] = ()
    refused: Mapping[NeedKey, Refused] = field(default_factory=dict)
    passed: Mapping[NeedKey, Passed] = field(default_factory=dict)

    @classmethod
    def of(cls, memo: RoomMemo, now_ns: int = 0, stamps: tuple[Stamp, ...] = ()) -> Looks:
        """Read what is remembered."""
        return cls(now_ns, stamps, memo.refused, memo.passed)

    def at_ns(self, key: NeedKey) -> int:
        """When it was looked at last; before all times if it never was."""
        refused, passed = self.refused.get(key), self.passed.get(key)
        return max(_NEVER_NS if each is None else each.at_ns for each in (refused, passed))

    def is_due(self, key: NeedKey) -> bool:
        """Whether it is to be looked at: the answer may be another one."""
        refused = self.refused.get(key)
        if refused is None or not self.stamps or refused.at_ns > self.now_ns:
            return True
        if refused.again_ns is not None and refused.again_ns <= self.now_ns:
            return True
        return self.may_differ(refused) and self.now_ns >= refused.at_ns + pause_ns(refused)

    def has_news(self, key: NeedKey) -> bool:
        """Whether it is due, and was not asked since something has changed last."""
        passed = self.passed.get(key)
        return self.is_due(key) and (passed is None or passed.stamp not in self.stamps)

    def may_differ(self, refused: Refused) -> bool:
        """Whether something that an answer depends on is another one now."""
        return refused.stamp not in self.stamps


def pause_ns(refused: Refused) -> int:
    """For how long a need that was refused is not searched for again after any change."""
    return max(AGAIN_NS, refused.answer.placed * _PAUSE_NS)
