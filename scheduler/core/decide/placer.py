"""Placing one pod at a time on a statement: the best node of its class, devices on it, the charge.

A pod that excludes devices takes no more devices that nobody uses than it would without that: an exclusion chooses
between devices, it opens none. Idle reservations are capacity for whole GPUs: only those with an empty book and nobody
on the way are given up, and devices that are leaving already count, so that a pod that waits does not cost a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Final

import msgspec
import numpy as np

from gpu.bind_request import PlannedDevice
from gpu.request import MemoryAsk, SharedAsk
from gpu.share import NANO_PER_DEVICE
from scheduler.core.assumed.attempts import Doubt
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.devices.device_fit import choose_answered, choose_devices, new_groups, without_silent
from scheduler.core.filters.registry import OK
from scheduler.core.model.devices import ClaimChoice, DeviceRefusal
from scheduler.core.model.plan import Alone, Attempt, Bind, Hold, Join, Placement, Prepare, Retire
from scheduler.core.model.pod_class import PodClass, VolumeChoice
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.nodes import volume_limits
from scheduler.core.nodes.device_sightings import NO_PROSPECT
from scheduler.core.nodes.table import CPU, GPUS, IDLE, LEAVING, MEMORY, Bools, Device
from scheduler.core.nodes.volume_statement import Refusal
from scheduler.core.queues.use import charge_of
from scheduler.core.scheduling_queue.hints import asks_others
from scheduler.core.scores.packing import BINPACK
from scheduler.core.scores.ranking import Ranking
from scheduler.core.snapshot.node_count import NodeMask, all_but
from scheduler.core.snapshot.statement import NOTHING_CHOSEN, Chosen, Part, Room, Statement


def opens_by_exclusion(statement: Statement, ranking: Ranking, position: int, parts: Sequence[Part]) -> bool:
    """Whether devices in use on any node would serve more of the shares than ``parts``, if none were excluded."""
    unused = _unused(parts, statement.table.devices[position])
    return bool(unused) and any(_least_unused(statement, ranking, other) < unused for other in ranking.in_use())


def _least_unused(statement: Statement, ranking: Ranking, position: int) -> int:
    """How many devices that nobody uses the shares would take on a node, if none were excluded."""
    devices, node = statement.table.devices[position], statement.nodes[position]
    numbers = (str(number) for number in count())
    found = choose_devices(
        ranking.asks,
        devices,
        node,
        room=statement.room(position, ranking.cls.demand, [node.resource_of(ask.profile) for ask in ranking.asks]),
        order=BINPACK,
        rule=msgspec.structs.replace(ranking.rule, not_uuids=()),
        new_group=lambda _: next(numbers),
    )
    return len(ranking.asks) if found is None else _unused(found, devices)


def _unused(parts: Sequence[Part], devices: tuple[Device, ...]) -> int:
    return sum(part.slot is None or devices[part.slot].free_nano == NANO_PER_DEVICE for part in parts)


class Sacrifice(msgspec.Struct, frozen=True, gc=False):
    """A node that holds the pod once ``devices`` are given back; ``owed`` counts them and those leaving already."""

    position: int
    devices: tuple[Device, ...]
    owed: int


def find_sacrifice(statement: Statement, ranking: Ranking, cls: PodClass, mask: NodeMask) -> Sacrifice | None:
    """The node where the fewest idle reservations have to go, then the smallest name; None if none would do."""
    need = cls.demand.gpus
    if not need or cls.request.is_shared or not ranking.known:
        return None
    ok = ranking.eligible == OK
    if volumes := volume_limits.coming_of_class(cls, statement.attaching.limited_driver):
        ok &= statement.attaching.fits(volumes, slice(None))
    if cls.unbound:
        ok &= statement.binding.fits(cls.unbound, slice(None))
    if cls.devices:
        ok &= statement.allocating.fits(cls.devices, slice(None))
    if mask is not None:
        ok &= mask
    free = statement.table.free
    for row, amount in statement.amounts(cls.demand):
        if row != GPUS:
            ok &= free[row] >= amount
    idle, leaving = statement.table.extra[IDLE], statement.table.extra[LEAVING]
    if cls.constraints.aligned is not None:
        # On which NUMA node a device comes back is not known: where some do, the pod is tried.
        fits = statement.aligning.fits(statement.table, cls.constraints.aligned, slice(None))
        ok &= fits | (idle > 0) | (leaving > 0)
    missing = need - free[GPUS]
    ok &= missing <= idle + leaving
    if not ok.any():
        return None
    position = int(np.where(ok, np.maximum(missing - leaving, 0), np.iinfo(np.int64).max).argmin())
    owed = int(missing[position])
    fresh = max(0, owed - int(leaving[position]))
    candidates = [device for device in statement.table.devices[position] if device.is_idle and device.is_gpu]
    return Sacrifice(position, tuple(candidates[:fresh]), owed)


#: Sizes of cards that are told apart.
_MOST_SIZES: Final = 7


class Placer:
    """Places pods on a statement of what a snapshot shows.

    ``doubts``: nodes that come last (assumed/attempts.py), by default those of the snapshot.
    """

    __slots__ = ("_masks", "_opening", "_rankings", "_snapshot", "_ways", "statement")

    def __init__(self, snapshot: Snapshot, *, doubts: Mapping[str, Doubt] | None = None) -> None:
        self._snapshot = snapshot
        self.statement = Statement(
            snapshot.ledger,
            snapshot.settings,
            snapshot.doubts if doubts is None else doubts,
            sightings=snapshot.sightings,
            copies=snapshot.copies,
            count=snapshot.used,
            counting=snapshot.counting,
        )
        self._rankings: dict[PodClass, Ranking] = {}
        self._ways: dict[PodClass, tuple[PodClass, ...]] = {}
        self._masks: dict[frozenset[str], NodeMask] = {}
        #: Groups whose devices attempts of this very plan will make known.
        self._opening: set[str] = set()

    def taken_claim(self, pod: PodRecord) -> Verdict | None:
        """Why pods that were placed before ``pod`` leave a claim of it with no place; None if they don't.

        One has the claim for itself, or as many as may use it at once.
        """
        taken = next((name for name in pod.alone if (pod.namespace, name) in self.statement.claims), "")
        if taken:
            return Verdict(code=Code.CLAIM_IN_USE, detail=taken)
        full = self.statement.allocating.full_claim(pod)
        return Verdict(code=Code.RESOURCE_CLAIM_IN_USE, detail=full) if full else None

    def ranking(self, cls: PodClass) -> Ranking:
        """The ranking of a class, made when it is first asked for."""
        known = self._rankings.get(cls)
        if known is None:
            known = self._rankings[cls] = Ranking(self.statement, cls, self._snapshot.settings, self._snapshot.scores)
        return known

    def ways(self, cls: PodClass) -> tuple[PodClass, ...]:
        """A class for each request of a class, best first."""
        known = self._ways.get(cls)
        if known is None:
            known = self._ways[cls] = cls.ways()
        return known

    def all_but(self, names: frozenset[str]) -> NodeMask:
        """All nodes but these."""
        if names not in self._masks:
            self._masks[names] = all_but(names, self.statement.position_of)
        return self._masks[names]

    def with_larger_cards(self, name: str) -> NodeMask:
        """All nodes whose cards have more memory than those of this node; those of unknown cards are left out."""
        nodes = self.statement.nodes
        than = nodes[self.statement.position_of[name]].smallest_card_mib
        return np.array([node.smallest_card_mib > than for node in nodes], np.bool_)

    def by_card_size(self) -> list[Bools]:
        """Nodes by the memory of their cards, those with the largest first. The last ones are all others together."""
        sizes = np.array([node.smallest_card_mib for node in self.statement.nodes], np.int64)
        told_apart = np.unique(sizes[sizes > 0])[::-1][:_MOST_SIZES]
        masks: list[Bools] = [sizes == size for size in told_apart]
        others = ~np.isin(sizes, told_apart)
        return [*masks, others] if others.any() else masks

    @property
    def has_idle(self) -> bool:
        """Whether idle reservations hold devices, or give some back."""
        extra = self.statement.table.extra
        return bool(extra[IDLE].any() or extra[LEAVING].any())

    def closed_by_rules(self, cls: PodClass) -> Bools | None:
        """Rows of the ledger that rules about other pods close for a class; None if pods were moved on paper."""
        if self.statement.counts.moved or not asks_others(cls):
            return None
        return self.statement.by_row(~self.ranking(self.ways(cls)[0]).open)

    def place(self, pod: PodRecord, mask: NodeMask = None) -> Placement | None:
        """Place and charge a pod on the best node; None if it fits nowhere."""
        placed = (self.place_as(pod, number, mask) for number in range(len(self.ways(pod.cls))))
        return next((each for each in placed if each is not None), None)

    def place_as(self, pod: PodRecord, number: int, mask: NodeMask = None) -> Placement | None:
        """The same by the request of this number."""
        cls = self.ways(pod.cls)[number]
        ranking = self.ranking(cls)
        while (position := ranking.best(mask)) is not None:
            parts = self._devices(pod, ranking, position)
            if parts is not None and ranking.has_to_open(position, sum(part.slot is None for part in parts)):
                continue
            if parts is not None and self._opens_by_exclusion(cls, position, parts):
                return None
            chosen = None if parts is None else self._chosen(pod, cls, position)
            if parts is not None and chosen is not None:
                attached = volume_limits.coming_of_pod(pod, self.statement.attaching.limited_driver)
                self.statement.place(
                    position, pod, cls.demand, parts, attached=attached, claims=_alone(pod), chosen=chosen
                )
                alternative = number // (1 + len(pod.cls.backed))
                placed = self._placement(pod, position, parts, asks=ranking.asks, alternative=alternative)
                return msgspec.structs.replace(placed, **chosen._asdict()) if any(chosen) else placed
            ranking.strike(position)
        return None

    def _chosen(self, pod: PodRecord, way: PodClass, position: int) -> Chosen | None:
        """Choose for its claims that are not bound or allocated; None if the node has nothing for one."""
        if not (way.unbound or way.devices or pod.to_reserve):
            return NOTHING_CHOSEN
        volumes = self._volumes(pod, position)
        claims = None if volumes is None else self._claims(pod, way, position)
        return None if volumes is None or claims is None else Chosen(volumes, claims)

    def _volumes(self, pod: PodRecord, position: int) -> tuple[VolumeChoice, ...] | None:
        """Choose volumes for its claims that are not bound; None if the node has none for one."""
        needs = pod.cls.unbound
        if not needs:
            return ()
        binding = self.statement.binding
        chosen = binding.choose(position, needs)
        if isinstance(chosen, Refusal):
            return None
        return tuple(
            VolumeChoice(claim=claim, claim_uid=uid, node=binding.node_of(position, need), need=need, volume=volume)
            for (claim, uid), need, volume in zip(pod.unbound_claims, needs, chosen, strict=True)
        )

    def _claims(self, pod: PodRecord, way: PodClass, position: int) -> tuple[ClaimChoice, ...] | None:
        """Choose devices for its ResourceClaims that are not allocated; None if the node has none for one."""
        if not (way.devices or pod.to_reserve):
            return ()
        chosen = self.statement.allocating.choose(position, way.devices)
        if isinstance(chosen, DeviceRefusal):
            return None
        return self.statement.allocating.choices(pod, chosen, way.backing)

    def _opens_by_exclusion(self, cls: PodClass, position: int, parts: tuple[Part, ...]) -> bool:
        """Whether devices in use would serve more of the shares if the pod excluded none (placer.py)."""
        return bool(cls.not_uuids) and opens_by_exclusion(self.statement, self.ranking(cls), position, parts)

    def wait_for_device(self, pod: PodRecord, mask: NodeMask = None) -> tuple[str, list[Retire]] | None:
        """Find a node that holds a whole-GPU pod once idle reservations are gone, and charge it there.

        Returns the node and the reservations to remove (none if enough are leaving already).
        """
        for cls in self.ways(pod.cls) if pod.cls.places else (pod.cls,):
            sacrifice = find_sacrifice(self.statement, self.ranking(cls), cls, mask)
            if sacrifice is not None:
                return self._nominate(pod, sacrifice)
        return None

    def _nominate(self, pod: PodRecord, sacrifice: Sacrifice) -> tuple[str, list[Retire]]:
        groups = frozenset(device.group for device in sacrifice.devices)
        self.statement.retire(sacrifice.position, groups)
        self.statement.place(
            sacrifice.position,
            pod,
            pod.cls.demand,
            owed_gpus=sacrifice.owed,
            attached=volume_limits.coming_of_pod(pod, self.statement.attaching.limited_driver),
            claims=_alone(pod),
        )
        retired = [Retire(d.reservation.uid, pod.uid) for d in sacrifice.devices if d.reservation is not None]
        return self.statement.nodes[sacrifice.position].name, retired

    def _devices(self, pod: PodRecord, ranking: Ranking, position: int) -> tuple[Part, ...] | None:
        asks, order, rule = ranking.asks, ranking.score, ranking.rule
        if not asks:
            return ()
        node = self.statement.nodes[position]
        devices = self.statement.table.devices[position]
        doubt = self.statement.doubts.get(position)
        if doubt is not None:
            answered = choose_answered(asks, devices, node, order=order, rule=rule)
            if answered is not None or doubt is Doubt.PROBED:
                return answered
            if doubt is Doubt.ON_PROBATION:
                devices = without_silent(devices)  # a reservation that hangs would prove nothing
        known = frozenset(device.group for device in devices)
        return choose_devices(
            asks,
            devices,
            node,
            room=self._room(pod, position, asks),
            order=order,
            rule=rule,
            prospect=self.statement.prospect(position) if rule.names_any(asks) else NO_PROSPECT,
            new_group=new_groups(node, pod.uid, self._snapshot.commits.next_number(pod.uid), known),
        )

    def _room(self, pod: PodRecord, position: int, asks: tuple[SharedAsk, ...]) -> Room:
        """How many devices could be opened for this pod: free ones, and slots and requests of their reservations."""
        free, demand, settings = self.statement.table.free, pod.cls.demand, self._snapshot.settings
        node = self.statement.nodes[position]
        room = self.statement.room(position, demand, [node.resource_of(ask.profile) for ask in asks])
        limits = [room.pods]
        if settings.reservation_cpu_milli:
            limits.append((int(free[CPU, position]) - demand.cpu_milli) // settings.reservation_cpu_milli)
        if settings.reservation_mem_mib:
            limits.append((int(free[MEMORY, position]) - demand.mem_mib) // settings.reservation_mem_mib)
        room.pods = min(limits)
        return room

    def _placement(
        self, pod: PodRecord, position: int, parts: tuple[Part, ...], *, asks: tuple[SharedAsk, ...], alternative: int
    ) -> Placement:
        group = self._snapshot.pod_group(pod.namespace, pod.pod_group) if pod.pod_group else None
        return Placement(
            pod_uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            rv=pod.rv,
            node=self.statement.nodes[position].name,
            devices=tuple(
                PlannedDevice(
                    part.group,
                    part.nano,
                    mem_mib=ask.mem_mib if isinstance(ask, MemoryAsk) else 0,
                    mode=part.mode,
                    resource=part.resource,
                    compute_percent=part.compute_percent,
                )
                for part, ask in zip(parts, asks, strict=True)
            ),
            number=self._snapshot.commits.next_number(pod.uid),
            alternative=alternative,
            charged=charge_of(pod, group, self._snapshot.settings.pool),
        )

    def entry(self, pod: PodRecord, placement: Placement) -> Bind | Join | Attempt | Prepare:
        """How the placement is carried out: at once, by joining known devices, or by the binder.

        Where its claims are not bound they are bound first, and the rest is decided then.
        """
        if placement.volumes or placement.claims:
            return Prepare((placement,))
        if not placement.devices:
            return Bind(placement)
        if self._unknown(placement):
            self.statement.probe(self.statement.position_of[placement.node])
        elif not pod.cls.by_config_map:
            return Join(placement)
        return Attempt(placement)

    def entry_alone(self, pod: PodRecord, placement: Placement) -> Alone | Prepare:
        """As ``entry``, for a pod that is not part of a start: it need not be first on a device."""
        entry = self.entry(pod, placement)
        if not isinstance(entry, Attempt):
            return entry
        unknown = self._unknown(placement)
        if not pod.cls.by_config_map and all(self._is_opening(group) for group in unknown):
            return Hold(placement)
        self._opening.update(unknown)
        return entry

    def _unknown(self, placement: Placement) -> list[str]:
        return [device.group for device in placement.devices if not self._is_known(placement.node, device.group)]

    def _is_opening(self, group: str) -> bool:
        return group in self._opening or self._snapshot.commits.is_opening(group)

    def _is_known(self, node: str, group: str) -> bool:
        """Whether a group's device may be joined without the binder (scheduler-core.md, Groups)."""
        devices = self.statement.table.devices[self.statement.position_of[node]]
        found = next((d.reservation for d in devices if d.group == group), None)
        if found is None or not (found.is_told and found.is_joinable):
            return False
        return self._snapshot.pods.is_verified(found.uid, found.uuid)


def _alone(pod: PodRecord) -> tuple[tuple[str, str], ...]:
    return tuple((pod.namespace, name) for name in pod.alone) if pod.alone else ()
