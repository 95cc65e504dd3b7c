"""What nodes and storage give to claims: how many volumes of a CSI driver a node takes, and volumes not bound yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from typing import Final, TypeAlias

import numpy as np

from scheduler.core.convert.volumes import (
    AttachmentRecord,
    CapacityRecord,
    ClaimKey,
    ClaimRecord,
    DriverRecord,
    LimitsRecord,
    StorageClassRecord,
    VolumeOffer,
    VolumeRecord,
    matches,
)
from scheduler.core.filters.node_affinity import holds, meets
from scheduler.core.filters.volume_places import VolumeAffinity, VolumeZone
from scheduler.core.model.facts import Facts, Membership
from scheduler.core.model.pod_class import PodClass, Requirement, Term, VolumeNeed, VolumeRule
from scheduler.core.model.records import NodeRecord, PodRecord
from scheduler.core.nodes.table import Bools, Int64s, Selection

#: A CSI driver and its handle of a volume.
Attached = tuple[str, str]
#: The driver that makes the volumes of a storage class; "" if there is none, or no node limits it.
LimitedDriver: TypeAlias = Callable[[str], str]
_NO_LIMIT: Final = 1 << 40


class Attachments:
    """Volumes that each node has, counted as kube-scheduler's NodeVolumeLimits counts them.

    A volume counts once per node, for all its pods; one whose pods are gone counts until it is detached. What a node
    has is counted again only after something about its pods, their claims, its attachments or its limits has changed. A
    claim that is not bound yet is a volume of the driver that its class provisions with; volumes of a class that
    provisions nothing are left out, as with kube-scheduler. A volume is often used on one node only, so a claim that
    was bound for a node whose limit is reached would keep its pod waiting for ever.

    ``volumes_of`` names the volumes of a pod, ``handle_of`` the one of a PersistentVolume. ``limits_changed`` and
    ``attached_changed`` are told of nodes, ``read_changed`` that a kind can be read, or not.
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


_ZONE: Final = VolumeZone()
_AFFINITY: Final = VolumeAffinity()
#: The most needs that are kept.
_MOST_NEEDS: Final = 256
#: Operations in which a volume is compared with a need, and put where it is reached.
_MATCHING: Final = 5


