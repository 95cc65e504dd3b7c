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

    def drop(self, uid: str) -> bool:
        """Its pod is gone; return whether it was a member that had succeeded."""
        self._of_group.move(uid, "")
        return self._members.pop(uid, None) is not None

    def of(self, group: PodGroupRecord, members: Iterable[PodRecord]) -> Mapping[str, int]:
        """Count those of this gang by subgroup. ``members``: its pods that have not ended.

        A PodGroup that somebody made for one workload, and that goes with it, has no other members. One that people
        wrote may be used again while the pods of an earlier run are still there, and a run may not start in part
        because of those. So there only pods count that have the same controller as a member that is still to run.
        """
        found = self._of_group.at(f"{group.namespace}/{group.name}")
        if not found:
            return _NONE
        controllers = {pod.controller for pod in members if pod.controller}
        return Counter(
            member.subgroup
            for member in map(self._members.__getitem__, found)
            if group.controller or member.controller in controllers
        )
