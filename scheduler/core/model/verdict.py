"""Why a pod or a gang can't be placed: reasons as data.

A verdict holds codes and counts, never text; scheduler/conditions/messages.py renders it, in KAI's words where KAI has
some (kai-contract 4.10). Equal verdicts are equal values, so that conditions are written only when something changed.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

import msgspec


class Code(enum.Enum):
    """What kept a group from being placed. The value is the reason's stable name for machines."""

    #: Nodes were looked at, none fits: ``node_reasons`` says why, by count.
    NO_NODE_FITS = "NoNodeFits"
    #: Some pods fit, fewer than the gang needs: ``placed`` of ``required``.
    GANG_INCOMPLETE = "GangIncomplete"
    #: The gang's pods are not all there yet: ``present`` of ``required``, ``gated`` of them gated.
    GANG_NOT_READY = "GangNotReady"
    #: A hard constraint that is not implemented: ``detail`` names it. Such a pod is never bound.
    UNSUPPORTED_CONSTRAINT = "UnsupportedConstraint"
    #: A large gang that was not tried yet: others of its size failed just before it (unschedulable.py).
    WAITS_FOR_TURN = "WaitsForTurn"
    #: Owned by a gang kind but in no PodGroup: ``detail`` names the owner kind.
    NO_POD_GROUP = "NoPodGroup"
    #: Pods of its owner are grouped by Moorage, and the pod names no PodGroup yet: ``detail`` names the owner's kind.
    NOT_GROUPED = "NotGrouped"
    #: The Job that owns the pod was not seen yet, so that nobody knows whether it asks for a gang: ``detail`` names it.
    OWNER_NOT_SEEN = "OwnerNotSeen"
    #: The scheduler can't read a kind of objects that decides about this pod: ``detail`` names the kind.
    NOT_READ = "NotRead"
    #: ``pod-group-name`` names a PodGroup that is not there: ``detail`` names it.
    POD_GROUP_NOT_FOUND = "PodGroupNotFound"
    #: The PodGroup contradicts itself: ``detail`` names the subgroup, "" is the PodGroup itself, as in all that follow.
    #: Two subgroups have one name.
    GROUP_NAME_TWICE = "SubGroupNameTwice"
    #: The subgroup's parent is not there.
    GROUP_PARENT_NOT_FOUND = "SubGroupParentDoesNotExist"
    #: The subgroup's parents form a cycle.
    GROUP_CYCLE = "SubGroupCycle"
    #: It has a minimum of pods and one of subgroups.
    GROUP_TWO_MINIMUMS = "TwoMinimums"
    #: The subgroup has a minimum of subgroups and none below it.
    GROUP_NO_CHILDREN = "MinSubGroupOfLeaf"
    #: The request can't be read: ``detail`` is the refusal's message.
    INVALID_REQUEST = "InvalidRequest"
    #: A share pod whose containers can't see their device (it slipped past admission): never bound.
    NOT_ADMITTED = "NotAdmitted"
    #: An earlier attempt failed: ``detail`` says how; it waits until ``wake_at``.
    BACKING_OFF = "BackingOff"
    #: An idle reservation is being removed for it; ``detail`` names the node.
    WAITING_FOR_DEVICE = "WaitingForDevice"
    #: Pods are being evicted for it: of ``required`` that have to go, ``present`` are gone; ``detail`` names the node,
    #: if it is one only.
    WAITS_FOR_VICTIMS = "WaitsForVictims"
    #: It has waited so long that nodes are kept for it until it fits there: ``reserve`` names them.
    WAITS_FOR_RESERVED_NODES = "WaitsForReservedNodes"
    #: MIG slices are being made for it: ``detail`` names the nodes.
    PARTITIONING_UNDER_WAY = "PartitioningUnderWay"
    #: It waits for the MIG slices that ``detail`` names, and on none of the GPUs that are offered for it they can be
    #: made now so that it starts.
    NO_GPU_CAN_BE_PARTITIONED = "NoGpuCanBePartitioned"
    #: A PersistentVolumeClaim that the pod mounts is not there: ``detail`` names it, as all that follow do.
    CLAIM_NOT_FOUND = "ClaimNotFound"
    #: The claim of a generic ephemeral volume has not been made yet.
    CLAIM_NOT_MADE = "ClaimNotMade"
    #: The claim of a generic ephemeral volume was there before: it is not the pod's.
    CLAIM_NOT_OWN = "ClaimNotOwn"
    #: The claim's volume is gone for good.
    CLAIM_LOST = "ClaimLost"
    #: The claim is being deleted.
    CLAIM_LEAVING = "ClaimLeaving"
    #: The claim is not bound to a volume yet, and that is not for a scheduler to do.
    CLAIM_UNBOUND = "ClaimUnbound"
    #: The claim is bound with its first pod's placement, and its size or its selector can't be read.
    CLAIM_NOT_READABLE = "ClaimNotReadable"
    #: One pod at a time may use the claim (ReadWriteOncePod), and another does.
    CLAIM_IN_USE = "ClaimInUse"
    #: The claim is bound to a volume that is not there: ``detail`` names the volume.
    VOLUME_NOT_FOUND = "VolumeNotFound"
    #: ConfigMaps that the pod names as required are not there: ``detail`` names them.
    CONFIG_MAP_NOT_FOUND = "ConfigMapNotFound"
    #: A ResourceClaim that the pod names is not there: ``detail`` names it, as all that follow do.
    RESOURCE_CLAIM_NOT_FOUND = "ResourceClaimNotFound"
    #: The claim is to be made from a template, and was not made yet: ``detail`` is what the pod calls it.
    RESOURCE_CLAIM_NOT_MADE = "ResourceClaimNotMade"
    #: The claim was made for another pod.
    RESOURCE_CLAIM_NOT_OWN = "ResourceClaimNotOwn"
    #: The claim was made for a PodGroup of Kubernetes' Workload API that the pod is not in.
    RESOURCE_CLAIM_OF_GROUP = "ResourceClaimOfPodGroup"
    #: The claim is being deleted.
    RESOURCE_CLAIM_LEAVING = "ResourceClaimLeaving"
    #: As many pods as may use the claim do.
    RESOURCE_CLAIM_IN_USE = "ResourceClaimInUse"
    #: A device of the claim failed, and other pods use the claim, so it is not given back.
    RESOURCE_CLAIM_FAILED = "ResourceClaimFailed"
    #: The claim was reserved for the pod in a way that can't be used any more, and is given back.
    RESOURCE_CLAIM_GIVEN_BACK = "ResourceClaimGivenBack"
    #: A DeviceClass that a claim names is not there: ``detail`` names the class.
    DEVICE_CLASS_NOT_FOUND = "DeviceClassNotFound"
    #: The queue of the pod, or one above it, is at its limit: ``detail`` names the pod's queue, as in all that follow,
    #: and ``queue`` says where and by how much.
    OVER_LIMIT = "OverLimit"
    #: The pods can't be preempted, and would use more than the queue's quota.
    OVER_QUOTA = "NonPreemptibleOverQuota"
    #: There is no Queue of that name; if ``queue.pool`` is not empty, there is one in that node pool.
    QUEUE_NOT_FOUND = "QueueDoesNotExist"
    #: The queue has queues below it, and takes no pods itself.
    QUEUE_NOT_LEAF = "QueueNotLeaf"
    #: A parent is not there: ``queue.at`` names it.
    QUEUE_PARENT_NOT_FOUND = "QueueParentDoesNotExist"
    #: The parents form a circle that ``queue.at`` is part of.
    QUEUE_CYCLE = "QueueCycle"
    #: More queues stand above it than ``required``.
    QUEUE_TOO_DEEP = "QueueTooDeep"
    #: A PodGroup asks for a place by a Topology that is not there: ``detail`` names it.
    TOPOLOGY_NOT_FOUND = "TopologyNotFound"
    #: The Topology has no such level: ``topology`` names both.
    TOPOLOGY_LEVEL_NOT_FOUND = "TopologyLevelNotFound"
    #: Several Topologies have the level, with other levels above it: ``topology`` names them and the level.
    TOPOLOGY_AMBIGUOUS = "TopologyAmbiguous"
    #: No domain of the required level takes all pods: ``topology`` names the best ones.
    TOPOLOGY_NOT_SATISFIED = "TopologyNotSatisfied"
    #: As before, and the search ended before all domains were tried.
    TOPOLOGY_SEARCH_CUT = "TopologySearchCut"
    #: A field of ``queue.at`` has a value without meaning: ``queue.field`` and ``queue.value``.
    QUEUE_CLOSED = "QueueClosed"


