"""Slim records: what the core keeps of the API's objects. Wire types end at objects.py.

``PodClass`` is the unit of thought: pods that ask the same under the same constraints are judged once. Classes are
interned, so that one is compared by identity and its hash is computed once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from gpu import multiplied
from gpu.asked import PLAIN, taken
from gpu.claimedshare import ClaimedShare
from gpu.handover import PlannedDevice
from gpu.request import NO_GPU, GpuRequest
from gpu.reservation import Reservation
from gpu.slices import slice_resource
from gpu.translation import Place, Translation, Wishes
from scheduler.core.model.claim_use import ResourceClaimUse
from scheduler.core.model.device_need import DeviceNeed
from scheduler.core.model.extended_resource import Backed, ExtendedAsk
from scheduler.core.model.minimum_tree import Contradiction, MinimumTree
from scheduler.core.model.numa import NumaAsk, NumaRecord
from scheduler.core.model.pod_preferences import PodPreferences, WeightedTerm
from scheduler.core.model.pod_rules import HostPort, InlineDisk, PodRules
from scheduler.core.model.topology import LevelConstraint
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.model.volume_need import VolumeNeed
from wire import names
from wire.core import Taint, Toleration


class Demand(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """What a pod takes from a node beside parts of devices. One pod slot goes without saying.

    ``gpus`` is the effective request of ``nvidia.com/gpu``: whole devices.
    """

    cpu_milli: int = 0
    mem_mib: int = 0
    ephemeral_mib: int = 0
    gpus: int = 0
    #: Extended resources and huge pages (bytes), sorted by name, zeros left out.
    extended: tuple[tuple[str, int], ...] = ()
    #: By how much ``mem_mib`` is more than what is asked: queues count bytes.
    mem_rounding_bytes: int = 0
    #: Extended resources that devices of a claim stand for: queues count them, and nodes don't.
    claimed: tuple[tuple[str, int], ...] = ()
    #: The part of a device that a claim gives: queues count it, and nodes don't.
    claimed_nano: int = 0

    @property
    def has_claimed_gpus(self) -> bool:
        """Whether a claim gives it GPUs that its node's device plugin could offer one day, or a part of one."""
        return bool(self.claimed_nano) or any(name == names.GPU_RESOURCE for name, _ in self.claimed)

    @property
    def mem_bytes(self) -> int:
        """Memory as it is asked."""
        return self.mem_mib * 2**20 - self.mem_rounding_bytes

    def by_claim(self, resources: Collection[str]) -> Demand:
        """The same, with these extended resources from devices of a claim."""
        gpus = ((names.GPU_RESOURCE, self.gpus),) if self.gpus and names.GPU_RESOURCE in resources else ()
        moved = (*gpus, *(each for each in self.extended if each[0] in resources))
        if not moved:
            return self
        return msgspec.structs.replace(
            self,
            gpus=0 if gpus else self.gpus,
            extended=tuple(each for each in self.extended if each[0] not in resources),
            claimed=tuple(sorted((*self.claimed, *moved))),
        )


