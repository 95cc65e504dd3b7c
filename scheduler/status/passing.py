"""Reasons that soon pass, as a rule: pods are told them when they have lasted for a moment.

A controller makes the pods of a gang one after the other, its PodGroup perhaps after them. If the first members were
told at once that others are missing, each would cost two writes (condition and event) for a reason that is false a
moment later.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Final

from scheduler.core.model.plan import Explain
from scheduler.core.model.verdict import Code

#: What is missing comes from a controller that is at work, as a rule.
PASSING: Final = frozenset(
    {
        Code.GANG_NOT_READY,
        Code.POD_GROUP_NOT_FOUND,
        Code.OWNER_NOT_SEEN,
        Code.NO_POD_GROUP,
        Code.NOT_GROUPED,
        Code.CLAIM_NOT_MADE,
    }
)
#: A gang to which nothing was added for so long is no longer taken to grow.
QUIET_S: Final = 1.0
#: A pod gets its condition this long after its reason was found, at the latest.
MOST_S: Final = 5.0
#: A pod for which room is being made gets it after this time: then a victim takes its time to end.
ROOM_S: Final = 10.0

_Group = tuple[str, str] | None


class Growing:
    """Since when pods (UIDs) have a passing reason, and when something was last added to their gang."""

    def __init__(self) -> None:
        #: Since when room has been made for pods.
        self._room_since: dict[str, float] = {}
        self._since: dict[str, tuple[float, _Group]] = {}
        self._added_at: dict[_Group, float] = {}
        self._members: dict[_Group, int] = {}

    def take(self, entry: Explain, now: float) -> None:
        """Take what was decided about pods at a time of the event loop's clock."""
        code = entry.verdict.code
        if code is not Code.WAITS_FOR_ROOM:
            self._forget_room(entry.pods)
        if code not in PASSING:
            self._forget_growth(entry.pods)
        if code is Code.WAITS_FOR_ROOM:
            for uid in entry.pods:
                self._room_since.setdefault(uid, now)
        elif code in PASSING:
            self._note_growth(entry, now)

    def _note_growth(self, entry: Explain, now: float) -> None:
        for uid in entry.pods:
            if uid not in self._since:
                self._since[uid] = now, entry.pod_group
                self._members[entry.pod_group] = self._members.get(entry.pod_group, 0) + 1
                self._added_at[entry.pod_group] = now

    def told_from(self, uid: str) -> float:
        """When a pod may be told its reason; one whose reason does not pass, at once."""
        if uid not in self._since:
            return self._room_since.get(uid, -math.inf) + ROOM_S
        since, group = self._since[uid]
        return min(since + MOST_S, (self._added_at[group] if group else since) + QUIET_S)

    def forget(self, uids: Collection[str]) -> None:
        """These pods have another reason now, or wait no more."""
        self._forget_room(uids)
        self._forget_growth(uids)

    def _forget_room(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self._room_since.pop(uid, None)

    def _forget_growth(self, uids: Iterable[str]) -> None:
        for uid in uids:
            if uid in self._since:
                _, group = self._since.pop(uid)
                self._members[group] -= 1
                if not self._members[group]:
                    del self._members[group], self._added_at[group]
