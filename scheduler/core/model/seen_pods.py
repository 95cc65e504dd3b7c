"""Pods and reservations as they were last seen, and who is on which node.

Events come late, twice, and out of order between kinds: one that is older than what is known is ignored, and so is one
of a pod that is gone, or one that shows a bound pod unbound.
"""

from __future__ import annotations

import enum
from collections.abc import Container, Iterator, Mapping
from typing import Self

import msgspec

from gpu.reservation import Reservation
from scheduler.core.model.facts import Membership, copied
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.records import PodGroupRecord, PodRecord
from scheduler.core.model.settings import NodePool
from wire.tombstones import Recent, is_older


class Elsewhere:
    """Says of each pod whether the scheduler of another node pool decides on it. ``pool`` None: there is one pool.

    Of which pool a pod is its PodGroup says, or its own label as long as no PodGroup of its name is known. A bound pod
    stays with the pool whose scheduler placed it.
    """

    def __init__(self, pool: NodePool | None, groups: Mapping[tuple[str, str], PodGroupRecord]) -> None:
        self._pool = pool
        self._groups = groups
        #: Those that are, by UID, as they were read: the label of their PodGroup may change.
        self._read: dict[str, PodRecord] = {}

    def seen(self, pod: PodRecord) -> PodRecord:
        """A pod as it counts here."""
        if self._pool is None or not pod.queue or self._is_here(pod):
            self._read.pop(pod.uid, None)
            return pod
        self._read[pod.uid] = pod
        return as_elsewhere(pod)

    def seen_again(self, pod: PodRecord) -> PodRecord:
        """The same of a pod that is known, after its PodGroup has changed."""
        return self.seen(self._read.get(pod.uid, pod))

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._read.pop(uid, None)

    def _is_here(self, pod: PodRecord) -> bool:
        if self._pool is not None and pod.charged is not None and pod.charged.pool is not None:
            return pod.charged.pool == self._pool.value
        group = self._groups.get((pod.namespace, pod.pod_group)) if pod.pod_group else None
        if group is not None:
            return not group.is_elsewhere
        return self._pool is None or self._pool.takes(pod.labels)


def as_elsewhere(pod: PodRecord) -> PodRecord:
    """A pod as it counts for the schedulers of all pools but its own.

    It counts on its node, for affinity and spread, and as a holder of volumes. It is in no queue of this scheduler, is
    not evicted by it, and what it uses of its nodes can't be divided, as with pods of any other scheduler.
    """
    return msgspec.structs.replace(pod, queue="", moves_as=None, is_foreign=True, is_elsewhere=True)


#: From this number on, what was verified of reservations that are gone is forgotten in bulk.
_FORGET_ABOVE = 1000
#: Below this many, pod classes that nobody has any more are not looked for.
_FEWEST_CLASSES = 1_024


class News(enum.Enum):
    """What an event said that was not known."""

    NOTHING = enum.auto()
    VERSION = enum.auto()
    CONTENT = enum.auto()