#: Another pod has a claim: nothing that happens on nodes changes that.
CLAIMS_IN_USE: Final = frozenset({Code.CLAIM_IN_USE, Code.RESOURCE_CLAIM_IN_USE})


class NodeReason(msgspec.Struct, frozen=True, gc=False, order=True):
    """One reason that keeps a number of nodes out. ``resource`` for "not enough of it", else "".

    ``kind``: ``insufficient`` | ``not-ready`` | ``cordoned`` | ``taint`` | ``selector`` | ``affinity`` |
    ``enforced-affinity`` | ``disks`` | ``features`` | ``pods`` |
    ``no-gpu-memory-label`` | ``excluded`` (earlier attempt failed there) | ``mig`` | ``probation`` (owes an answer) |
    ``contended`` (pods use a GPU that their reservation lost) | ``silent`` (a reservation with tenants tells no GPU) |
    ``place`` (what the pod asks is served in no way there) | ``ill`` (a shared GPU is unhealthy) | ``cards`` (GPUs of a
    product that the pod doesn't take) | ``pinned`` (no GPU known to be one that the pod takes by index or UUID; and of
    one that is known: ``pinned-full`` (it is shared and has not enough left), ``pinned-whole`` (it is a whole-GPU
    pod's), ``pinned-room`` (it may be free, and the node has no room left to open devices until it comes)) |
    ``exclusion`` (it would open a device only because the pod excludes those in use that have room) |
    ``volume-affinity`` and ``volume-zone`` (a volume of the pod can't be used there) | ``volumes`` (the node takes no
    more volumes of a CSI driver) | ``volume-binding`` (no volume for a claim that is not bound, and none is made there)
    | ``volume-space`` (there is no space for one) | ``claim-place`` (an allocated ResourceClaim can't be used there) |
    ``claim-devices`` (no devices for a ResourceClaim) | ``claim-kept`` (some are kept for a pod that vanished: see the
    verdict's ``kept``) | ``claim-pool`` (a pool of devices is incomplete or invalid) |
    ``claims-only`` (no device plugin offers GPUs there, and claims give them) |
    ``claims-whole`` (claims give GPUs there, and its driver lets no two claims share one) |
    ``claim-selector`` (a selector of a ResourceClaim has no answer there) | ``claim-search`` (the search was cut) |
    ``resource-source`` (the node's device plugins offer some of the extended resources that a claim could give) |
    ``time-slices`` (it offers each GPU several times, and the pod asks for several) |
    ``numa`` (its kubelet can't align the pod even on an empty node) | ``numa-free`` (nor now, with what is in use) |
    ``others-anti-affinity`` (a pod is there, or in the same domain, that keeps it off) |
    ``reserve`` (it is kept for another group, which the verdict's ``reserve`` names).
    ``resource``: Kubernetes name, or ``gpu-share`` / ``gpu-memory`` for parts of a device.
    """

    kind: str
    resource: str
    nodes: int


