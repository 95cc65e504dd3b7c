"""BindRequests under way, whoever made them: after a restart they are all that is left of a predecessor's commits.

One counts while it may still be carried out: until its pod is seen bound, gone or past the version that it names. Its
own deletion says nothing, for it is deleted after the binding as well as after a withdrawal, and may be seen before
either: so it stays charged, as departed, until its pod is seen to change.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from scheduler.core.membership import Membership
from scheduler.core.occupancy import Charge
from scheduler.core.records import BindRequestRecord, Demand, PodRecord
from wire.versions import is_older

#: Namespace and name of a namespaced object.
Key = tuple[str, str]


class HandOvers:
    """Hand-overs by name. ``pods`` and ``gone`` are the cluster's, read only; ``changed`` is told of nodes."""

    __slots__ = ("_at", "_by_key", "_changed", "_departed", "_departed_at", "_gone", "_of_pod", "_pods")

    def __init__(self, pods: Mapping[str, PodRecord], gone: Container[str], changed: Callable[[str], None]) -> None:
        self._pods = pods
        self._gone = gone
        self._changed = changed
        self._by_key: dict[Key, BindRequestRecord] = {}
        self._at: Membership[Key] = Membership()
        self._of_pod: Membership[Key] = Membership()
        self._departed: dict[str, BindRequestRecord] = {}
        self._departed_at: Membership[str] = Membership()

    def names(self) -> list[Key]:
        """Names of all that are there."""
        return list(self._by_key)

    def get(self, key: Key) -> BindRequestRecord | None:
        """The hand-over of this name."""
        return self._by_key.get(key)

    def is_named(self, uid: str) -> bool:
        """Whether a hand-over of this pod is there, be it one that can be carried out or not."""
        return bool(self._of_pod.at(uid))

    def put(self, record: BindRequestRecord) -> None:
        """Take a hand-over as it is now."""
        key = (record.namespace, record.name)
        if self._by_key.get(key) == record:
            return
        self._changed(self._at.place(key))
        self._by_key[key] = record
        self._at.move(key, record.node)
        self._of_pod.move(key, record.pod_uid)
        self._changed(record.node)

    def drop(self, key: Key) -> None:
        """A hand-over is gone; it stays charged while its pod looks as if it could still be bound."""
        record = self._by_key.pop(key, None)
        if record is None:
            return
        self._at.move(key, "")
        self._of_pod.move(key, "")
        if record.pod_uid in self._pods and self._is_live(record):
            self._departed[record.pod_uid] = record
            self._departed_at.move(record.pod_uid, record.node)
        self._changed(record.node)

    def pod_changed(self, uid: str) -> None:
        """A pod was seen: its hand-overs may count otherwise now."""
        for key in self._of_pod.at(uid):
            self._changed(self._at.place(key))
        departed = self._departed.get(uid)
        if departed is not None and not self._is_live(departed):
            del self._departed[uid]
            self._departed_at.move(uid, "")
            self._changed(departed.node)

    def is_under_way(self, uid: str) -> bool:
        """Whether a hand-over of this pod may still be carried out."""
        return uid in self._departed or any(self._is_live(self._by_key[key]) for key in self._of_pod.at(uid))

    def departed(self) -> tuple[BindRequestRecord, ...]:
        """Those that vanished while their pods look unbound and unfenced, by pod UID."""
        return tuple(self._departed[uid] for uid in sorted(self._departed))

    def charges_at(self, node: str) -> list[Charge]:
        """What is under way to a node."""
        here = [self._by_key[key] for key in self._at.at(node)]
        departed = [self._departed[uid] for uid in self._departed_at.at(node)]
        return [self._charge(record) for record in (*here, *departed) if self._is_live(record)]

    def all_charges(self) -> list[Charge]:
        """What is under way anywhere, without the indexes."""
        records = (*self._by_key.values(), *self._departed.values())
        return [self._charge(record) for record in records if self._is_live(record)]

    def _charge(self, record: BindRequestRecord) -> Charge:
        pod = self._pods.get(record.pod_uid)
        demand = pod.cls.demand if pod else Demand()
        return Charge(pod_uid=record.pod_uid, node=record.node, demand=demand, devices=record.devices)

    def _is_live(self, record: BindRequestRecord) -> bool:
        pod = self._pods.get(record.pod_uid)
        if pod is None:
            return record.pod_uid not in self._gone
        return not pod.node and not is_older(record.rv, pod.rv)
