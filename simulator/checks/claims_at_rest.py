"""Claims of a cluster at rest: what nobody uses is given back (L7), and pods that fit with theirs are bound (L1).

What L1 reports does fit, and what it does not report may fit as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from simulator.checks import claim_facts, ledgers
from simulator.checks import fit as placing
from simulator.checks.claim_facts import MEMORY, ClaimFacts, ClaimRecords, SliceFacts
from simulator.checks.facts import Ask, Json, PodFacts
from simulator.checks.fit import Room, is_uniform, share_of
from simulator.checks.gangs import Key
from simulator.checks.messages import Scene
from wire import names

#: Longer than a controller needs to clear a claim that nobody uses.
_UNUSED_S: Final = 120.0
_MOST_USERS: Final = 256


@dataclass(frozen=True, slots=True)
class Need:
    """What the claims of a pod ask of a node: free whole devices. ``nodes``: those that they allow; None: any."""

    devices: int
    nodes: frozenset[str] | None

    def is_met(self, node: str, free: int) -> bool:
        """Whether a node with this number of free devices meets it."""
        return free >= self.devices and (self.nodes is None or node in self.nodes)


def kept(records: ClaimRecords, pods: Mapping[str, PodFacts], at_s: float) -> Iterator[str]:
    """Say which claims are kept for pods that are gone or wait, and which are allocated for nobody (L7)."""
    for claim in records.claims.values():
        for uid in sorted(claim.reserved):
            pod = pods.get(uid)
            if pod is None or pod.has_ended:
                end = "is gone" if pod is None else "has ended"
                yield f"ResourceClaim {claim.told} is reserved for a pod that {end}"
            elif not pod.node:
                yield f"ResourceClaim {claim.told} is reserved for pod {pod.key}, which waits"
        owner = pods.get(claim.owner) if claim.is_made and claim.owner not in claim.reserved else None
        if owner is not None and owner.waits and owner.is_ours and owner.namespace == claim.key[0]:
            yield f"ResourceClaim {claim.told} was made for pod {owner.key}, which waits"
        since_s = records.unused_since_s.get(claim.uid)
        if since_s is not None and at_s - since_s > _UNUSED_S:
            yield f"ResourceClaim {claim.told} is allocated since {since_s:.3f} s, and no pod may use it"


def fitting(
    waiting: Sequence[PodFacts],
    scene: Scene,
    records: ClaimRecords,
    *,
    kept_from: Callable[[PodFacts], Collection[str]],
) -> Iterator[tuple[PodFacts, str]]:
    """Yield pods with claims that wait though they fit, and where (L1).

    Judged are pods whose claims ask for whole devices of classes without selectors, and for volumes that a provisioner
    makes.
    """
    devices = {room.name: len(records.free_on(room.name)) for room in scene.rooms}
    gangs: set[Key] = set()
    for pod in waiting:
        key = (pod.namespace, pod.pod_group)
        if not claim_facts.has_claims(pod) or (need := need_of(pod, records)) is None:
            continue
        if placing.comes_alone(pod, scene.members, scene.minimums):
            fit = [room for room in scene.rooms if need.is_met(room.name, devices[room.name]) and room.copy().take(pod)]
            if places := [room.name for room in fit if room.name not in kept_from(pod)]:
                yield pod, f"it fits with its claims on {', '.join(places)}"
        elif key in scene.minimums and key not in gangs:
            gangs.add(key)
            usable = {room.name: devices[room.name] for room in scene.rooms if room.name not in kept_from(pod)}
            if _fits_whole(key, scene, usable, records):
                yield pod, f"all of gang {pod.pod_group} that is missing fits with its claims"


def _fits_whole(key: Key, scene: Scene, devices: Mapping[str, int], records: ClaimRecords) -> bool:
    """Whether a gang of equals fits on these nodes, with these numbers of free devices; other gangs are not judged."""
    members, minimums = scene.members[key], scene.minimums[key]
    waiting = [pod for pod in members if pod.waits and not pod.is_gated]
    needs = {need_of(pod, records) for pod in waiting}
    number = minimums.lacks(placing.placed(members), placing.by_part(waiting))
    if number is None or len(needs) != 1 or not is_uniform(waiting) or minimums.has_parts:
        return False
    need = needs.pop()
    # Of one claim for all, the place of the first is that of all.
    if need is None or any(_names_shared(pod, records) for pod in waiting):
        return False
    rooms, left = [room.copy() for room in scene.rooms if room.name in devices], dict(devices)
    return all(_is_placed(pod, need, rooms, left) for pod in waiting[:number])


def _is_placed(pod: PodFacts, need: Need, rooms: list[Room], left: dict[str, int]) -> bool:
    for number, room in enumerate(rooms):
        after = room.copy()
        if need.is_met(room.name, left[room.name]) and after.take(pod):
            rooms[number] = after
            left[room.name] -= need.devices
            return True
    return False


def _names_shared(pod: PodFacts, records: ClaimRecords) -> bool:
    """Whether a pod names a claim that was not made for it."""
    return any(claim.owner != pod.uid for claim in _claims(pod, records))


def _claims(pod: PodFacts, records: ClaimRecords) -> Iterator[ClaimFacts]:
    for _, name in claim_facts.claims_of(pod):
        claim = records.claims.get((pod.namespace, name or ""))
        if claim is not None:
            yield claim


def need_of(pod: PodFacts, records: ClaimRecords) -> Need | None:
    """What the claims of a waiting pod ask; None where that is not judged."""
    claims = {claim.uid: claim for claim in _claims(pod, records)}.values()
    named = {name for _, name in claim_facts.claims_of(pod)}
    if len(claims) < len(named) or not placing.is_judged(pod, with_claims=True):
        return None
    devices, places = 0, list[frozenset[str]]()
    for claim in claims:
        if claim.deleting or len(claim.reserved) >= _MOST_USERS or claim.owner not in {"", pod.uid}:
            return None
        if claim.devices is not None:
            places += [claim.nodes] if claim.nodes is not None else []
        elif (asked := _devices(claim.requests, records)) is not None:
            devices += asked
        else:
            return None
    for name in claim_facts.volumes_of(pod):
        found = records.volume_claims.get((pod.namespace, name))
        if found is None or found.volume or found.cls not in records.provisioning:
            return None
        places += [frozenset({found.node})] if found.node else []
    return Need(devices, frozenset.intersection(*places) if places else None)


def _devices(requests: Sequence[Json], records: ClaimRecords) -> int | None:
    """How many whole devices of any kind a claim asks; None where it asks for anything else."""
    asks = [request.get("exactly") for request in requests]
    for ask in asks:
        if ask is None or ask.get("deviceClassName") not in records.plain_classes or ask.get("selectors"):
            return None
        if ask.get("allocationMode") == "All" or ask.get("adminAccess") or ask.get("capacity"):
            return None
    return sum(int(ask.get("count") or 1) for ask in asks if ask is not None)


_MIB: Final = 1024 * 1024
#: What a pod says while devices are kept for one that was deleted by force.
_KEPT: Final = "deleted by force must have ended"


@dataclass(frozen=True, slots=True)
class Backed:
    """What a claim would have to give: devices by resource, or a part of a GPU. One claim never gives both."""

    whole: Mapping[str, int]
    share: Ask | None

    @property
    def of_gpus(self) -> bool:
        """Whether a device plugin of GPUs could give some of it."""
        return self.share is not None or names.GPU_RESOURCE in self.whole


@dataclass(frozen=True, slots=True)
class _Judge:
    """``sides``: resource -> whether its only class takes big devices, or those that are not."""

    scene: Scene
    records: ClaimRecords
    sides: Mapping[str, bool]

    def wanted(self, pod: PodFacts) -> Backed | None:
        """What a claim would have to give a waiting pod; None where that is not judged."""
        asked = self.sides.keys() & placing.resources_of(pod)
        share = share_of(pod)
        is_kept = pod.verdict is not None and _KEPT in pod.verdict.message
        is_judged = placing.is_judged(pod, also=frozenset(asked))
        if not is_judged or bool(asked) is (share is not None) or is_kept or pod.raw["spec"].get("resourceClaims"):
            return None
        if share is not None and not self._is_claimable(pod, share):
            return None
        return Backed({name: ledgers.demand(pod, name) for name in asked}, share)

    def _is_claimable(self, pod: PodFacts, share: Ask) -> bool:
        """Whether admission lets a container of it have its share by a claim, and a class stands for GPUs."""
        by_claim = ledgers.demand(pod, names.GPU_SHARE_RESOURCE)
        return names.GPU_RESOURCE in self.sides and share.devices == 1 and by_claim == 1

    def is_met(self, pod: PodFacts, wanted: Backed, room: Room) -> bool:
        """Whether a node surely serves a pod by claims."""
        node = self.scene.nodes[room.name]
        has_gpus = bool(node.gpus or room.gpus or room.shared)
        if (wanted.of_gpus and has_gpus) or any(node.devices.get(each) for each in wanted.whole):
            return False
        left = (
            room.pods - 1,
            room.cpu_milli - ledgers.demand(pod, "cpu", per=ledgers.MILLI),
            room.mem_mib - ledgers.demand(pod, "memory", per=ledgers.MIB),
        )
        published = self.records.current_on(room.name)
        enough = all(self._free(published, self.sides[each]) >= number for each, number in wanted.whole.items())
        share = wanted.share
        return min(left) >= 0 and enough and (share is None or any(self._has_part(each, share) for each in published))

    def _free(self, published: Sequence[SliceFacts], is_big: bool) -> int:
        """How many whole devices of one side nobody has."""
        return sum(
            not self.records.holders.get((*each.pool, device))
            for each in published
            for device in each.whole
            if (device in each.big) is is_big
        )

    def _has_part(self, published: SliceFacts, ask: Ask) -> bool:
        """Whether a shared device of a slice has this part left, rounded up to whole bytes."""
        for device in published.shared:
            had = published.capacities[device].get(MEMORY)
            if had is None or (device in published.big) is not self.sides[names.GPU_RESOURCE]:
                continue
            holders = self.records.holders.get((*published.pool, device), {}).values()
            parts = [None if each.part is None else each.part.get(MEMORY) for each in holders if not each.is_admin]
            used = sum((part for part in parts if part is not None), Fraction(0))
            wanted = ask.mem_mib * _MIB if ask.mem_mib is not None else math.ceil(ask.charge(0) * had)
            if None not in parts and used + wanted <= had:
                return True
        return False


def backed_fitting(
    waiting: Sequence[PodFacts],
    scene: Scene,
    records: ClaimRecords,
    *,
    kept_from: Callable[[PodFacts], Collection[str]],
) -> Iterator[tuple[PodFacts, str]]:
    """Yield pods that wait though a claim could be made for them, and where (L1).

    It would be for extended resources, or for a share of a GPU. Judged are pods alone, and those beyond the minimum of
    a gang, on nodes that have no GPUs of a device plugin. Devices count where a class stands for the resource alone and
    takes devices by one attribute, and where none is kept for a pod that was deleted by force.
    """
    judge = _Judge(scene, records, _sides(records))
    for pod in waiting if judge.sides else ():
        wanted = judge.wanted(pod)
        if wanted is None or not placing.comes_alone(pod, scene.members, scene.minimums):
            continue
        fit = (room.name for room in scene.rooms if judge.is_met(pod, wanted, room))
        if places := [name for name in fit if name not in kept_from(pod)]:
            yield pod, f"it fits with a claim made for it on {', '.join(places)}"


def _sides(records: ClaimRecords) -> dict[str, bool]:
    of: dict[str, list[str]] = {}
    for name, resource in records.extended.items():
        of.setdefault(resource, []).append(name)
    return {
        resource: records.sides[classes[0]]
        for resource, classes in of.items()
        if len(classes) == 1 and classes[0] in records.sides
    }
