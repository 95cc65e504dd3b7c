"""Who uses a device that is not his to use, and has to go: judged on a LIST of a node's pods (docs/design/healing.md).

A tenant is in place as long as its group's reservation holds the device that it was given, or no other group
has it. Tenants that move are named with the reason; no others are touched.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence

import msgspec

from gpu.reservation import Reservation
from sharing.pods import PodView
from wire import names

#: UUID -> group -> the tenants that were given this device through this group.
Claims = Mapping[str, Mapping[str, Sequence["Claimant"]]]


class Claimant(msgspec.Struct, frozen=True, gc=False):
    """A live bound pod. ``created``: its creationTimestamp, the API server's clock."""

    pod: PodView
    created: str

    @property
    def age(self) -> tuple[str, str, str]:
        """Sorts the oldest first."""
        return (self.created, self.pod.namespace, self.pod.name)


class Why(enum.Enum):
    """Why a tenant has to go."""

    #: Another group has the device, and holds it or was there first.
    SHARED = "shared"
    #: A pod that we know nothing of was given the device.
    STRANGER = "stranger"
    #: The device plugin says that it is unhealthy.
    ILL = "ill"


class Move(msgspec.Struct, frozen=True, gc=False):
    """One tenant that has to go from one device. ``winner``: the group that keeps it, "" for none."""

    claimant: Claimant
    why: Why
    uuid: str
    winner: str = ""


class Proof(msgspec.Struct, frozen=True, gc=False):
    """One of these ``strangers`` (pod UIDs) holds a device, as the node has no more devices than ``capacity``."""

    strangers: frozenset[str]
    capacity: int


