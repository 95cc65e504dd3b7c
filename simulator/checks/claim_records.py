"""ResourceClaims, slices and claims of volumes as the API server has them now, for those that judge them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from simulator import claimfacts
from simulator.checks.counting import MIB
from simulator.claimfacts import ClaimFacts, DeviceId, Held, Key, SliceFacts, VolumeClaimFacts
from simulator.facts import Json, PodFacts

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
    #: DeviceClasses (names) without selectors, and StorageClasses that make volumes.
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
            RESOURCE_CLAIMS: lambda: self._claim(claimfacts.claim(raw), at_s, is_gone=is_gone),
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
        found = self.slices[name] = claimfacts.device_slice(raw)
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
        if not is_gone and (side := claimfacts.side_of(spec)) is not None:
            self.sides[name] = side
        if spec.get("extendedResourceName") and not is_gone:
            self.extended[name] = spec["extendedResourceName"]

    def _volume_claim(self, raw: Json, *, is_gone: bool) -> None:
        key = raw["metadata"].get("namespace", ""), raw["metadata"]["name"]
        if is_gone:
            self.volume_claims.pop(key, None)
        else:
            self.volume_claims[key] = claimfacts.volume_claim(raw)

    def _storage_class(self, raw: Json, *, is_gone: bool) -> None:
        makes = not is_gone and raw.get("provisioner") != _NO_PROVISIONER
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