class Pods:
    """By UID: ``records`` of pods that have not ended, ``reservations`` until they are gone."""

    __slots__ = (
        "_bound_at",
        "_classes",
        "_members",
        "_most_classes",
        "_reserved_at",
        "_unsteady",
        "_verified",
        "gone",
        "records",
        "reservations",
        "terminating",
        "unbound",
    )

    def __init__(self) -> None:
        self.records: dict[str, PodRecord] = {}
        #: UIDs of pods that name no node, in the order of their coming, but for those that are decided on elsewhere.
        self.unbound: dict[str, None] = {}
        #: UIDs of pods that name a node and are being deleted.
        self.terminating: dict[str, None] = {}
        self.reservations: dict[str, Reservation] = {}
        #: UIDs of pods that are gone, against answers that come after the deletion was seen.
        self.gone: Recent[None] = Recent()
        #: Reservation (UID) -> device UUIDs that bound pods' grants named with it: proof that the binder verified them.
        self._verified: dict[str, set[str]] = {}
        #: Reservations (UIDs) that were seen to change their device: what grants tell of those may be of before.
        self._unsteady: set[str] = set()
        self._bound_at: Membership[str] = Membership()
        self._reserved_at: Membership[str] = Membership()
        self._members: Membership[str] = Membership()
        self._classes: dict[PodClass, PodClass] = {}
        self._most_classes = _FEWEST_CLASSES

    def copy(self) -> Self:
        """The same pods, to which pods without a node may be put, and of which pods may be dropped.

        What is known of reservations is shared: it may not be changed.
        """
        return copied(
            self,
            records=dict(self.records),
            unbound=dict(self.unbound),
            terminating=dict(self.terminating),
            _bound_at=self._bound_at.copy(),
            _members=self._members.copy(),
        )

    # --- what is known -------------------------------------------------------------------------------------------
    def known_rv(self, uid: str) -> str:
        """The newest version that was taken, "" if none was."""
        known = self.records.get(uid) or self.reservations.get(uid)
        return known.rv if known else ""

    def is_past(self, uid: str, rv: str) -> bool:
        """Whether this version of a pod tells nothing any more."""
        return uid in self.gone or is_older(rv, self.known_rv(uid))

    def beside(self, listed: Container[str]) -> list[str]:
        """UIDs of pods that are known and not listed."""
        return [uid for uid in {**self.records, **self.reservations} if uid not in listed]

    def bound_to(self, node: str) -> Iterator[PodRecord]:
        """Pods that name a node, in the order in which they were seen there."""
        return (self.records[uid] for uid in self._bound_at.at(node))

    def reserved_on(self, node: str) -> Iterator[Reservation]:
        """Reservations on a node, in the order in which they were seen there."""
        return (self.reservations[uid] for uid in self._reserved_at.at(node))

    def is_held(self, node: str, group: str) -> bool:
        """Whether a reservation is seen on a node for this group."""
        return any(held.group == group for held in self.reserved_on(node))

    def is_verified(self, reservation_uid: str, uuid: str) -> bool:
        """Whether a bound pod's grant named this reservation and device: the binder looked, and it was right.

        Never again for a reservation that changed its device, though it may have come back: others may use it since.
        """
        return uuid in self._verified.get(reservation_uid, ()) and reservation_uid not in self._unsteady

    def members(self, namespace: str, pod_group: str) -> list[PodRecord]:
        """Pods that name this PodGroup and have not ended, in the order in which they were seen."""
        return [self.records[uid] for uid in self._members.at(f"{namespace}/{pod_group}")]

    # --- what is seen --------------------------------------------------------------------------------------------
    def intern(self, cls: PodClass) -> PodClass:
        """One object per class. Those of pods long gone are dropped when their number has doubled."""
        known = self._classes.setdefault(cls, cls)
        if len(self._classes) > self._most_classes:
            self._classes = {pod.cls: pod.cls for pod in self.records.values()}
            moving = (pod.moves_as for pod in self.records.values() if pod.moves_as is not None)
            self._classes.update({cls: cls for cls in moving})
            self._classes[known] = known
            self._most_classes = max(_FEWEST_CLASSES, 2 * len(self._classes))
        return known

    def put(self, record: PodRecord) -> News:
        """Take a pod as it is now."""
        known = self.records.get(record.uid)
        if known is None:
            self.records[record.uid] = record
            self._place(record)
            return News.CONTENT
        if known.node and not record.node:
            return News.NOTHING
        # The indexes go on with the first UID as their key: a second one would be kept beside it.
        record = msgspec.structs.replace(record, uid=known.uid, name=known.name)
        self.records[record.uid] = record
        # When a node took it up frees nothing and holds nothing: it is no news.
        if msgspec.structs.replace(known, rv=record.rv, started_s=record.started_s) == record:
            return News.NOTHING if record.rv == known.rv else News.VERSION
        self._place(record)
        return News.CONTENT

    def _place(self, record: PodRecord) -> None:
        uid = record.uid
        self._bound_at.move(uid, record.node)
        self._members.move(uid, f"{record.namespace}/{record.pod_group}" if record.pod_group else "")
        if record.node and record.deleting:
            self.terminating[uid] = None
        if not record.node and not record.is_elsewhere:
            self.unbound[uid] = None
            return
        self.unbound.pop(uid, None)
        for held in record.held:
            if held.uuid:
                self._verified.setdefault(held.reservation, set()).add(held.uuid)
        if len(self._verified) > 2 * len(self.reservations) + _FORGET_ABOVE:
            self._verified = {uid: uuids for uid, uuids in self._verified.items() if uid in self.reservations}

    def put_reservation(self, found: Reservation) -> tuple[str, ...]:
        """Take a reservation as it is now; return the nodes on which it changes something."""
        if self.reservations.get(found.uid) == found:
            return ()
        known = self.reservations.get(found.uid)
        if known is not None and known.uuid and known.uuid != found.uuid:
            self._unsteady.add(found.uid)
        before = self._reserved_at.place(found.uid)
        self.reservations[found.uid] = found
        self._reserved_at.move(found.uid, found.node)
        return before, found.node

    def is_known(self, uid: str) -> bool:
        """Whether anything is known of a pod."""
        return uid in self.records or uid in self.reservations

    def drop(self, uid: str) -> PodRecord | None:
        """A pod holds nothing any more; return what was known of it."""
        record = self.records.pop(uid, None)
        if record is not None:
            self.unbound.pop(uid, None)
            self.terminating.pop(uid, None)
            self._bound_at.move(uid, "")
            self._members.move(uid, "")
        return record

    def drop_reservation(self, uid: str) -> str:
        """A reservation is gone; return its node, "" if there was none."""
        if self.reservations.pop(uid, None) is None:
            return ""
        node = self._reserved_at.place(uid)
        self._reserved_at.move(uid, "")
        self._verified.pop(uid, None)
        self._unsteady.discard(uid)
        return node

    def forget_gone(self) -> None:
        """A period is over (wire/tombstones.py)."""
        self.gone.age(lambda _, __: False)