#: Kinds that say of a node that nobody may be there now. They come and go with nodes, for all pods alike, and are no
#: reason of their own where other nodes are no help either.
OF_NODES: Final = frozenset({"not-ready", "cordoned"})


class QueueCause(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Why a queue takes no more: ``at`` is the queue itself or one above it.

    ``resource``: ``cpu`` | ``memory`` | ``gpu``; ``most``, ``held`` and ``asked`` in its smallest unit (quota.py).
    ``field`` and ``value``: of a Queue object. ``pool``: ``at`` is a queue of that node pool, and not of ``here``.
    """

    at: str
    resource: str = ""
    most: int = 0
    held: int = 0
    asked: int = 0
    field: str = ""
    value: str = ""
    pool: str = ""
    here: str = ""


class SubgroupShort(msgspec.Struct, frozen=True, gc=False):
    """The part of a gang that is short: it needs ``required`` pods, or subgroups that are whole, and has ``present``.

    ``name`` "": the gang itself. ``gated``: of its pods. ``stray``: a subgroup that waiting pods name and the PodGroup
    does not count pods in.
    """

    name: str
    required: int
    present: int
    gated: int = 0
    is_of_subgroups: bool = False
    stray: str = ""


class ReserveCause(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Nodes that are kept for ``owner``, a pod or a PodGroup with its namespace, which waits since ``since_s``.

    That is the time of its creation, in seconds since the epoch: how long it waits would be another text each minute.
    ``queue``: the owner's, which readers of other namespaces are told in place of its name.
    """

    owner: str
    since_s: int
    queue: str = ""
    nodes: tuple[str, ...] = ()


class KeptDevices(msgspec.Struct, frozen=True, gc=False, order=True):
    """Devices of a node that are kept for a pod (with its namespace) of which only its program may be left."""

    node: str
    pod: str


class DomainRoom(msgspec.Struct, frozen=True, gc=False):
    """How many of the pods a domain takes, as far as can be told without placing them."""

    name: str
    pods: int


class TopologyCause(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Which level of a Topology keeps pods waiting. ``owner``: the PodGroup with its namespace.

    ``subgroup`` "": the gang itself. ``required``: pods that one domain has to take. ``best``: domains with most room.
    """

    topology: str
    level: str
    is_required: bool = True
    owner: str = ""
    subgroup: str = ""
    required: int = 0
    best: tuple[DomainRoom, ...] = ()


class Reasons(NamedTuple):
    """What a verdict says without its counts. A change of this is written at once; counts may be a while old."""

    code: Code
    detail: str
    required: int
    kinds: frozenset[tuple[str, str]]
    queue: tuple[str, str] | None = None
    reserve: tuple[str, tuple[str, ...]] | None = None
    topology: tuple[str, str, str] | None = None


class Verdict(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Why a group waits. ``shortfall`` is the smallest change known to help, in ``resource`` units."""

    code: Code
    node_reasons: tuple[NodeReason, ...] = ()
    placed: int = 0
    required: int = 1
    present: int = 0
    gated: int = 0
    detail: str = ""
    #: ("nano_gpu" | "gpu" | "cpu_milli" | "mem_mib" | ..., least additional amount on the best node), if known.
    shortfall: tuple[str, int] | None = None
    queue: QueueCause | None = None
    #: Of a gang with subgroups: the one that is short.
    subgroup: SubgroupShort | None = None
    #: Who the nodes are kept for that the group would fit on; of ``WAITS_FOR_RESERVED_NODES``: the group itself, and
    #: its nodes.
    reserve: ReserveCause | None = None
    topology: TopologyCause | None = None
    #: Of nodes that are out by ``claim-kept``: some of the pods for which devices are kept.
    kept: tuple[KeptDevices, ...] = ()
    #: Of nodes that are out by ``claim-selector``: what is wrong on the first of them.
    selector: str = ""

    @property
    def reasons(self) -> Reasons:
        """The verdict without its counts."""
        kinds = frozenset((reason.kind, reason.resource) for reason in self.node_reasons)
        lasting = frozenset(each for each in kinds if each[0] not in OF_NODES)
        queue = (self.queue.at, self.queue.resource) if self.queue is not None else None
        reserve = (self.reserve.owner, self.reserve.nodes) if self.reserve is not None else None
        level = (
            (self.topology.topology, self.topology.level, self.topology.subgroup) if self.topology is not None else None
        )
        return Reasons(self.code, self.detail, self.required, lasting or kinds, queue, reserve, level)
