"""Pods for which room has not been looked for yet: their news is held back until that look, which is near.

Room is looked for a few times a second. A pod that comes in between is found to fit nowhere first, and a moment later
others go for it. With both reasons written, each pod that is served at once would cost two writes for nothing
(scheduler/status/passing.py holds back the second one). The news of a pod that was refused room is not held back.
"""

from __future__ import annotations

from typing import Final

from scheduler.core.backlog.backlog import Backlog
from scheduler.core.backlog.room_memo import NeedKey
from scheduler.core.backlog.sayings import Key
from scheduler.core.backlog.shape import ShapeKey
from scheduler.core.model.verdict import Code

#: News is held back for so long at most, and only if the next look comes within it.
MOST_NS: Final = 1_000_000_000
#: What a search for room may change.
_FOR_ROOM: Final = frozenset({Code.NO_NODE_FITS, Code.GANG_INCOMPLETE})


class Unsearched:
    """Whose news is held back, and since when."""

    def __init__(self) -> None:
        self._since_ns: dict[str, int] = {}

    def held(self, backlog: Backlog, now_ns: int) -> frozenset[str]:
        """Pods (UIDs) that are not told their news yet. To be asked once after each decision."""
        before, self._since_ns = self._since_ns, {}
        next_ns = backlog.room.next_ns
        if next_ns is None or next_ns > now_ns + MOST_NS:
            return frozenset()
        refused = backlog.room.refused
        for uid, verdict, item in backlog.said.untold():
            since_ns = before.get(uid, now_ns)
            is_new = since_ns <= now_ns < since_ns + MOST_NS
            if is_new and verdict.code in _FOR_ROOM and _need_of(backlog, item) not in refused:
                self._since_ns[uid] = since_ns
        return frozenset(self._since_ns)


def _need_of(backlog: Backlog, item: Key | ShapeKey | None) -> NeedKey:
    """What the need of a shape or of a gang is known by."""
    if item is None or isinstance(item, ShapeKey):
        return item
    return backlog.lines.line_of(item) or item
