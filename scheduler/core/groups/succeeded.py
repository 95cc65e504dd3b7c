"""Members of gangs that have succeeded: they count as bound, so one that is made again after them may still start.

Only a count may depend on them. Their pods hold nothing, and have no record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from scheduler.core.model.index import Membership
from scheduler.core.model.records import PodGroupRecord, PodRecord, SucceededMember

_NONE: Final[Mapping[str, int]] = {}


class Succeeded:
    """By UID, as long as their pods are kept in the API server: a few words each."""

    __slots__ = ("_first_seen", "_members", "_number", "_of_group", "_succeeded_at")

    def __init__(self) -> None:
        self._members: dict[str, SucceededMember] = {}
        self._of_group: Membership[str] = Membership()
        #: Grows with each pod that is seen first, or seen to succeed.
        self._number = 0
        #: Members without a controller that have not ended.
        self._first_seen: dict[str, int] = {}
        #: Those of them that were seen to succeed.
        self._succeeded_at: dict[str, int] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def note_running(self, pod: PodRecord) -> None:
        """Take a pod that has not ended."""
        if pod.pod_group and not pod.controller and pod.uid not in self._first_seen:
            self._number += 1
            self._first_seen[pod.uid] = self._number

    def forget_running(self, uid: str) -> None:
        """A pod has ended or is gone."""
        self._first_seen.pop(uid, None)

    def put(self, member: SucceededMember) -> bool:
        """Take a member that has succeeded; return whether that was not known."""
        is_news = self._members.get(member.uid) != member
        if member.uid in self._first_seen:
            self._number += 1
            self._succeeded_at[member.uid] = self._number
        self._members[member.uid] = member
        self._of_group.move(member.uid, f"{member.namespace}/{member.pod_group}")
        return is_news

    def drop(self, uid: str) -> SucceededMember | None:
        """Its pod is gone; return what was known of it, None if it was no member that had succeeded."""
        self._of_group.move(uid, "")
        self._succeeded_at.pop(uid, None)
        return self._members.pop(uid, None)

    def of(self, group: PodGroupRecord, members: Iterable[PodRecord]) -> Mapping[str, int]:
        """Count those of this gang by subgroup. ``members``: its pods that have not ended.

        A PodGroup that somebody made for one workload, and that goes with it, has no other members. One that people
        wrote may be used again while the pods of an earlier run are still there, and a run may not start in part
        because of those. So there only pods count that have the same controller as a member that is still to run, or
        that were seen to succeed beside one.
        """
        found = self._of_group.at(f"{group.namespace}/{group.name}")
        if not found:
            return _NONE
        controllers, seen = set(), []
        for pod in members:
            if pod.controller:
                controllers.add(pod.controller)
            else:
                seen.append(self._first_seen.get(pod.uid, self._number))
        since = min(seen, default=self._number)
        return Counter(
            member.subgroup
            for member in map(self._members.__getitem__, found)
            if group.controller or member.controller in controllers or self._succeeded_at.get(member.uid, 0) > since
        )
