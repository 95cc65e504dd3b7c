"""All that is judged of ResourceClaims and of volumes that wait: S15 to S17, S19, L7, and L1 of pods that have them.

Objects are judged in the order in which the in-memory API server stores them (observer.py), so the order of writes is
exact. At rest, what nobody uses is given back (L7), and pods that fit with their claims are bound (L1): what is
reported does fit, and what is not may fit as well.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from simulator.checks import claim_facts, facts, ledgers
from simulator.checks import fit as placing
from simulator.checks.claim_facts import KINDS, MEMORY, RESOURCE_CLAIMS, ClaimFacts, ClaimRecords, Held, SliceFacts
from simulator.checks.facts import Ask, Json, PodFacts
from simulator.checks.fit import Room, is_uniform, share_of
from simulator.checks.gangs import Key, Minimums
from simulator.checks.messages import Scene
from simulator.checks.violations import Findings
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


@dataclass(slots=True)
class _Given:
    """An allocation: the claim's version and its users (UIDs) of then. ``is_by_others``: None while none was seen."""

    version: int
    users: frozenset[str]
    is_by_others: bool | None = None


@dataclass(slots=True)
class BothWays:
    """S19: no device is held by a reservation and given by a claim at once (docs/design/claims.md, Shares).

    A device is one by the UUID that its driver publishes and that reservation pods report. What another scheduler gave
    to its own pods is not judged: a claim is its own if it was allocated for them alone. Later users do not matter.

    Takes pods and claims; ``records`` is what is known of claims then. ``live``: pods that exist, for reservations that
    reported their devices before there was any claim.
    """

    findings: Findings
    records: ClaimRecords
    live: Mapping[str, PodFacts] = field(default_factory=dict)
    #: UUID -> reservation pods (UIDs) that tell it, with their names.
    _held: dict[str, dict[str, str]] = field(default_factory=dict)
    _told: dict[str, str] = field(default_factory=dict)
    #: By claim (UID), until it is allocated again.
    _given: dict[str, _Given] = field(default_factory=dict)

    def pod(self, pod: PodFacts, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a pod: a reservation may tell a device that a claim has."""
        if not pod.is_reservation:
            return
        uuid = "" if is_gone or pod.has_ended else pod.told_uuid
        before = self._told.pop(pod.uid, "")
        if before:
            self._held[before].pop(pod.uid, None)
        if not uuid:
            return
        self._told[pod.uid] = uuid
        self._held.setdefault(uuid, {})[pod.uid] = pod.key
        for claim in self.records.claims.values():
            if uuid in self._uuids(claim) and not self._is_of_others(claim):
                self._both(uuid, claim, at_s)

    def claim(self, claim: ClaimFacts, at_s: float) -> None:
        """Take a version of a claim: it may have been given a device that a reservation holds."""
        uuids = [] if self._is_of_others(claim) else [*self._uuids(claim)]
        for pod in self.live.values() if uuids else ():
            if pod.uid not in self._told:
                self.pod(pod, at_s, is_gone=False)
        for uuid in uuids:
            if self._held.get(uuid):
                self._both(uuid, claim, at_s)

    def _uuids(self, claim: ClaimFacts) -> Iterator[str]:
        for held in claim.devices or ():
            uuid = "" if held.is_admin else self.records.uuids.get(held.device, "")
            if uuid:
                yield uuid

    def _is_of_others(self, claim: ClaimFacts) -> bool:
        """Whether it was allocated for pods of other schedulers alone."""
        version = self.records.allocated_at.get(claim.uid)
        if version is None:
            return False
        given = self._given.get(claim.uid)
        if given is None or given.version != version:
            given = self._given[claim.uid] = _Given(version, claim.reserved)
        if given.is_by_others is None:
            users = [pod for uid in given.users if (pod := self.live.get(uid)) is not None]
            given.is_by_others = not any(pod.is_ours for pod in users) if users else None
        return bool(given.is_by_others)

    def _both(self, uuid: str, claim: ClaimFacts, at_s: float) -> None:
        holders = ", ".join(sorted(self._held[uuid].values()))
        self.findings.add("S19", at_s, f"device {uuid} is held by {holders} and given by ResourceClaim {claim.told}")


#: A member counts as prepared for so long after it was: a Binding may be on its way for minutes, while the member goes.
_LATE_S: Final = 300.0


@dataclass(slots=True)
class Prepared:
    """S15, S16 and S17: what has to hold of the claims of a pod when it is bound (docs/design/claims.md, volumes.md).

    A pod may be bound by a claim whose device another claim has, too, if the other one was allocated later: that one is
    to give it back. Takes pods and PodGroups; ``records`` is what is known of claims then.
    """

    findings: Findings
    records: ClaimRecords
    #: Pods that are there, by UID.
    pods: dict[str, PodFacts] = field(default_factory=dict)
    #: PodGroup -> the minimums that it has had, each with the time when it came; None: the PodGroup went.
    _minimums: dict[Key, list[tuple[float, Minimums | None]]] = field(default_factory=dict)
    #: Pod (UID) -> its gang, its sub-group, and when all its claims were last seen reserved for it and bound.
    _ready: dict[str, tuple[Key, str, float]] = field(default_factory=dict)

    def pod_group(self, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a PodGroup."""
        key = raw["metadata"].get("namespace", ""), raw["metadata"]["name"]
        self._minimums.setdefault(key, []).append((at_s, None if is_gone else Minimums(raw.get("spec") or {})))

    def pod(self, pod: PodFacts, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a pod, and judge it if it has just been bound."""
        known = self.pods.get(pod.uid)
        if is_gone:
            self._note_ready(pod, at_s)
            self.pods.pop(pod.uid, None)
            return
        self.pods[pod.uid] = pod
        if known is not None and not known.node and pod.node and pod.is_ours:
            self._bound(pod, at_s)
        else:
            self._note_ready(pod, at_s)

    def claim(self, claim: ClaimFacts, at_s: float) -> None:
        """A claim has changed: pods for which it is reserved may be ready now."""
        for uid in claim.reserved & self.pods.keys():
            self._note_ready(self.pods[uid], at_s)

    def _note_ready(self, pod: PodFacts, at_s: float) -> None:
        if pod.pod_group and pod.is_ours and not [*self._lacks(pod, on="")]:
            self._ready[pod.uid] = (pod.namespace, pod.pod_group), _part(pod), at_s

    def _bound(self, pod: PodFacts, at_s: float) -> None:
        for text in self._lacks(pod, on=pod.node):
            self.findings.add("S16", at_s, f"pod {pod.key} is bound to {pod.node}, and {text}")
        for text in self._given_twice(pod):
            self.findings.add("S15", at_s, f"pod {pod.key} is bound to {pod.node}, and {text}")
        self._note_ready(pod, at_s)
        if pod.pod_group:
            self._judge_gang(pod, at_s)

    def _lacks(self, pod: PodFacts, *, on: str) -> Iterator[str]:
        """What is missing of the claims of a pod; ``on``: the node that they have to be usable on, "" for any."""
        for entry, name in claim_facts.claims_of(pod):
            claim = self.records.claims.get((pod.namespace, name or ""))
            if claim is None:
                yield f"ResourceClaim {name or entry} is not there"
            elif claim.devices is None or pod.uid not in claim.reserved:
                yield f"ResourceClaim {name} is not reserved for it"
            elif claim.pending:
                yield f"devices of ResourceClaim {name} lack {', '.join(claim.pending)}"
            elif on and claim.nodes is not None and on not in claim.nodes:
                yield f"the devices of ResourceClaim {name} are on {', '.join(sorted(claim.nodes))}"
        for name in claim_facts.volumes_of(pod):
            found = self.records.volume_claims.get((pod.namespace, name))
            # Its owner may have deleted it meanwhile: then the pod does not start.
            if found is not None and not found.volume:
                yield f"claim {name} is not bound to a volume"

    # --- S15 ---------------------------------------------------------------------------------------------------------

    def _given_twice(self, pod: PodFacts) -> Iterator[str]:
        for _, name in claim_facts.claims_of(pod):
            claim = self.records.claims.get((pod.namespace, name or ""))
            for held in (claim.devices if claim is not None else None) or ():
                if claim is not None and not held.is_admin:
                    yield from self._earlier(claim, held)
            if claim is not None:
                yield from self._overdrawn(claim)

    def _earlier(self, claim: ClaimFacts, held: Held) -> Iterator[str]:
        """Claims that have had the device for longer, and leave none of it for this one."""
        at = self.records.allocated_at
        others = {
            uid: each
            for uid, each in self.records.holders.get(held.device, {}).items()
            if uid != claim.uid and not each.is_admin and at.get(uid, 0) < at.get(claim.uid, 0)
        }
        device = "/".join(held.device)
        if held.part is None or any(each.part is None for each in others.values()):
            if others:
                yield f"device {device} of ResourceClaim {claim.told} was given to {self._told(others)} before"
            return
        for name, most in self.records.capacities.get(held.device, {}).items():
            used = sum((each.part or {}).get(name, Fraction(0)) for each in (held, *others.values()))
            if used > most:
                before = self._told(others)
                yield f"{used} of {most} {name} of device {device} are given with what {before} had before"

    def _overdrawn(self, claim: ClaimFacts) -> Iterator[str]:
        """Counters of which devices of this claim take more than earlier claims left. A device counts once."""
        at, records = self.records.allocated_at, self.records
        own = {held.device for held in claim.devices or () if not held.is_admin}
        for counter in sorted({each for device in own for each in records.draws.get(device, {})}):
            used, others = Fraction(0), set[str]()
            for device, draws in records.draws.items():
                before = [
                    uid
                    for uid, held in records.holders.get(device, {}).items()
                    if not held.is_admin and at.get(uid, 0) < at.get(claim.uid, 0)
                ]
                if counter in draws and (before or device in own):
                    used += draws[counter]
                    others.update(before)
            most = records.counters.get(counter, Fraction(0))
            if used > most and others:
                told = ", ".join(sorted(each.told for each in records.claims.values() if each.uid in others))
                yield f"{used} of {most} {counter[-1]} of pool {counter[1]} are taken with what {told} had before"

    def _told(self, uids: dict[str, Held]) -> str:
        return ", ".join(sorted(each.told for each in self.records.claims.values() if each.uid in uids))

    # --- S17 ---------------------------------------------------------------------------------------------------------

    def _judge_gang(self, pod: PodFacts, at_s: float) -> None:
        """The first Bindings of a gang: as many members as it needs have what their claims ask."""
        key = pod.namespace, pod.pod_group
        in_force = [*self._in_force(key, at_s)]
        needed = [least for least in in_force if least is not None]
        members = [each for each in self.pods.values() if (each.namespace, each.pod_group) == key]
        if len(needed) < len(in_force) or not any(map(claim_facts.has_claims, members)):
            return
        bound = {each.uid: _part(each) for each in members if each.node}
        there = Counter(part for uid, part in bound.items() if uid != pod.uid)
        ready = Counter({**self._ready_members(key, members, at_s), **bound}.values())
        if needed and not any(least.is_whole(there) or least.is_whole(ready) for least in needed):
            text = f"pod {pod.key} is bound, and of gang {pod.pod_group} {ready.total()} of {needed[-1].pods} are ready"
            self.findings.add("S17", at_s, text)

    def _ready_members(self, key: Key, members: Iterable[PodFacts], at_s: float) -> dict[str, str]:
        """Members (UIDs) that are ready, or were a moment ago, with their sub-groups."""
        recent = {
            uid: part for uid, (gang, part, seen_s) in self._ready.items() if gang == key and at_s - seen_s <= _LATE_S
        }
        return recent | {each.uid: _part(each) for each in members if not [*self._lacks(each, on="")]}

    def _in_force(self, key: Key, at_s: float) -> Iterator[Minimums | None]:
        """The minimums that a gang has, or had a while ago."""
        listed = self._minimums.get(key, [])
        for number, (_, least) in enumerate(listed):
            if number + 1 == len(listed) or at_s - listed[number + 1][0] <= _LATE_S:
                yield least


def _part(pod: PodFacts) -> str:
    return str(pod.labels.get(names.SUBGROUP_LABEL) or "")


_PODS: Final = "pods"
_POD_GROUPS: Final = "podgroups"
#: Kinds that are to be shown as they are stored.
STORED: Final = frozenset({*KINDS, _PODS, _POD_GROUPS})


@dataclass(slots=True)
class Claims:
    """Judges the claims of one run. Pods are looked at once there is a claim, a class or a slice."""

    findings: Findings
    #: Pods that are there, by UID.
    live: Mapping[str, PodFacts] = field(default_factory=dict)
    records: ClaimRecords = field(default_factory=ClaimRecords)
    _prepared: Prepared = field(init=False)
    _both_ways: BothWays = field(init=False)

    def __post_init__(self) -> None:
        self._prepared = Prepared(self.findings, self.records)
        self._both_ways = BothWays(self.findings, self.records, self.live)

    def wants(self, kind: str) -> bool:
        """Whether a version of such an object is to be shown now."""
        return kind in KINDS or kind == _POD_GROUPS or (kind == _PODS and self.records.has_any)

    def stored(self, kind: str, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """Take a version of an object of one of STORED."""
        if kind == _PODS:
            pod = facts.pod(raw)
            self._prepared.pod(pod, at_s, is_gone=is_gone)
            self._both_ways.pod(pod, at_s, is_gone=is_gone)
        elif kind == _POD_GROUPS:
            self._prepared.pod_group(raw, at_s, is_gone=is_gone)
        else:
            self.records.take(kind, raw, at_s, is_gone=is_gone)
            if kind == RESOURCE_CLAIMS:
                claim = claim_facts.claim(raw)
                self._prepared.claim(claim, at_s)
                if not is_gone:
                    self._both_ways.claim(claim, at_s)

    def judge_rest(self, at_s: float) -> None:
        """Judge L7 of a cluster at rest."""
        self.findings.judged.add("L7")
        for text in kept(self.records, self._prepared.pods, at_s):
            self.findings.add("L7", at_s, text)

    def fitting(
        self, waiting: Sequence[PodFacts], scene: Scene, *, kept_from: Callable[[PodFacts], Collection[str]]
    ) -> Iterator[tuple[PodFacts, str]]:
        """Yield pods with claims that wait though they fit, and where (L1)."""
        if self.records.has_any:
            yield from fitting(waiting, scene, self.records, kept_from=kept_from)
            yield from backed_fitting(waiting, scene, self.records, kept_from=kept_from)