class Offers:
    """Volumes, classes, drivers and capacities, as claims that are not bound yet look for them.

    They are indexed by class, so an event costs the pods that wait for that class and no others. ``changed`` is called
    with a storage class when what may be had of it has changed.
    """

    def __init__(
        self,
        classes: Facts[str, StorageClassRecord],
        changed: Callable[[str], None],
        *,
        read_changed: Callable[[], None],
    ) -> None:
        self.classes = classes
        self._tell = changed
        self._view: View | None = None
        #: What finding volumes has cost so far, in operations of about a microsecond.
        self.effort_spent = 0
        #: CSI drivers, and how much can be provisioned where.
        self.drivers: Facts[str, DriverRecord] = Facts(self._driver_changed, read_changed=read_changed)
        self.capacities: Facts[tuple[str, str], CapacityRecord] = Facts(
            self._capacity_changed, read_changed=read_changed
        )
        self._capacities_at: Membership[tuple[str, str]] = Membership()
        #: Volumes that a claim may have, by class; and those that name a claim, by it.
        self._volumes_of: dict[str, dict[str, VolumeRecord]] = {}
        self._class_of: dict[str, str] = {}
        self._named: Membership[str] = Membership()
        #: Claims that are being provisioned for a node, as they say themselves.
        self._selected: dict[ClaimKey, ClaimRecord] = {}

    # --- what is seen ------------------------------------------------------------------------------------------------
    def volume_changed(self, name: str, volume: VolumeRecord | None) -> None:
        """A volume is new, different, or (None) gone."""
        before = self._class_of.pop(name, None)
        if before is not None:
            del self._volumes_of[before][name]
            if not self._volumes_of[before]:
                del self._volumes_of[before]
        now = volume.offer.storage_class if volume is not None and volume.offer is not None else None
        if volume is not None and now is not None:
            self._class_of[name] = now
            self._volumes_of.setdefault(now, {})[name] = volume
        claim = volume.claim if volume is not None and now is not None else None
        self._named.move(name, "" if claim is None else _place(claim))
        for each in {before, now} - {None}:
            self._changed(str(each))

    def claim_changed(self, key: ClaimKey, claim: ClaimRecord | None) -> None:
        """A claim is new, different, or (None) gone."""
        before = self._selected.pop(key, None)
        if claim is not None and claim.need is not None and claim.need.node:
            self._selected[key] = claim
        now = self._selected.get(key)
        for each in {record.storage_class for record in (before, now) if record is not None and before != now}:
            self._changed(each)

    def _driver_changed(self, driver: DriverRecord) -> None:
        for record in self.classes.all():
            if record.provisioner == driver.name:
                self._changed(record.name)

    def _capacity_changed(self, record: CapacityRecord) -> None:
        now, before = self.capacities.get(record.key), self._capacities_at.place(record.key)
        self._capacities_at.move(record.key, "" if now is None else now.storage_class)
        for each in {before, record.storage_class} - {""}:
            self._changed(each)

    def classes_changed(self) -> None:
        """A StorageClass has changed."""
        if self._view is not None:
            self._view.forget_classes()

    def _changed(self, storage_class: str) -> None:
        if self._view is not None:
            self._view.forget(storage_class)
        self._tell(storage_class)

    # --- what is asked -----------------------------------------------------------------------------------------------
    def named_for(self, claim: ClaimRecord) -> str:
        """The volume that names a claim, if it will do for it as to what it is; "" if there is none."""
        if claim.need is None:
            return ""
        for name in sorted(self._named.at(_place(claim.key))):
            volume = self._volumes_of[self._class_of[name]][name]
            is_its = volume.offer is not None and volume.offer.claim_uid in {"", claim.uid}
            if is_its and volume.offer is not None and matches(claim.need, volume.offer, is_for_it=True):
                return name
        return ""

    def matching(self, need: VolumeNeed) -> list[tuple[int, str, VolumeRule | None]]:
        """Size, name and rule of each volume that would do, smallest first; nodes are not looked at."""
        volumes = self._volumes_of.get(need.storage_class, {})
        self.effort_spent += 1 if need.volume else len(volumes) * _MATCHING
        if need.volume:
            named = volumes.get(need.volume)
            return [] if named is None or named.offer is None else [_row(named, named.offer)]
        found = ((each, each.offer) for each in volumes.values() if each.offer is not None)
        return sorted(
            (_row(volume, offer) for volume, offer in found if matches(need, offer, is_for_it=False)),
            key=lambda row: row[:2],
        )

    def rule_of(self, volume: str) -> VolumeRule | None:
        """On which nodes a volume can be used, None on all."""
        return self._volumes_of[self._class_of[volume]][volume].rule if volume in self._class_of else None

    def capacities_of(self, storage_class: str) -> Collection[CapacityRecord] | None:
        """How much can be provisioned where; None if that is not told, so that it is as much as is asked."""
        record = self.classes.get(storage_class)
        driver = None if record is None else self.drivers.get(record.provisioner)
        if driver is None or not driver.tells_capacity:
            return None
        found = (self.capacities.get(key) for key in self._capacities_at.at(storage_class))
        return [each for each in found if each is not None]

    def view(self, nodes: Sequence[NodeRecord], position_of: Mapping[str, int]) -> View:
        """What is offered on these nodes; kept until it is asked for others."""
        if self._view is None or self._view.nodes is not nodes:
            self._view = View(self, nodes, position_of)
        return self._view

    def selected(self) -> Iterable[tuple[ClaimKey, VolumeNeed]]:
        """Claims that are being provisioned, with what they ask."""
        return [(key, claim.need) for key, claim in self._selected.items() if claim.need is not None]


@dataclass(slots=True)
class Volumes:
    """Volumes for one need, as (size, name), smallest first: those that each node reaches, and those of some."""

    everywhere: list[tuple[int, str]] = field(default_factory=list)
    at: dict[int, list[tuple[int, str]]] = field(default_factory=dict)

    def on(self, position: int) -> Iterator[str]:
        """Names of those that a node reaches, smallest first."""
        here = self.at.get(position)
        return (name for _, name in merge(here or (), self.everywhere))


