"""Claims of a cluster at rest: what nobody uses is given back (L7), and pods that fit with theirs are bound (L1).

Judged are pods whose claims ask for whole devices of classes without selectors, and for volumes that a provisioner
makes: what is found here does fit, and what is not found may fit as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from simulator import claimfacts
from simulator.checks import packing, placing
from simulator.checks.claim_records import ClaimRecords
from simulator.checks.room import Room
from simulator.checks.telling import Scene
from simulator.claimfacts import ClaimFacts
from simulator.facts import Json, PodFacts
from simulator.gangs import Key

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
    """Yield pods with claims that wait though they fit, and where (L1)."""
    devices = {room.name: len(records.free_on(room.name)) for room in scene.rooms}
    gangs: set[Key] = set()
    for pod in waiting:
        key = (pod.namespace, pod.pod_group)
        if not claimfacts.has_claims(pod) or (need := need_of(pod, records)) is None:
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
    if number is None or len(needs) != 1 or not packing.is_uniform(waiting) or minimums.has_parts:
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
    for _, name in claimfacts.claims_of(pod):
        claim = records.claims.get((pod.namespace, name or ""))
        if claim is not None:
            yield claim


def need_of(pod: PodFacts, records: ClaimRecords) -> Need | None:
    """What the claims of a waiting pod ask; None where that is not judged."""
    claims = {claim.uid: claim for claim in _claims(pod, records)}.values()
    named = {name for _, name in claimfacts.claims_of(pod)}
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
    for name in claimfacts.volumes_of(pod):
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
