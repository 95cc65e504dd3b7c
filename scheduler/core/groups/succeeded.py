"""Members of gangs that have succeeded: they count as bound, so one that is made again after them may still start.

Only a count may depend on them. Their pods hold nothing, and have no record. What counts follows from the stored pods
alone, so that a scheduler counts after a restart as it did before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Final

from scheduler.core.model.index import Membership
from scheduler.core.model.records import PodGroupRecord, PodRecord, SucceededMember
from wire import rfc3339

_NONE: Final[Mapping[str, int]] = {}
_S: Final = 1_000_000_000


class Succeeded:
    """By UID, as long as their pods are kept in the API server: a few words each."""

    __slots__ = ("_members", "_of_group")

    def __init__(self) -> None:
        self._members: dict[str, SucceededMember] = {}
        self._of_group: Membership[str] = Membership()

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def put(self, member: SucceededMember) -> bool:
        """Take a member that has succeeded; return whether that was not known."""
        is_news = self._members.get(member.uid) != member
        self._members[member.uid] = member
        self._of_group.move(member.uid, f"{member.namespace}/{member.pod_group}")
        return is_news

    def drop(self, uid: str) -> SucceededMember | None:
        """Its pod is gone; return what was known of it, None if it was no member that had succeeded."""
        self._of_group.move(uid, "")
        return self._members.pop(uid, None)

    def of(self, group: PodGroupRecord, members: Iterable[PodRecord]) -> Mapping[str, int]:
        """Count those of this gang by subgroup. ``members``: its pods that have not ended.

        A PodGroup that somebody made for one workload, and that goes with it, has no other members. One that people
        wrote may be used again while the pods of an earlier run are still there, and a run may not start in part
        because of those. So there only pods count that have the same controller as a member that is still to run, or,
        without a controller, that ended in a later second than such a member was created: both were there at one time.
        """
        found = self._of_group.at(f"{group.namespace}/{group.name}")
        if not found:
            return _NONE
        controllers, created = set(), []
        for pod in members:
            if pod.controller:
                controllers.add(pod.controller)
            else:
                created.append(pod.created)
        since_s = _seconds(min(created, default=""))
        return Counter(
            member.subgroup
            for member in map(self._members.__getitem__, found)
            if group.controller
            or member.controller in controllers
            or (not member.controller and member.ended_s > since_s)
        )


def _seconds(created: str) -> float:
    """A time as the API server writes it, always in one form and in UTC; infinite for none."""
    created_ns = rfc3339.parse_ns(created)
    return inf if created_ns is None else created_ns // _S