class Requirement(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """One expression on a node's labels or fields."""

    key: str
    operator: str
    values: tuple[str, ...]


class Term(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """All expressions of one term must hold; a term without any holds nowhere."""

    labels: tuple[Requirement, ...]
    fields: tuple[Requirement, ...]


#: Label keys and values of nodes: domains of a topology.
Domains = frozenset[tuple[str, str]]


class AntiTerm(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A term of required anti-affinity: pods that it takes may not be where its owner is, by the node label ``key``.

    It takes pods of ``namespaces``, and of those whose labels ``namespace_selector`` takes. A selector is None if it
    takes nothing, and without requirements if it takes everything.
    """

    key: str
    selector: tuple[Requirement, ...] | None
    namespaces: frozenset[str]
    namespace_selector: tuple[Requirement, ...] | None = None
    #: Its owners have written less: there are too many terms like theirs (nodes/term_index.py).
    is_widened: bool = False


class VolumeRule(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """On which nodes a volume can be used. ``terms`` as in ``Constraints``.

    ``zones``: values that the node's label of this key may have; the key is a zone's or a region's.
    """

    terms: tuple[Term, ...] | None = None
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Constraints(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """On which nodes a pod may be at all. ``terms`` None: no required node affinity; (): it matches nowhere.

    ``products``: one of these has to be part of the product's name of the node's cards, none of ``not_products``
    (gpu/translation.py, Cards). ``enforced``: words that the node has to enforce (gpu/enforcement.py).
    """

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[Term, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    products: tuple[str, ...] = ()
    not_products: tuple[str, ...] = ()
    enforced: tuple[str, ...] = ()
    #: Nodes that this request of the pod is for; None: all.
    place: Place | None = None
    #: What its volumes ask of the node, those that are alike once.
    volumes: tuple[VolumeRule, ...] = ()
    #: Where its allocated ResourceClaims can be used: terms of each of which one has to hold.
    allocated: tuple[tuple[Term, ...], ...] = ()
    #: Extended resources, and whether the node's device plugin has to offer them, or must not.
    sources: tuple[tuple[str, bool], ...] = ()
    #: What kubelets align of it on NUMA nodes, where that is read.
    aligned: NumaAsk | None = None
    #: What filters have read by themselves, by kind (filters/filter.py).
    asks: tuple[tuple[str, Any], ...] = ()


ANYWHERE = Constraints()
NO_WISHES = Wishes()


class PodClass(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """Everything about a pod that a placement depends on."""

    demand: Demand = Demand()
    request: GpuRequest = NO_GPU
    constraints: Constraints = ANYWHERE
    #: Its containers read KAI's ConfigMaps, which only the binder writes.
    by_config_map: bool = False
    #: Where it goes if the cluster's choice is not its own: ``binpack``, ``spread``, or "".
    strategy: str = ""
    #: UUIDs of devices that alone will do, and of those that won't.
    uuids: tuple[str, ...] = ()
    not_uuids: tuple[str, ...] = ()
    #: Whole requests in order of preference, for when ``request`` fits nowhere.
    alternatives: tuple[GpuRequest, ...] = ()
    #: What its node may be unable to enforce.
    wishes: Wishes = NO_WISHES
    #: Its containers read their memory caps for the driver (gpu/drivercaps.py).
    driver_caps: bool = False
    #: Back ends of nodes' agents that can hold it to its caps, or do where it is bound (gpu/agentlimits.py).
    by_agents: tuple[str, ...] = ()
    #: Its mode, if tenants of another one may not be on its devices (gpu/asked.py).
    mode: str = ""

    #: Where ``request`` and each of the alternatives is meant, without units; empty: everywhere.
    places: tuple[Place, ...] = ()
    #: Volumes that count against a limit of nodes, as (driver, handle).
    attached: tuple[tuple[str, str], ...] = ()
    #: What its claims that are bound with its placement need of volumes, smallest first.
    unbound: tuple[VolumeNeed, ...] = ()
    #: What its ResourceClaims that are not allocated ask of devices.
    devices: tuple[DeviceNeed, ...] = ()
    #: How a claim may give it extended resources, on nodes whose device plugins don't offer them.
    backed: tuple[Backed, ...] = ()
    #: Of a way: which of these it is. The last of ``devices`` is its need.
    backing: Backed | None = None
    #: Where pods are that keep this one off (anti_affinity.py).
    avoids: Domains = frozenset()
    #: Terms of pods that wait themselves and would keep this one off (anti_affinity.py).
    taken_by: frozenset[AntiTerm] = frozenset()
    #: What it asks of the pods around it.
    rules: PodRules | None = None
    #: What it would rather have.
    prefers: PodPreferences | None = None
    #: Terms of other pods by which it is scored beside them (drawing_terms.py).
    drawn_by: frozenset[WeightedTerm] = frozenset()
    #: Nodes that are out for it for a while, because an attempt failed there (backoff.py).
    excluded: frozenset[str] = frozenset()
    #: Seconds after which its kubelet ends it (``activeDeadlineSeconds``), and those that its annotation names; 0: not
    #: known.
    deadline_s: int = 0
    max_runtime_s: int = 0

    def ways(self) -> tuple[PodClass, ...]:
        """A class for each of its requests, best first, with the nodes that this one is for.

        Each of them comes once for each source of its extended resources: device plugins first, then claims.
        """
        ways = self._ways_of_requests()
        if not self.backed:
            return ways
        return tuple(each for way in ways for each in way.ways_by_source())

    def ways_by_source(self) -> Iterator[PodClass]:
        """The same requests, for nodes that offer its extended resources and for those that a claim serves."""
        names_ = dict.fromkeys(name for way in self.backed for name in way.resources)
        for way in (None, *self.backed):
            backing = None if way is None else way.for_request(self.request)
            by_claim = frozenset(() if backing is None else backing.resources)
            yield msgspec.structs.replace(
                self,
                demand=self.demand.by_claim(by_claim),
                request=NO_GPU if backing is not None and backing.is_share else self.request,
                constraints=msgspec.structs.replace(
                    self.constraints, sources=tuple((name, name not in by_claim) for name in names_)
                ),
                devices=self.devices if backing is None else (*self.devices, backing.need),
                backed=(),
                backing=backing,
            )

    def _ways_of_requests(self) -> tuple[PodClass, ...]:
        if not self.places:
            alone = (msgspec.structs.replace(self, request=each, alternatives=()) for each in self.alternatives)
            return (self, *alone)
        return tuple(
            msgspec.structs.replace(
                self,
                request=request,
                alternatives=(),
                places=(),
                constraints=msgspec.structs.replace(self.constraints, place=place),
            )
            for request, place in zip(self.requests(), self.places, strict=True)
        )

    def all_constraints(self) -> tuple[Constraints, ...]:
        """The constraints of all ways, each once."""
        if self.backed:
            return tuple(dict.fromkeys(way.constraints for way in self.ways()))
        if not self.places:
            return (self.constraints,)
        return tuple(dict.fromkeys(msgspec.structs.replace(self.constraints, place=place) for place in self.places))

    def profiles(self) -> set[str]:
        """MIG profiles of which it asks a part, in any way that will do."""
        return {ask.profile for request in self.requests() for ask in request.shared} - {""}

    def requests(self) -> Iterator[GpuRequest]:
        """What will do, best first."""
        yield self.request
        yield from self.alternatives


class Held(msgspec.Struct, frozen=True, gc=False):
    """A bound pod's part of a device. ``nano`` None: bound without a grant, so it is charged what it asks."""

    group: str
    nano: int | None
    reservation: str = ""
    uuid: str = ""
    resource: str = names.GPU_RESOURCE
    compute_percent: int = 0


class ClaimUse(msgspec.Struct, frozen=True, gc=False):
    """A PersistentVolumeClaim that a pod mounts. ``is_own``: made for this pod, of a generic ephemeral volume."""

    name: str
    is_own: bool = False


class PodRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A pod that has not ended: one that names a node, or one of ours that waits.

    ``blocker``: why it may not be placed on any node. ``created`` as written by the API server
    (RFC 3339 UTC with seconds, which sorts as text).
    """

    uid: str
    namespace: str
    name: str
    rv: str
    node: str
    cls: PodClass
    created: str = ""
    priority: int = 0
    task_priority: int = 0
    pod_group: str = ""
    subgroup: str = ""
    gated: bool = False
    deleting: bool = False
    is_reservation: bool = False
    held: tuple[Held, ...] = ()
    #: Of one that is bound: it uses a MIG slice of which the device plugin knows nothing.
    has_legacy_slice: bool = False
    grace_s: int = 30
    blocker: Verdict | None = None
    #: What a pod that waits asks by its record, for what its Binding writes back; None without one.
    recorded: Translation | None = None
    claims: tuple[ClaimUse, ...] = ()
    #: Of one that waits: UID and name of the Job that owns it, "" without one.
    job: str = ""
    job_name: str = ""
    #: Of one that waits and was judged by its claims (claims.py): those that nobody else may use meanwhile.
    alone: tuple[str, ...] = ()
    #: The same of claims, name and UID, that are bound with its placement: one for each of the class's ``unbound``.
    unbound_claims: tuple[tuple[str, str], ...] = ()
    #: ResourceClaims that it uses.
    resource_claims: tuple[ResourceClaimUse, ...] = ()
    #: Of one that waits: the extended resources of its containers, and the claim for them that its status names.
    extended_asks: tuple[ExtendedAsk, ...] = ()
    extended_claim: str = ""
    #: The part of a device that this claim gives it.
    claimed: ClaimedShare | None = None
    #: Of one that waits and was judged by them (resource_claims.py), name and UID: those that are allocated with its
    #: placement, one for each of the class's ``devices``; and those that are allocated, and not reserved for it yet.
    to_allocate: tuple[tuple[str, str], ...] = ()
    to_reserve: tuple[tuple[str, str], ...] = ()
    #: What terms and selectors of pods take it by.
    labels: dict[str, str] = {}
    #: Ports of the host that it has.
    ports: tuple[HostPort, ...] = ()
    #: Disks that its volumes name without a claim.
    disks: tuple[InlineDisk, ...] = ()
    #: CSI driver and handle of each volume that it names without a claim.
    inline_volumes: tuple[tuple[str, str], ...] = ()
    #: Its required anti-affinity.
    keeps_off: tuple[AntiTerm, ...] = ()
    #: Terms by which other pods are scored beside it.
    draws: tuple[WeightedTerm, ...] = ()
    #: UID of what made it and makes its successors, "" if nobody.
    controller: str = ""
    #: The queue that it names, or the default one. "" for pods that count in no queue: those of other schedulers,
    #: reservations, and scaling pods.
    queue: str = ""
    #: Whether it may be preempted, as its label says; None: its priority decides.
    is_preemptible: bool | None = None
    #: Of a bound pod: since when its node runs it, in seconds since the epoch; 0: not known (yet).
    started_s: int = 0
    #: Of a bound pod: what its successor would ask, if it may be moved to another node; None: it may not.
    moves_as: PodClass | None = None
    #: Of a bound pod that counts in no queue: it is another scheduler's, so queues can't divide what it uses.
    is_foreign: bool = False
    #: It is decided on by the scheduler of another node pool (``elsewhere``).
    is_elsewhere: bool = False
    #: What its kubelet aligns of it on NUMA nodes, where that is read.
    aligned: NumaAsk | None = None

    def taken(self, number: int) -> Translation | None:
        """All of what it asks, with the request of this number: 0 is the first. None if there is no such one."""
        return taken(self.recorded or Translation(dialect=PLAIN, request=self.cls.request), number)


class SucceededMember(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A pod of a gang that has succeeded. ``controller``: UID of what made it, "" if nobody.

    ``ended_s``: when its last container ended, in seconds since the epoch by its node's clock; 0: not known.
    """

    uid: str
    namespace: str
    pod_group: str
    subgroup: str
    controller: str
    ended_s: int = 0


class SeenPod(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """All that the core keeps of a pod at one version. A reservation pod that runs has a record as well."""

    uid: str
    rv: str
    has_ended: bool
    record: PodRecord | None
    reservation: Reservation | None
    succeeded: SucceededMember | None = None


class NodeRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A node: where it is, what it has, whom it takes.

    ``smallest_card_mib`` and ``largest_card_mib``: memory of its cards, 0 if unknown. ``is_multiplied``: its plugin
    offers each GPU several times (gpu/multiplied.py). ``single_profile``: what its device plugin calls GPUs are MIG
    slices of this profile, "" if they are cards. ``enforces``: what it can hold pods to, in words (gpu/enforcement.py).
    ``shows_tenants``: its agent shows tenants their own shares.
    """

    name: str
    uid: str
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    is_ready: bool
    is_cordoned: bool
    capacity: Demand
    pods: int
    smallest_card_mib: int = 0
    largest_card_mib: int = 0
    is_mig: bool = False
    is_multiplied: bool = False
    single_profile: str = ""
    enforces: tuple[str, ...] = ()
    shows_tenants: bool = False
    #: Features of its kubelet that pods may need (``status.declaredFeatures``, KEP-5328), as far as a rule reads them.
    declared_features: tuple[str, ...] = ()
    #: Names of the images that are there and their bytes, where the settings count them.
    images: tuple[tuple[str, int], ...] = ()
    #: UUIDs of its cards by index, if its administrator lists them; and how many it has, ill ones included.
    uuids: tuple[str, ...] = ()
    devices: int = 0
    #: It came to the scheduler's node pool from another one a moment ago.
    is_joining: bool = False
    #: What its NUMA nodes have, if its kubelet refuses pods that it can't align.
    numa: NumaRecord | None = None

    @property
    def refuses_shares(self) -> bool:
        """Whether nobody gets a part of a card here, even if one is free."""
        return self.is_mig or self.is_multiplied

    def resource_of(self, profile: str) -> str:
        """What to ask of its device plugin for a device to share: a card, or a slice of a profile; "": it has none."""
        if not profile:
            return "" if self.refuses_shares else names.GPU_RESOURCE
        if self.single_profile:
            wanted = names.GPU_RESOURCE if self.single_profile == profile.replace("+", ".") else ""
        else:
            named = slice_resource(profile)
            wanted = named if any(name == named for name, _ in self.capacity.extended) else ""
        return "" if multiplied.slices_are(self.labels, wanted) else wanted


class PlannedMember(msgspec.Struct, frozen=True, gc=False):
    """Where a gang's written plan puts one pod."""

    node: str
    devices: tuple[PlannedDevice, ...] = ()


class PodGroupRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A gang. ``unsupported`` names a constraint that is not implemented ("": none).

    ``minimum``: pods in all, over all subgroups; ``tree``: minimums of subgroups, which hold besides.
    ``contradiction``: why they mean nothing.

    ``stale_ns``: how long it may run below its minimum before the rest is evicted; None: as long as the scheduler says,
    below zero: for ever. ``unread_stale``: what stands there and is no duration, so that it counts as not said.
    ``stale_since``: since when it has been below its minimum, as its annotation says (not read yet), "" if it doesn't.
    ``delay_ns``: how long it waits before others are evicted for it.
    """

    namespace: str
    name: str
    uid: str
    rv: str
    minimum: int
    created: str = ""
    tree: MinimumTree = MinimumTree()
    contradiction: Contradiction | None = None
    unsupported: str = ""
    stale_ns: int | None = None
    unread_stale: str | None = None
    delay_ns: int = 0
    stale_since: str = ""
    #: What it and its subgroups, by name, ask of the places of their pods; "" is the group itself.
    levels: tuple[tuple[str, LevelConstraint], ...] = ()
    #: UID of the workload that it was made for and goes with, "" if people wrote it.
    controller: str = ""
    #: Pod UID -> place, of a plan that was written and not taken back.
    planned: dict[str, PlannedMember] = {}
    #: The queue of all its pods.
    queue: str = names.DEFAULT_QUEUE
    #: Whether its pods may be preempted; None: their priority decides.
    is_preemptible: bool | None = None
    #: Whether this scheduler decides on it, by its node pool.
    is_elsewhere: bool = False

    @property
    def blocker(self) -> Verdict | None:
        """Why its pods wait on any cluster; nobody can tell then what its minimum means."""
        if self.contradiction is not None:
            return Verdict(code=self.contradiction.code, detail=self.contradiction.subgroup)
        return Verdict(code=Code.UNSUPPORTED_CONSTRAINT, detail=self.unsupported) if self.unsupported else None


class BindRequestRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A hand-over that the binder is carrying out: in flight as much as our own commits."""

    namespace: str
    name: str
    uid: str
    pod_uid: str
    node: str
    rv: str
    devices: tuple[PlannedDevice, ...] = ()