class View:
    """What is offered on some nodes, found when it is first asked for. ``forget`` it by class when that changes."""

    def __init__(self, offers: Offers, nodes: Sequence[NodeRecord], position_of: Mapping[str, int]) -> None:
        self._offers = offers
        self._of_need: dict[VolumeNeed, Volumes] = {}
        self._made: dict[str, Bools] = {}
        self.nodes = nodes
        self.index = NodeIndex(nodes, position_of)

    def forget(self, storage_class: str) -> None:
        """What is offered of a class has changed."""
        for need in [need for need in self._of_need if need.storage_class == storage_class]:
            del self._of_need[need]

    def forget_classes(self) -> None:
        """Classes have changed."""
        self._made.clear()

    def volumes(self, need: VolumeNeed) -> Volumes:
        """Volumes that will do for a need."""
        known = self._of_need.get(need)
        if known is None:
            if len(self._of_need) >= _MOST_NEEDS:
                self._of_need.clear()
            known = self._of_need[need] = Volumes()
            for size, name, rule in self._offers.matching(need):
                positions = self.index.of_rule(rule)
                if positions is None:
                    known.everywhere.append((size, name))
                for position in positions or ():
                    known.at.setdefault(position, []).append((size, name))
        return known

    def reached(self, volume: str) -> Bools:
        """Where a volume can be used, as far as it is known."""
        return self.index.mask_of(self._offers.rule_of(volume))

    def made(self, storage_class: str) -> Bools:
        """Where volumes of a class are made."""
        if storage_class not in self._made:
            self._made[storage_class] = self._allowed(storage_class)
        return self._made[storage_class]

    def _allowed(self, storage_class: str) -> Bools:
        record = self._offers.classes.get(storage_class)
        if record is None or not record.provisioner:
            return np.zeros(len(self.nodes), np.bool_)
        if record.topologies is None:
            return np.ones(len(self.nodes), np.bool_)
        ok: Bools = np.zeros(len(self.nodes), np.bool_)
        ok[self.index.of_terms(record.topologies)] = True
        return ok


class NodeIndex:
    """Nodes by the values of a label, made for a label when it is first asked for: positions in order."""

    def __init__(self, nodes: Sequence[NodeRecord], position_of: Mapping[str, int]) -> None:
        self._nodes = nodes
        self._position_of = position_of
        self._by_label: dict[str, dict[str, list[int]]] = {}
        self._of_rule: dict[VolumeRule | None, list[int] | None] = {}
        self._mask_of: dict[VolumeRule | None, Bools] = {}

    def of_rule(self, rule: VolumeRule | None) -> list[int] | None:
        """Where a volume can be used; None: everywhere."""
        if rule not in self._of_rule:
            self._of_rule[rule] = self._judge(rule)
        return self._of_rule[rule]

    def mask_of(self, rule: VolumeRule | None) -> Bools:
        """The same, by position."""
        if rule not in self._mask_of:
            positions = self.of_rule(rule)
            ok: Bools = np.zeros(len(self._nodes), np.bool_)
            ok[slice(None) if positions is None else positions] = True
            self._mask_of[rule] = ok
        return self._mask_of[rule]

    def _judge(self, rule: VolumeRule | None) -> list[int] | None:
        if rule is None:
            return None
        among = None if rule.terms is None else self._may(rule.terms)
        terms = None if rule.terms is None else (rule.terms,)
        return [
            position
            for position in (range(len(self._nodes)) if among is None else among)
            if _ZONE.admits(self._nodes[position], (rule,))
            and (terms is None or _AFFINITY.admits(self._nodes[position], terms))
        ]

    def of_terms(self, terms: Sequence[Term]) -> list[int]:
        """Where one of these terms holds."""
        among = self._may(terms)
        positions = range(len(self._nodes)) if among is None else among
        return [at for at in positions if any(holds(term, self._nodes[at]) for term in terms)]

    def of_labels(self, selector: tuple[Requirement, ...] | None) -> list[int]:
        """Where all expressions hold; None: nowhere."""
        if selector is None:
            return []
        among = self._may([Term(selector, ())]) if selector else None
        positions = range(len(self._nodes)) if among is None else among
        return [at for at in positions if all(meets(each, self._nodes[at].labels) for each in selector)]

    def _may(self, terms: Sequence[Term]) -> list[int] | None:
        """Positions of which no other can be meant, from one expression of each term; None: any may be."""
        found: set[int] = set()
        for term in terms:
            of_labels = (self._listed(each) for each in term.labels if each.operator == "In")
            of_fields = (self._named(each) for each in term.fields if each.operator == "In")
            fewest = min([*of_labels, *of_fields], key=len, default=None)
            if fewest is None:
                return None
            found.update(fewest)
        return sorted(found)

    def _listed(self, requirement: Requirement) -> list[int]:
        by_value = self._by_label.get(requirement.key)
        if by_value is None:
            by_value = self._by_label[requirement.key] = {}
            for position, node in enumerate(self._nodes):
                if requirement.key in node.labels:
                    by_value.setdefault(node.labels[requirement.key], []).append(position)
        return [position for value in dict.fromkeys(requirement.values) for position in by_value.get(value, ())]

    def _named(self, requirement: Requirement) -> list[int]:
        return [self._position_of[name] for name in dict.fromkeys(requirement.values) if name in self._position_of]


def _row(volume: VolumeRecord, offer: VolumeOffer) -> tuple[int, str, VolumeRule | None]:
    return offer.size_bytes, volume.name, volume.rule


def _place(claim: ClaimKey) -> str:
    return "/".join(claim)
