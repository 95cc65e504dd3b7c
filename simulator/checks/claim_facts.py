"""ResourceClaims, slices and claims of volumes as the invariant checker reads them, and as the API server has them now.

Plain JSON in, values out; nothing is shared with the product but names on the wire, as in facts.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from simulator.checks.facts import Json, PodFacts
from simulator.checks.ledgers import MIB, amount
from wire import names

#: Driver, pool, device.
DeviceId = tuple[str, str, str]
#: Namespace, name.
Key = tuple[str, str]
_SIDE: Final = re.compile(r'(?P<no>!?)device\.attributes\["[^"]*"\]\.big')


@dataclass(frozen=True, slots=True)
class Held:
    """A device that a claim has. ``part``: of its capacities, where it is shared; ``is_admin``: beside others."""

    device: DeviceId
    is_admin: bool = False
    part: Mapping[str, Fraction] | None = None


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """One version of a ResourceClaim. ``devices`` is None while it is not allocated."""

    uid: str
    key: Key
    version: int
    devices: tuple[Held, ...] | None
    #: UIDs of the pods that may use it.
    reserved: frozenset[str]
    #: UID of the pod that it was made for, "" for none.
    owner: str
    deleting: bool
    #: Nodes (names) on which its devices can be used; None: any, or it names none.
    nodes: frozenset[str] | None
    #: Conditions that its devices have to report before pods are bound, and don't.
    pending: tuple[str, ...] = ()
    #: Whether it says that a scheduler made it for extended resources of its owner.
    is_made: bool = False
    #: Its requests as they are written.
    requests: tuple[Json, ...] = field(repr=False, default=())

    @property
    def told(self) -> str:
        """``namespace/name``."""
        return "/".join(self.key)


def claim(raw: Json) -> ClaimFacts:
    """Read a ResourceClaim."""
    meta, status = raw["metadata"], raw.get("status") or {}
    allocation = status.get("allocation")
    owners = [each["uid"] for each in meta.get("ownerReferences") or () if each.get("kind") == "Pod"]
    return ClaimFacts(
        uid=meta["uid"],
        key=(meta.get("namespace", ""), meta["name"]),
        version=int(meta["resourceVersion"]),
        devices=None if allocation is None else tuple(_devices(allocation)),
        reserved=frozenset(each["uid"] for each in status.get("reservedFor") or ()),
        owner=owners[0] if owners else "",
        deleting=bool(meta.get("deletionTimestamp")),
        nodes=_nodes(allocation or {}),
        pending=tuple(_pending(status)),
        is_made=(meta.get("annotations") or {}).get(names.EXTENDED_RESOURCE_CLAIM) == "true",
        requests=tuple(((raw.get("spec") or {}).get("devices") or {}).get("requests") or ()),
    )


def _devices(allocation: Json) -> Iterator[Held]:
    for each in (allocation.get("devices") or {}).get("results") or ():
        consumed = each.get("consumedCapacity")
        part = None if consumed is None else {name: amount(value) for name, value in consumed.items()}
        yield Held((each["driver"], each["pool"], each["device"]), bool(each.get("adminAccess")), part)


def _pending(status: Json) -> Iterator[str]:
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    for each in results:
        id_ = tuple(each.get(name) for name in ("driver", "pool", "device", "shareID"))
        said = [
            said
            for said in status.get("devices") or ()
            if tuple(said.get(name) for name in ("driver", "pool", "device", "shareID")) == id_
        ]
        true = {found["type"] for one in said for found in one.get("conditions") or () if found["status"] == "True"}
        yield from (wanted for wanted in each.get("bindingConditions") or () if wanted not in true)


def _nodes(allocation: Json) -> frozenset[str] | None:
    """The nodes of an allocation that names them."""
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    named: set[str] = set()
    for term in terms:
        fields = list(term.get("matchFields") or ())
        if [(each.get("key"), each.get("operator")) for each in fields] != [("metadata.name", "In")]:
            return None
        named.update(fields[0]["values"])
    return frozenset(named) if terms else None


@dataclass(frozen=True, slots=True)
class SliceFacts:
    """One version of a ResourceSlice of a node. ``capacities``: of each of its devices that is shared.

    ``whole``: names of devices that one claim has as a whole, that are not tainted, and that draw on no counter.
    ``counters``: of its pool, by set and name; ``draws``: device -> what of them it takes. ``shared``: those like
    ``whole`` that several claims have in parts; ``big``: those with this attribute.
    """

    pool: tuple[str, str]
    node: str
    generation: int
    count: int
    whole: frozenset[str]
    capacities: Mapping[str, Mapping[str, Fraction]]
    #: UUIDs of its devices by name, as far as the driver publishes them.
    uuids: Mapping[str, str] = field(default_factory=dict)
    counters: Mapping[tuple[str, str], Fraction] = field(default_factory=dict)
    draws: Mapping[str, Mapping[tuple[str, str], Fraction]] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()
    big: frozenset[str] = frozenset()


def device_slice(raw: Json) -> SliceFacts:
    """Read a ResourceSlice."""
    spec: dict[str, Any] = raw["spec"]
    devices = spec.get("devices") or ()
    shared = [each for each in devices if each.get("allowMultipleAllocations")]
    plain = [each for each in devices if not each.get("taints") and not each.get("consumesCounters")]
    whole = [each["name"] for each in plain if each not in shared]
    return SliceFacts(
        pool=(spec["driver"], spec["pool"]["name"]),
        node=spec.get("nodeName") or "",
        generation=int(spec["pool"].get("generation") or 0),
        count=int(spec["pool"].get("resourceSliceCount") or 0),
        whole=frozenset(whole),
        capacities={each["name"]: _capacities(each) for each in shared},
        uuids={each["name"]: uuid for each in devices if (uuid := _uuid(each, spec["driver"]))},
        counters=_counters(spec.get("sharedCounters") or (), "name"),
        draws={each["name"]: _counters(each.get("consumesCounters") or (), "counterSet") for each in devices},
        shared=frozenset(each["name"] for each in plain if each in shared),
        big=frozenset(each["name"] for each in devices if (each.get("attributes") or {}).get("big", {}).get("bool")),
    )


def side_of(spec: Json) -> bool | None:
    """Whether a DeviceClass takes devices that are ``big`` alone, or those that are not; None: any others."""
    found = [_SIDE.fullmatch((each.get("cel") or {}).get("expression", "")) for each in spec.get("selectors") or ()]
    return not found[0]["no"] if len(found) == 1 and found[0] is not None else None


def _uuid(device: Json, driver: str) -> str:
    attributes = device.get("attributes") or {}
    found = attributes.get("uuid") or attributes.get(f"{driver}/uuid") or {}
    return str(found.get("string", ""))


def _counters(sets: Iterable[Json], key: str) -> dict[tuple[str, str], Fraction]:
    found = ((each[key], name, counter) for each in sets for name, counter in (each.get("counters") or {}).items())
    return {(of, name): amount(counter["value"]) for of, name, counter in found}


def _capacities(device: Json) -> dict[str, Fraction]:
    return {name: amount(each["value"]) for name, each in (device.get("capacity") or {}).items()}


@dataclass(frozen=True, slots=True)
class VolumeClaimFacts:
    """One version of a claim of a volume. ``volume``: that it is bound to; ``node``: for which one is to be made."""

    volume: str
    cls: str
    node: str


def volume_claim(raw: Json) -> VolumeClaimFacts:
    """Read a PersistentVolumeClaim."""
    spec, annotations = raw.get("spec") or {}, raw["metadata"].get("annotations") or {}
    return VolumeClaimFacts(
        volume=spec.get("volumeName") or "",
        cls=spec.get("storageClassName") or "",
        node=annotations.get(names.SELECTED_NODE) or "",
    )


def claims_of(pod: PodFacts) -> Iterator[tuple[str, str | None]]:
    """Each ResourceClaim of a pod as (entry, name); None while nobody has made it from its template."""
    status = pod.raw.get("status") or {}
    made = {each["name"]: each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()}
    for entry in pod.raw["spec"].get("resourceClaims") or ():
        yield entry["name"], entry.get("resourceClaimName") or made.get(entry["name"])
    if name := (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName"):
        yield "extended resources", name


def volumes_of(pod: PodFacts) -> Iterator[str]:
    """Names of the claims of volumes that a pod mounts."""
    for volume in pod.raw["spec"].get("volumes") or ():
        if source := volume.get("persistentVolumeClaim"):
            yield source["claimName"]


def has_claims(pod: PodFacts) -> bool:
    """Whether a pod has claims of either kind."""
    return any(True for _ in claims_of(pod)) or any(True for _ in volumes_of(pod))


RESOURCE_CLAIMS: Final = "resourceclaims"
RESOURCE_SLICES: Final = "resourceslices"
DEVICE_CLASSES: Final = "deviceclasses"
VOLUME_CLAIMS: Final = "persistentvolumeclaims"
STORAGE_CLASSES: Final = "storageclasses"
#: The kinds that are to be shown, as they are stored.
KINDS: Final = frozenset({RESOURCE_CLAIMS, RESOURCE_SLICES, DEVICE_CLASSES, VOLUME_CLAIMS, STORAGE_CLASSES})
#: The capacity of which shares are parts.
MEMORY: Final = "memory"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


#: Driver, pool, set of counters, counter.
Counter = tuple[str, str, str, str]


@dataclass(slots=True)
class ClaimRecords:
    """What was shown so far. ``has_any``: whether there has been anything at all."""

    has_any: bool = False
    claims: dict[Key, ClaimFacts] = field(default_factory=dict)
    volume_claims: dict[Key, VolumeClaimFacts] = field(default_factory=dict)
    slices: dict[str, SliceFacts] = field(default_factory=dict)
    #: DeviceClasses (names) without selectors, and StorageClasses that make a volume once a pod has a node.
    plain_classes: set[str] = field(default_factory=set)
    provisioning: set[str] = field(default_factory=set)
    #: DeviceClass -> the extended resource for which it stands.
    extended: dict[str, str] = field(default_factory=dict)
    #: DeviceClass -> whether it takes devices that are ``big``, or those that are not; others are left out.
    sides: dict[str, bool] = field(default_factory=dict)
    #: Device -> claims (UIDs) that have it.
    holders: dict[DeviceId, dict[str, Held]] = field(default_factory=dict)
    #: Claim (UID) -> the version in which it got the devices that it has.
    allocated_at: dict[str, int] = field(default_factory=dict)
    #: Claim (UID) -> since when it is allocated and nobody may use it.
    unused_since_s: dict[str, float] = field(default_factory=dict)
    #: UUID of each device, as it was published last.
    uuids: dict[DeviceId, str] = field(default_factory=dict)
    #: The most that a shared device has had of each capacity: one that is published again may have less.
    capacities: dict[DeviceId, dict[str, Fraction]] = field(default_factory=dict)
    #: The most that a counter of a pool has had, and the least that each device took of counters.
    counters: dict[Counter, Fraction] = field(default_factory=dict)
    draws: dict[DeviceId, dict[Counter, Fraction]] = field(default_factory=dict)

    def take(self, kind: str, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """Take a version of an object of one of KINDS."""
        self.has_any = True
        takes: dict[str, Callable[[], None]] = {
            RESOURCE_CLAIMS: lambda: self._claim(claim(raw), at_s, is_gone=is_gone),
            RESOURCE_SLICES: lambda: self._slice(raw, is_gone=is_gone),
            DEVICE_CLASSES: lambda: self._device_class(raw, is_gone=is_gone),
            VOLUME_CLAIMS: lambda: self._volume_claim(raw, is_gone=is_gone),
            STORAGE_CLASSES: lambda: self._storage_class(raw, is_gone=is_gone),
        }
        takes[kind]()

    def _claim(self, claim: ClaimFacts, at_s: float, *, is_gone: bool) -> None:
        before = self.claims.pop(claim.key, None)
        devices = None if is_gone else claim.devices
        if before is not None and (before.uid != claim.uid or before.devices != devices):
            for held in before.devices or ():
                self.holders.get(held.device, {}).pop(before.uid, None)
            self.allocated_at.pop(before.uid, None)
        if is_gone:
            self.unused_since_s.pop(claim.uid, None)
            return
        self.claims[claim.key] = claim
        if claim.devices is not None and claim.uid not in self.allocated_at:
            self.allocated_at[claim.uid] = claim.version
        for held in claim.devices or ():
            self.holders.setdefault(held.device, {})[claim.uid] = held
        if claim.devices is None or claim.reserved:
            self.unused_since_s.pop(claim.uid, None)
        else:
            self.unused_since_s.setdefault(claim.uid, at_s)

    def _slice(self, raw: Json, *, is_gone: bool) -> None:
        name = raw["metadata"]["name"]
        if is_gone:
            self.slices.pop(name, None)
            return
        found = self.slices[name] = device_slice(raw)
        self.uuids.update({(*found.pool, device): uuid for device, uuid in found.uuids.items()})
        for device, amounts in found.capacities.items():
            most = self.capacities.setdefault((*found.pool, device), {})
            for each, value in amounts.items():
                most[each] = max(value, most.get(each, Fraction(0)))
        for counter, value in found.counters.items():
            key = (*found.pool, *counter)
            self.counters[key] = max(value, self.counters.get(key, Fraction(0)))
        for device, taken in found.draws.items():
            known = self.draws.get((*found.pool, device))
            now: dict[Counter, Fraction] = {(*found.pool, *counter): value for counter, value in taken.items()}
            if known is not None:
                now = {key: min(value, known[key]) for key, value in now.items() if key in known}
            self.draws[*found.pool, device] = now

    def _device_class(self, raw: Json, *, is_gone: bool) -> None:
        name, spec = raw["metadata"]["name"], raw.get("spec") or {}
        is_plain = not is_gone and not spec.get("selectors")
        (self.plain_classes.add if is_plain else self.plain_classes.discard)(name)
        self.extended.pop(name, None)
        self.sides.pop(name, None)
        if not is_gone and (side := side_of(spec)) is not None:
            self.sides[name] = side
        if spec.get("extendedResourceName") and not is_gone:
            self.extended[name] = spec["extendedResourceName"]

    def _volume_claim(self, raw: Json, *, is_gone: bool) -> None:
        key = raw["metadata"].get("namespace", ""), raw["metadata"]["name"]
        if is_gone:
            self.volume_claims.pop(key, None)
        else:
            self.volume_claims[key] = volume_claim(raw)

    def _storage_class(self, raw: Json, *, is_gone: bool) -> None:
        waits = raw.get("volumeBindingMode") == "WaitForFirstConsumer"
        makes = not is_gone and waits and raw.get("provisioner") != _NO_PROVISIONER
        (self.provisioning.add if makes else self.provisioning.discard)(raw["metadata"]["name"])

    def current_on(self, node: str) -> list[SliceFacts]:
        """Slices of a node, of pools that are complete."""
        found: list[SliceFacts] = []
        for pool in {each.pool for each in self.slices.values() if each.node == node}:
            listed = [each for each in self.slices.values() if each.pool == pool]
            newest = max(each.generation for each in listed)
            current = [each for each in listed if each.generation == newest]
            if {each.count for each in current} == {len(current)}:
                found += current
        return found

    def given_mib(self, pod: PodFacts) -> int:
        """The memory, in MiB, of the device of which a claim gives a pod its share; 0 if none does, or it has none."""
        made = (pod.raw.get("status") or {}).get("extendedResourceClaimStatus") or {}
        claim = self.claims.get((pod.namespace, made.get("resourceClaimName") or ""))
        if claim is None or not pod.has_claimed_share:
            return 0
        shared = (self.capacities.get(held.device, {}) for held in claim.devices or () if held.part is not None)
        return next((int(had[MEMORY] / MIB) for had in shared if MEMORY in had), 0)

    def free_on(self, node: str) -> set[DeviceId]:
        """Whole devices of a node that nobody has, of pools that are complete."""
        free = {(*each.pool, name) for each in self.current_on(node) for name in each.whole}
        return {device for device in free if not self.holders.get(device)}
