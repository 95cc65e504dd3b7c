"""Volumes, classes, drivers and capacities, as claims that are not bound yet look for them.

What is asked of them by class is indexed here, so that an event costs the pods that wait for that class and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from typing import Final

import numpy as np

from scheduler.core.convert.volumes import (
    CapacityRecord,
    ClaimKey,
    ClaimRecord,
    DriverRecord,
    StorageClassRecord,
    VolumeOffer,
    VolumeRecord,
    matches,
)
from scheduler.core.filters.requirements import holds, meets
from scheduler.core.filters.volume_places import VolumeAffinity, VolumeZone
from scheduler.core.model.facts import Facts, Membership
from scheduler.core.model.pod_class import Requirement, Term, VolumeNeed, VolumeRule
from scheduler.core.model.records import NodeRecord
from scheduler.core.nodes.table import Bools

_ZONE: Final = VolumeZone()
_AFFINITY: Final = VolumeAffinity()
#: The most needs that are kept.
_MOST_NEEDS: Final = 256
#: Operations in which a volume is compared with a need, and put where it is reached.
_MATCHING: Final = 5


class Offers:
    """``changed`` is called with a storage class when what may be had of it has changed."""

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
