"""How many volumes of a CSI driver a node still takes, as kube-scheduler's NodeVolumeLimits counts them.

A volume counts once per node, for all its pods; one whose pods are gone counts until it is detached. What a node has is
counted again only after something about its pods, their claims, its attachments or its limits has changed.

A claim that is not bound yet is a volume of the driver that its class provisions with; volumes of a class that
provisions nothing are left out, as there. A volume is often used on one node only, so a claim that was bound for a node
whose limit is reached would keep its pod waiting for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import numpy as np

from scheduler.core.convert.volumes import AttachmentRecord, ClaimKey, LimitsRecord
from scheduler.core.model.facts import Facts, Membership
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.records import PodRecord
from scheduler.core.nodes.table import Bools, Int64s, Selection

#: A CSI driver and its handle of a volume.
Attached = tuple[str, str]
#: The driver that makes the volumes of a storage class; "" if there is none, or no node limits it.
LimitedDriver: TypeAlias = Callable[[str], str]
_NO_LIMIT: Final = 1 << 40


class Attachments:
    """Volumes that each node has. ``volumes_of`` names those of a pod, ``handle_of`` the one of a PersistentVolume.

    ``limits_changed`` and ``attached_changed`` are told of nodes, ``read_changed`` that a kind can be read, or not.
    """

    def __init__(
        self,
        *,
        volumes_of: Callable[[PodRecord], tuple[Attached, ...]],
        handle_of: Callable[[str], Attached | None],
        limits_changed: Callable[[str], None],
        attached_changed: Callable[[str], None],
        read_changed: Callable[[], None],
    ) -> None:
        self._volumes_of = volumes_of
        self._handle_of = handle_of
        self._tell_limits = limits_changed
        self._tell_attached = attached_changed
        #: What drivers have attached.
        self.attached: Facts[str, AttachmentRecord] = Facts(self._attached_changed, read_changed=read_changed)
        #: The same by node, and by volume.
        self._attached_at: Membership[AttachmentRecord] = Membership()
        self._attached_of: Membership[AttachmentRecord] = Membership()
        #: What nodes say of their drivers.
        self.limits: Facts[str, LimitsRecord] = Facts(self._limits_changed, read_changed=read_changed)
        self._pods: dict[str, dict[str, PodRecord]] = {}
        self._stale: set[str] = set()
        self._held: dict[str, frozenset[Attached]] = {}
        self._nodes_of: dict[Attached, set[str]] = {}
        self._left: dict[str, dict[str, int]] = {}
        #: Driver -> how many nodes limit it.
        self._limited: Counter[str] = Counter()
        self._limits_of: dict[str, Mapping[str, int]] = {}

    def is_limited(self, driver: str) -> bool:
        """Whether any node limits the volumes of a driver."""
        return self._limited[driver] > 0

    def put(self, pod: PodRecord) -> None:
        """A pod that mounts claims is on a node."""
        self._pods.setdefault(pod.node, {})[pod.uid] = pod
        self._stale.add(pod.node)

    def drop(self, pod: PodRecord) -> None:
        """It is gone from there."""
        there = self._pods.get(pod.node, {})
        there.pop(pod.uid, None)
        if not there:
            self._pods.pop(pod.node, None)
        self._stale.add(pod.node)

    def count_again(self, node: str) -> None:
        """A claim or a volume of a pod there has changed."""
        self._stale.add(node)

    def _limits_changed(self, record: LimitsRecord) -> None:
        known = self.limits.get(record.node)
        most = known.most if known is not None else {}
        before = self._limits_of.get(record.node, {})
        self._limited.update(most.keys() - before.keys())
        self._limited.subtract(before.keys() - most.keys())
        self._limits_of[record.node] = most
        if not most:
            del self._limits_of[record.node]
        for driver in before:
            self._left.get(driver, {}).pop(record.node, None)
        self._stale.add(record.node)
        self._tell_limits(record.node)

    def _attached_changed(self, record: AttachmentRecord) -> None:
        is_there = record.key in self.attached
        self._attached_at.move(record, record.node if is_there else "")
        self._attached_of.move(record, record.volume if is_there else "")
        self._stale.add(record.node)
        if self.is_limited(record.driver):
            self._tell_attached(record.node)

    def volume_changed(self, volume: str) -> None:
        """A PersistentVolume is new, gone or different."""
        self._stale.update(record.node for record in self._attached_of.at(volume))

    def _attached_to(self, node: str) -> Iterator[Attached]:
        for record in self._attached_at.at(node):
            handle = self._handle_of(record.volume)
            if handle is not None and handle[0] == record.driver:
                yield handle

    def _refresh(self) -> None:
        while self._stale:
            node = self._stale.pop()
            of_pods = (key for pod in self._pods.get(node, {}).values() for key in self._volumes_of(pod))
            now = frozenset((*of_pods, *self._attached_to(node)))
            before = self._held.pop(node, frozenset())
            if now:
                self._held[node] = now
            for key in before - now:
                self._nodes_of[key].discard(node)
                if not self._nodes_of[key]:
                    del self._nodes_of[key]
            for key in now - before:
                self._nodes_of.setdefault(key, set()).add(node)
            used = Counter(driver for driver, _ in now)
            for driver, most in self._limits_of.get(node, {}).items():
                self._left.setdefault(driver, {})[node] = most - used[driver]

    def left(self, driver: str) -> Mapping[str, int]:
        """How many more volumes of a driver nodes take, of those that limit it."""
        self._refresh()
        return self._left.get(driver, {})

    def nodes_of(self, volume: Attached) -> Iterable[str]:
        """Nodes that have a volume already."""
        self._refresh()
        return self._nodes_of.get(volume, ())


class AttachStatement:
    """The same on a statement, by position. ``in_flight``: volumes of pods under way, by node, asked if needed."""

    __slots__ = ("_ask", "_asked", "_attachments", "_left", "_position_of", "_where", "limited_driver")

    def __init__(
        self,
        attachments: Attachments,
        position_of: Mapping[str, int],
        in_flight: Callable[[], Iterable[tuple[str, tuple[Attached, ...]]]],
        limited_driver: LimitedDriver,
    ) -> None:
        self._attachments = attachments
        self._position_of = position_of
        self._ask = in_flight
        #: Of the volumes of claims that are not bound yet (volume_limits.py).
        self.limited_driver = limited_driver
        self._asked: tuple[tuple[str, tuple[Attached, ...]], ...] | None = None
        self._left: dict[str, Int64s] = {}
        self._where: dict[Attached, set[int]] = {}

    def fits(self, volumes: Iterable[Attached], selection: Selection) -> Bools:
        """Where these volumes do not exceed a limit."""
        asked: dict[str, list[Attached]] = {}
        for volume in volumes:
            asked.setdefault(volume[0], []).append(volume)
        ok: Bools = np.ones(len(self._position_of), np.bool_)
        for driver, listed in asked.items():
            added = np.full(len(ok), len(listed), np.int64)
            for volume in listed:
                added[list(self._positions(volume))] -= 1
            ok &= (added == 0) | (added <= self._left_of(driver))
        return ok[selection]

    def attach(self, position: int, volumes: Iterable[Attached]) -> list[Attached]:
        """Charge volumes to a node; return those that it did not have."""
        added = [volume for volume in volumes if position not in self._positions(volume)]
        for volume in added:
            self._left_of(volume[0])[position] -= 1
            self._positions(volume).add(position)
        return added

    def detach(self, position: int, added: Iterable[Attached]) -> None:
        """Take back what ``attach`` returned."""
        for volume in added:
            self._left_of(volume[0])[position] += 1
            self._positions(volume).discard(position)

    @property
    def _in_flight(self) -> tuple[tuple[str, tuple[Attached, ...]], ...]:
        if self._asked is None:
            self._asked = tuple(self._ask())
        return self._asked

    def _positions(self, volume: Attached) -> set[int]:
        known = self._where.get(volume)
        if known is None:
            nodes = [*self._attachments.nodes_of(volume), *(node for node, v in self._in_flight if volume in v)]
            known = {self._position_of[node] for node in nodes if node in self._position_of}
            self._where[volume] = known
        return known

    def _left_of(self, driver: str) -> Int64s:
        known = self._left.get(driver)
        if known is None:
            known = self._left[driver] = np.full(len(self._position_of), _NO_LIMIT, np.int64)
            for node, left in self._attachments.left(driver).items():
                if (position := self._position_of.get(node)) is not None:
                    known[position] = left
            for node, volume in {(node, v) for node, listed in self._in_flight for v in listed if v[0] == driver}:
                position = self._position_of.get(node)
                if position is not None and node not in self._attachments.nodes_of(volume):
                    known[position] -= 1
        return known


#: Begins no handle of a volume that is there: what a driver gives is not empty.
_TO_COME: Final = "\0"


def coming_of_claim(key: ClaimKey) -> str:
    """What stands for the handle of a claim's volume until the claim is bound."""
    return f"{_TO_COME}{key[0]}/{key[1]}"


def coming_of_class(cls: PodClass, driver_of: LimitedDriver) -> tuple[Attached, ...]:
    """Volumes of a class that nodes limit: those that are there, and those that any pod of the class is to get."""
    return (*cls.attached, *_to_come(cls, driver_of))


def _to_come(cls: PodClass, driver_of: LimitedDriver) -> Iterator[Attached]:
    for number, need in enumerate(cls.unbound):
        if driver := driver_of(need.storage_class):
            yield driver, f"{_TO_COME}{number}" if need.claim is None else coming_of_claim(need.claim)


def coming_of_pod(pod: PodRecord, driver_of: LimitedDriver) -> tuple[Attached, ...]:
    """The same of one pod, each by its claim."""
    if not pod.cls.unbound:
        return pod.cls.attached
    claims = zip(pod.cls.unbound, pod.unbound_claims, strict=True)
    to_come = ((driver_of(need.storage_class), name) for need, (name, _) in claims)
    return (
        *pod.cls.attached,
        *((driver, coming_of_claim((pod.namespace, name))) for driver, name in to_come if driver),
    )
