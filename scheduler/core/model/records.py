"""Slim records: what the core keeps of the API's objects. Wire types end in ``convert``."""

from __future__ import annotations

from collections import Counter

import msgspec

from gpu import node_resources
from gpu.bind_request import PlannedDevice
from gpu.bound_pod import ClaimedShare
from gpu.grant import Charged
from gpu.node_resources import slice_resource
from gpu.reservation import Reservation
from gpu.translate.asked import PLAIN, taken
from gpu.translation import Translation
from scheduler.core.model.device_requests import ExtendedAsk, ResourceClaimUse
from scheduler.core.model.minimum_tree import Contradiction, MinimumTree
from scheduler.core.model.numa import NumaAsk, NumaRecord
from scheduler.core.model.pod_class import AntiTerm, Demand, HostPort, InlineDisk, PodClass, WeightedTerm
from scheduler.core.model.verdict import Code, Verdict
from wire import names
from wire.core import Taint


class LevelConstraint(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Within one domain of which level pods have to be, or had better be; "": not asked. As it was written."""

    topology: str
    required: str = ""
    preferred: str = ""


class TopologyLevel(msgspec.Struct, frozen=True, gc=False):
    """A level: nodes with the same value of the label are one domain. ``alias``: another name of it, "" without one."""

    label: str
    alias: str = ""


class TopologyRecord(msgspec.Struct, frozen=True, gc=False):
    """A Topology: its levels from coarse to fine."""

    name: str
    levels: tuple[TopologyLevel, ...]

    @property
    def key(self) -> str:
        """Topologies are known by their name."""
        return self.name

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of its levels, coarse to fine."""
        return tuple(level.label for level in self.levels)

    def depth_of(self, level: str) -> int | None:
        """How many levels there are down to the one of this label or alias; None if it has no such level."""
        found = (depth for depth, each in enumerate(self.levels, 1) if level in {each.label, each.alias})
        return next(found, None) if level else None


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


class PlainOwner(msgspec.Struct, frozen=True, gc=False):
    """A ReplicaSet, StatefulSet or Deployment: ``key`` is its identity."""

    kind: str
    key: str
    name: str


class Priority(msgspec.Struct, frozen=True, gc=False):
    """A priority, and whether others may be evicted for a pod of that priority class."""

    value: int
    may_evict: bool = True


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
    #: As it counts: of its PodGroup's class (groups/priority.py), then with its spec's own beside it, else of its spec.
    priority: int = 0
    own_priority: Priority | None = None
    #: Whether others may be evicted for it, by its preemptionPolicy.
    may_evict: bool = True
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
    #: Of one that waits: identity and name of the Job that owns it, "" without one.
    job: str = ""
    job_name: str = ""
    #: Of one that waits: nobody makes a PodGroup for it, as its annotations say.
    is_ungrouped: bool = False
    #: Of one that waits: a ReplicaSet or StatefulSet that may say more of its group than it does itself (``stated``).
    plain_owner: PlainOwner | None = None
    stated: frozenset[tuple[str, str]] = frozenset()
    #: Of one that waits and was judged by its claims (claims.py): those that nobody else may use meanwhile.
    alone: tuple[str, ...] = ()
    #: The same of claims, name and UID, that are bound with its placement: one for each of the class's ``unbound``.
    unbound_claims: tuple[tuple[str, str], ...] = ()
    #: ResourceClaims that it uses.
    resource_claims: tuple[ResourceClaimUse, ...] = ()
    #: Of one that waits: names of ConfigMaps without which no kubelet starts it.
    config_maps: tuple[str, ...] = ()
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
    #: It has more labels than are kept: which terms and selectors take it is in doubt (convert/bounds.py).
    are_labels_cut: bool = False
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
    #: Identity of what made it and makes its successors (convert/owners.py), "" if nobody.
    controller: str = ""
    #: What a bound pod was placed for: it counts so until it ends, also when its labels or its PodGroup change.
    charged: Charged | None = None
    #: The queue that it was placed for, else the one that it names, or the default one. "" for pods that count in no
    #: queue: those of other schedulers, reservations, and scaling pods.
    queue: str = ""
    #: Whether it may be preempted, as it was placed, else as its label says; None: its priority decides.
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
    """A pod of a gang that has succeeded. ``controller``: as of a PodRecord.

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
    offers each GPU several times (gpu/node_resources.py). ``single_profile``: what its device plugin calls GPUs are MIG
    slices of this profile, "" if they are cards. ``enforces``: what it can hold pods to, in words (gpu/limits.py).
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
        return "" if node_resources.slices_are(self.labels, wanted) else wanted


class PlannedMember(msgspec.Struct, frozen=True, gc=False):
    """Where a gang's written plan puts one pod."""

    node: str
    devices: tuple[PlannedDevice, ...] = ()


class Minimums(msgspec.Struct, frozen=True, gc=False):
    """What a gang needs: pods in all, and the minimums of its subgroups."""

    pods: int
    tree: MinimumTree

    @property
    def all_pods(self) -> int:
        """Pods that it needs in all."""
        return max(self.pods, self.tree.fewest)

    def are_met(self, there: Counter[str]) -> bool:
        """Whether these pods by subgroup are enough."""
        return self.pods <= there.total() and self.tree.is_satisfied(there)


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
    #: The last minimums that its pods had, since when the minimums were raised; None: they have those that count now,
    #: or have lost members. ``written_kept``: the same as its annotation says.
    kept: Minimums | None = None
    written_kept: Minimums | None = None
    #: What it and its subgroups, by name, ask of the places of their pods; "" is the group itself.
    levels: tuple[tuple[str, LevelConstraint], ...] = ()
    #: Identity of the workload that it was made for and goes with, "" if people wrote it.
    controller: str = ""
    #: Pod UID -> place, of a plan that was written and not taken back.
    planned: dict[str, PlannedMember] = {}
    #: The queue of all its pods.
    queue: str = names.DEFAULT_QUEUE
    #: Whether its pods may be preempted; None: their priority decides.
    is_preemptible: bool | None = None
    #: The class whose priority its pods have, "" for their own. ``unread``: it may exist, and these were not read.
    priority_class: str = ""
    unread: str = ""
    #: Whether this scheduler decides on it, by its node pool.
    is_elsewhere: bool = False

    @property
    def minimums(self) -> Minimums:
        """What it needs."""
        return Minimums(self.minimum, self.tree)

    @property
    def blocker(self) -> Verdict | None:
        """Why its pods wait on any cluster; nobody can tell then what its minimum means."""
        if self.contradiction is not None:
            return Verdict(code=self.contradiction.code, detail=self.contradiction.subgroup)
        if self.unread:
            return Verdict(code=Code.NOT_READ, detail=self.unread)
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
    charged: Charged | None = None
