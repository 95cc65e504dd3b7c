"""BindRequests under way, from any scheduler: after a restart they are all that is left of a predecessor's commits.

They are objects of the API with a life of their own: kept by name, as many may name one pod. What they leave behind
when they are gone is of the pod's record of attempts (attempts.py).

One counts while it is there and its pod is not seen bound: the binder goes on with a pod that was changed, and may just
be making the reservation of one that was deleted. Its own deletion says nothing, for it is deleted after the binding
as well as after a withdrawal, and may be seen before either: so it stays charged, as departed,

- while its pod looks as if it could still be bound, until that pod is seen to change;
- when its pod is gone, until the reservations of its devices are seen, which are counted from then on, or somebody has
  looked for them and there are none (``forget``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from scheduler.core.assumed.attempts import AttemptTable
from scheduler.core.model.facts import Membership
from scheduler.core.model.records import BindRequestRecord, PodRecord
from scheduler.core.nodes.node_usage import Charge
from wire.tombstones import is_older

#: Namespace and name of a namespaced object.
Key = tuple[str, str]


class HandOvers:
    """Hand-overs by name. ``pods`` are the cluster's, read only.

    ``changed`` is called with nodes, ``touched`` with a pod that is under way now or is not any more.

    ``is_held``: whether a reservation is seen on this node for this group.
    """

    __slots__ = ("_at", "_attempts", "_by_key", "_changed", "_is_held", "_of_pod", "_pods", "_touched")

    def __init__(
        self,
        attempts: AttemptTable,
        pods: Mapping[str, PodRecord],
        *,
        is_held: Callable[[str, str], bool],
        changed: Callable[[str], None],
        touched: Callable[[str], None],
    ) -> None:
        self._attempts = attempts
        self._pods = pods
        self._is_held = is_held
        self._changed = changed
        self._touched = touched
        self._by_key: dict[Key, BindRequestRecord] = {}
        self._at: Membership[Key] = Membership()
        self._of_pod: Membership[Key] = Membership()

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
        self._touched(self._of_pod.place(key))
        self._by_key[key] = record
        self._at.move(key, record.node)
        self._of_pod.move(key, record.pod_uid)
        self._touched(record.pod_uid)
        self._changed(record.node)

    def drop(self, key: Key) -> None:
        """A hand-over is gone; what it may still lead to stays charged."""
        record = self._by_key.pop(key, None)
        if record is None:
            return
        self._at.move(key, "")
        self._of_pod.move(key, "")
        self._touched(record.pod_uid)
        self._changed(record.node)
        self.depart(record)

    def depart(self, record: BindRequestRecord) -> None:
        """Charge what nobody speaks of any more, if it may still come."""
        if self._may_come(record):
            before = self.departed_of(record.pod_uid)
            self._changed(before.node if before is not None else "")  # what departed for another node counts no more
            self._attempts.change(record.pod_uid, departed=record)
            self._touched(record.pod_uid)
            self._changed(record.node)

    def pod_changed(self, uid: str) -> None:
        """A pod was seen: its hand-overs may count differently now."""
        for key in self._of_pod.at(uid):
            self._changed(self._at.place(key))
        self._review(uid)

    def reservation_seen(self, node: str) -> None:
        """A reservation was seen on a node: what departed for it need not be charged beside it."""
        for record in tuple(self._attempts.departed_at(node)):
            self._review(record.pod_uid)

    def _review(self, uid: str) -> None:
        departed = self.departed_of(uid)
        if departed is not None and not self._may_come(departed):
            self.forget(uid)

    def forget(self, uid: str) -> None:
        """What departed for this pod has led to nothing, for sure."""
        departed = self.departed_of(uid)
        if departed is not None:
            self._attempts.change(uid, departed=None)
            self._touched(uid)
            self._changed(departed.node)

    def is_under_way(self, uid: str) -> bool:
        """Whether a hand-over of this pod may still be carried out."""
        return (self.departed_of(uid) is not None or self._of_pod.has(uid)) and not self._is_bound(uid)

    def departed(self) -> tuple[BindRequestRecord, ...]:
        """Those that are gone and may still lead to something, by pod UID."""
        return self._attempts.departed()

    def departed_of(self, uid: str) -> BindRequestRecord | None:
        """The one of this pod."""
        return self._attempts.of(uid).departed

    def charges_at(self, node: str) -> list[Charge]:
        """What is under way to a node."""
        here = [self._by_key[key] for key in self._at.at(node)]
        found = (*here, *self._attempts.departed_at(node))
        return [self._charge(record) for record in found if not self._is_bound(record.pod_uid)]

    def charges_of(self, uid: str) -> list[Charge]:
        """Where this pod is on its way to."""
        if self._is_bound(uid):
            return []
        departed = self.departed_of(uid)
        here = [self._by_key[key] for key in self._of_pod.at(uid)]
        return [self._charge(record) for record in (*here, *(() if departed is None else (departed,)))]

    def all_charges(self) -> list[Charge]:
        """What is under way anywhere, without the indexes."""
        records = (*self._by_key.values(), *self._attempts.departed())
        return [self._charge(record) for record in records if not self._is_bound(record.pod_uid)]

    def _charge(self, record: BindRequestRecord) -> Charge:
        pod = self._pods.get(record.pod_uid)
        demand = pod.cls.demand if pod else None
        return Charge(
            pod_uid=record.pod_uid,
            node=record.node,
            demand=demand,
            devices=record.devices,
            charged=record.charged,
        )

    def _is_bound(self, uid: str) -> bool:
        pod = self._pods.get(uid)
        return pod is not None and bool(pod.node)

    def _may_come(self, record: BindRequestRecord) -> bool:
        """Whether a BindRequest that is not there (any more) may still lead to a Binding, or to a reservation."""
        pod = self._pods.get(record.pod_uid)
        if pod is None:
            return not all(self._is_held(record.node, device.group) for device in record.devices)
        return not pod.node and not is_older(record.rv, pod.rv)