class Scene(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The devices of one ``resource`` on one node as it was listed: first its reservation pods, then its pods.

    ``strangers``: pods (UIDs) that kubelet has admitted, and how many such devices each holds through the device
    plugin, reservation pods left out. ``given``: the devices (UUIDs) of which kubelet says that it gave them to these.
    ``capacity``: how many of them the node has, unhealthy ones too. ``ill``: devices that are unhealthy. ``proofs``:
    device -> what was proved of it before. ``winners``: device -> the group that was found to keep it before.
    """

    resource: str = names.GPU_RESOURCE
    reservations: Sequence[Reservation]
    tenants: Sequence[Claimant]
    strangers: Mapping[str, int] = {}
    given: frozenset[str] = frozenset()
    capacity: int = 0
    ill: frozenset[str] = frozenset()
    proofs: Mapping[str, Proof] = {}
    winners: Mapping[str, str] = {}

    @property
    def holders(self) -> dict[str, set[str]]:
        """UUID -> groups whose reservation pods hold it, as they say, where kubelet does not contradict."""
        found: dict[str, set[str]] = {}
        for held in self.reservations:
            if not held.is_terminal and not self._is_forgotten(held) and (uuid := self._device_of(held)):
                found.setdefault(uuid, set()).add(held.group)
        return found

    def _device_of(self, held: Reservation) -> str:
        """What a reservation holds. Of a process that says another device than before, kubelet knows better.

        Kubelet's word is the device plugin's id of a device, which need not be its UUID: it counts where the tenants
        were given just that.
        """
        if not held.allocated or held.allocated == held.uuid:
            return held.uuid
        return held.allocated if held.allocated in self._granted_by(held.group) else held.uuid

    def _granted_by(self, group: str) -> set[str]:
        grants = (tenant.pod.grant for tenant in self.tenants if tenant.pod.grant is not None)
        return {device.uuid for grant in grants for device in grant.devices if device.group == group}

    def _is_forgotten(self, held: Reservation) -> bool:
        """Whether kubelet names no device of this pod, and names its device of others: it lost its checkpoint."""
        if held.allocated != "" or not held.uuid:
            return False
        return held.uuid in self.given or any(held.uuid == other.allocated for other in self.reservations)

    @property
    def taken(self) -> frozenset[str]:
        """Devices that kubelet gave to strangers, and that no reservation holds."""
        return self.given - self.holders.keys()

    @property
    def claims(self) -> Claims:
        """What tenants were given. KAI's pods carry no grant: theirs is what their group's reservation tells."""
        told = {held.group: held.uuid for held in self.reservations if held.uuid and not held.is_terminal}
        found: dict[str, dict[str, list[Claimant]]] = {}
        for tenant in self.tenants:
            pod = tenant.pod
            given = (
                [(d.uuid, d.group) for d in pod.grant.devices if d.resource == self.resource]
                if pod.grant is not None
                else [(told[group], group) for group in pod.groups if group in told]
            )
            for uuid, group in given:
                found.setdefault(uuid, {}).setdefault(group, []).append(tenant)
        return found

    @property
    def is_full(self) -> bool:
        """Whether every device of the node is surely held by somebody.

        Each admitted pod holds other devices than the rest, and each reservation that told its device holds that one.
        """
        return 0 < self.capacity <= sum(self.strangers.values()) + len(self.holders)


def unheld(scene: Scene, claims: Claims) -> frozenset[str]:
    """Devices that tenants use, that their own reservations lost, and that no other reservation holds."""
    telling = {held.group for held in scene.reservations if held.is_told}
    holders = scene.holders
    return frozenset(u for u, groups in claims.items() if u not in holders and not telling.isdisjoint(groups))


def proofs(scene: Scene, claims: Claims) -> dict[str, Proof]:
    """Return which used devices strangers have for sure.

    On a full node a used device that no reservation names belongs to somebody else, also where a reservation is still
    to be made, for it could not be. That stays so, even if devices become free, until one of those present has left,
    or the node turns out to have more devices than it said: a device plugin that starts may tell some late.
    """
    there, told = frozenset(scene.strangers), scene.holders
    loose = [uuid for uuid in claims if uuid not in told]
    if scene.is_full:
        return dict.fromkeys(loose, Proof(there, scene.capacity))
    return {
        uuid: proof
        for uuid, proof in scene.proofs.items()
        if uuid in loose and proof.strangers <= there and scene.capacity <= proof.capacity
    }


def moves(scene: Scene, claims: Claims, proved: Collection[str]) -> list[Move]:
    """Return the tenants that have to go, the youngest first. ``proved``: lost devices that strangers have.

    What KAI's pods use is known by what their reservation says now, and by nothing that was written when they were
    bound. That is too little to move anybody for, them or others.
    """
    found: list[Move] = []
    strange = scene.taken.union(proved)
    for uuid, everybody in claims.items():
        groups = _granted(everybody)
        if uuid in scene.ill:
            found += _all_of(everybody, Why.ILL, uuid)
        elif len(groups) > 1:
            winner = winner_of(scene, uuid, groups)
            rest = {group: tenants for group, tenants in groups.items() if group != winner}
            found += _all_of(rest, Why.SHARED, uuid, winner)
        elif uuid in strange:
            found += _all_of(groups, Why.STRANGER, uuid)
    return sorted(found, key=lambda move: (move.claimant.age, move.uuid), reverse=True)


def winners(scene: Scene, claims: Claims) -> dict[str, str]:
    """Return which group keeps each device that several were given."""
    contested = {uuid: groups for uuid, each in claims.items() if len(groups := _granted(each)) > 1}
    return {uuid: winner_of(scene, uuid, groups) for uuid, groups in contested.items()}


def winner_of(scene: Scene, uuid: str, groups: Mapping[str, Sequence[Claimant]]) -> str:
    """The group that holds the device; where that is not clear, the one whose oldest tenant is older.

    Where that is not clear it stays with whom it was found first: a tenant that leaves does not turn it around.
    """
    candidates = scene.holders.get(uuid, set()) & groups.keys() or set(groups)
    if scene.winners.get(uuid) in candidates:
        return scene.winners[uuid]
    return min(candidates, key=lambda group: (min(tenant.age for tenant in groups[group]), group))


def _granted(groups: Mapping[str, Sequence[Claimant]]) -> dict[str, Sequence[Claimant]]:
    """Leave out pods that carry no grant of ours."""
    found = {group: [each for each in tenants if each.pod.grant is not None] for group, tenants in groups.items()}
    return {group: tenants for group, tenants in found.items() if tenants}


def _all_of(groups: Mapping[str, Sequence[Claimant]], why: Why, uuid: str, winner: str = "") -> list[Move]:
    return [Move(tenant, why, uuid, winner) for tenants in groups.values() for tenant in tenants]
