"""The attempts of all pods: one record a pod, and who is under way to which node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from scheduler.core.assumed.attempt import NONE_YET, Flight, PodAttempts
from scheduler.core.model.index import Membership
from scheduler.core.model.records import BindRequestRecord


class AttemptTable:
    """By pod UID. A record that says nothing is none."""

    __slots__ = ("_departed", "_departed_at", "_of_pod", "_own_at")

    def __init__(self) -> None:
        self._of_pod: dict[str, PodAttempts] = {}
        self._own_at: Membership[str] = Membership()
        self._departed_at: Membership[str] = Membership()
        #: Pods with something that departed, on nodes that are known and others.
        self._departed: dict[str, None] = {}

    def of(self, uid: str) -> PodAttempts:
        """What is known of this pod's attempts."""
        return self._of_pod.get(uid, NONE_YET)

    def change(self, uid: str, **fields: Any) -> None:
        """Give these fields of a pod's record other values."""
        record = msgspec.structs.replace(self.of(uid), **fields)
        if record.is_empty:
            self._of_pod.pop(uid, None)
        else:
            self._of_pod[uid] = record
        if "own" in fields:
            self._own_at.move(uid, record.own.placement.node if record.own is not None else "")
        if "departed" in fields:
            self._departed_at.move(uid, record.departed.node if record.departed is not None else "")
            if record.departed is None:
                self._departed.pop(uid, None)
            else:
                self._departed[uid] = None

    def own(self) -> tuple[Flight, ...]:
        """All our commits, by pod UID."""
        found = (self._of_pod[uid].own for uid in sorted(self._own_at.everybody()))
        return tuple(own for own in found if own is not None)

    def own_at(self, node: str) -> Iterator[Flight]:
        """Our commits that are under way to a node."""
        found = (self._of_pod[uid].own for uid in self._own_at.at(node))
        return (own for own in found if own is not None)

    def departed(self) -> tuple[BindRequestRecord, ...]:
        """All that departed, by pod UID."""
        found = (self._of_pod[uid].departed for uid in sorted(self._departed))
        return tuple(departed for departed in found if departed is not None)

    def departed_at(self, node: str) -> Iterator[BindRequestRecord]:
        """What departed for a node."""
        found = (self._of_pod[uid].departed for uid in self._departed_at.at(node))
        return (departed for departed in found if departed is not None)
