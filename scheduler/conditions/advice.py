"""What to do about each reason that a pod can wait for: the table of docs/pending.md, and the link to its rows.

The documentation explains reasons on one page, under one stable name for each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from scheduler.core.model.preemption import Kept
from scheduler.core.model.verdict import Code

#: The page, in the repository and on the site.
PAGE: Final = "docs/pending.md"
_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def anchor(reason: str) -> str:
    """Return the stable name of a reason: of ``NoNodeFits`` it is ``no-node-fits``."""
    return _CAPITAL.sub("-", reason).lower()


def link(reason: str) -> str:
    """Return the page with the place that explains a reason."""
    return f"{PAGE}#{anchor(reason)}"


_MEND_CLAIM: Final = "Mend the claim (`kubectl describe pvc NAME`); the pod is placed as soon as the claim is bound."
_MEND_GROUP: Final = "Mend the PodGroup's `spec.subGroups`; the message names the subgroup."
_RESERVATIONS: Final = "See [reservation pods](operate.md#reservation-pods-pile-up-or-do-not-start)."

#: By the verdict's code.
OF_CODES: Final[Mapping[Code, str]] = {
    Code.NO_NODE_FITS: "Look at the nodes by reason below; `explain` prints the changes that would let it start.",
    Code.GANG_INCOMPLETE: "The gang needs more room at once. A smaller `minMember`, smaller pods, or more nodes.",
    Code.GANG_NOT_READY: "Its controller has not created all pods yet, or some are gated: look at the workload.",
    Code.UNSUPPORTED_CONSTRAINT: "Leave out the constraint that the message names ([which](limits.md)).",
    Code.WAITS_FOR_TURN: "Nothing: a large gang gets its turn within seconds.",
    Code.NO_POD_GROUP: "Create a PodGroup and name it in the pod template, or let Moorage [group](grouping.md).",
    Code.NOT_GROUPED: "Look for Events `PodGrouperWarning` of the pod, and whether `moorage-workloads` runs.",
    Code.OWNER_NOT_SEEN: "Nothing: the pod is placed when the scheduler has received the Job.",
    Code.NOT_READ: "Grant the scheduler the right that its log names.",
    Code.POD_GROUP_NOT_FOUND: "Create the PodGroup, or mend annotation `pod-group-name`.",
    Code.GROUP_NAME_TWICE: _MEND_GROUP,
    Code.GROUP_PARENT_NOT_FOUND: _MEND_GROUP,
    Code.GROUP_CYCLE: _MEND_GROUP,
    Code.GROUP_TWO_MINIMUMS: _MEND_GROUP,
    Code.GROUP_NO_CHILDREN: _MEND_GROUP,
    Code.INVALID_REQUEST: "Mend the request; `moorage lint FILE` says the same without a cluster.",
    Code.NOT_ADMITTED: "Create the pod again while the admission webhook runs.",
    Code.BACKING_OFF: "Nothing: it is tried again. If it fails again and again, look at the node that is named.",
    Code.WAITING_FOR_DEVICE: "Nothing: the scheduler removes the reservation, then starts the pod.",
    Code.WAITS_FOR_ROOM: "Nothing: pods were evicted for it, and it starts when they have ended. `explain` lists them.",
    Code.WAITS_FOR_BERTH: "Nothing: nodes are kept for it, and it starts when enough of the pods there have ended.",
    Code.CARVING_UNDER_WAY: "Nothing: the agent of the node makes [MIG slices](mig.md), within a minute.",
    Code.NO_CARD_CAN_BE_CARVED: "Wait until slices come free, or offer more GPUs ([MIG slices](mig.md)).",
    Code.CLAIM_NOT_FOUND: _MEND_CLAIM,
    Code.CLAIM_NOT_MADE: "Nothing: the pod is placed when kube-controller-manager has created the claim.",
    Code.CLAIM_NOT_OWN: "Delete the claim of that name, which another pod left.",
    Code.CLAIM_LOST: _MEND_CLAIM,
    Code.CLAIM_LEAVING: _MEND_CLAIM,
    Code.CLAIM_UNBOUND: _MEND_CLAIM,
    Code.CLAIM_NOT_READABLE: _MEND_CLAIM,
    Code.CLAIM_IN_USE: "Wait until the other pod has ended, or use a claim that several pods may mount.",
    Code.RESOURCE_CLAIM_NOT_FOUND: "Create the ResourceClaim, or name another one in the pod.",
    Code.RESOURCE_CLAIM_NOT_MADE: "Look for the template: `kubectl get resourceclaimtemplates`.",
    Code.RESOURCE_CLAIM_NOT_OWN: "Delete the ResourceClaim of that name, which another pod left.",
    Code.RESOURCE_CLAIM_OF_GROUP: "Delete the ResourceClaim of that name, which belongs to another PodGroup.",
    Code.RESOURCE_CLAIM_LEAVING: "Wait until it is gone, then create it again.",
    Code.RESOURCE_CLAIM_IN_USE: "Use another ResourceClaim: 256 pods may use one.",
    Code.RESOURCE_CLAIM_FAILED: "Look at `status.devices` of the claim; end the pods that use it.",
    Code.RESOURCE_CLAIM_GIVEN_BACK: "Nothing: the claims are allocated again, and the pod is placed then.",
    Code.DEVICE_CLASS_NOT_FOUND: "Create the DeviceClass, or name another one in the claim.",
    Code.VOLUME_NOT_FOUND: "Create the volume, or bind the claim to another one.",
    Code.OVER_LIMIT: "Raise the limit, use another queue, or wait until pods of the queue have ended.",
    Code.OVER_QUOTA: "Make the workload preemptible, raise the quota, or use another queue.",
    Code.QUEUE_NOT_FOUND: "Name a queue that exists in label `kai.scheduler/queue`, or create it.",
    Code.QUEUE_NOT_LEAF: "Name one of the queues below it.",
    Code.QUEUE_PARENT_NOT_FOUND: "Create the parent, or mend `spec.parentQueue`.",
    Code.QUEUE_CYCLE: "Mend `spec.parentQueue` of one of the queues.",
    Code.QUEUE_TOO_DEEP: "Leave out some of the levels.",
    Code.TOPOLOGY_NOT_FOUND: "Create the Topology, or name one that exists ([topology](topology.md)).",
    Code.TOPOLOGY_LEVEL_NOT_FOUND: "Name a level that the Topology has.",
    Code.TOPOLOGY_AMBIGUOUS: "Name the Topology in annotation `kai.scheduler/topology` of the workload.",
    Code.TOPOLOGY_NOT_SATISFIED: "Prefer the level instead of requiring it, require a coarser one, or use fewer pods.",
    Code.TOPOLOGY_SEARCH_CUT: "The search ended before all nodes were tried: prefer the level, or use fewer pods.",
    Code.QUEUE_CLOSED: "Mend the field of the queue that the message names.",
}

#: By the kind of the reason that keeps nodes out.
OF_NODES: Final[Mapping[str, str]] = {
    "insufficient": "Request less of what is named, end something, or add nodes; `explain` prints the amounts.",
    "pods": "The node has as many pods as it may have: raise kubelet's `maxPods`, or add nodes.",
    "no-gpu-memory-label": "Run NVIDIA's GPU feature discovery, or set label `nvidia.com/gpu.memory`.",
    "excluded": "Nothing: the node is tried again after a while.",
    "probation": _RESERVATIONS,
    "contended": "See Events `GPULost` of the pods there.",
    "silent": _RESERVATIONS,
    "ill": "Mend the GPU, or drain the node.",
    "mode": "Use the same mode as the pods there, or wait for a GPU of its own.",
    "compute": "Request less compute.",
    "pinned": "Name another index or UUID, or none.",
    "pinned-full": "Name another GPU, or request less.",
    "pinned-whole": "Name another GPU, or wait until the pod that has it has ended.",
    "pinned-room": "Wait until something on the node has ended, or name another GPU.",
    "exclusion": "Exclude fewer GPUs.",
    "multiplied": "Turn time-slicing off in the device plugin of nodes whose GPUs are to be shared.",
    "volumes": "Mount fewer volumes of that CSI driver, or add nodes.",
    "volume-binding": "Create volumes for these nodes, or use a StorageClass that does ([volumes](design/volumes.md)).",
    "volume-space": "Request a smaller volume, or free space at the storage driver.",
    "numa": "Request fewer devices and CPUs per container, or use nodes with another policy ([NUMA](numa.md)).",
    "numa-free": "Wait until pods there have ended, or request fewer devices or CPUs ([NUMA](numa.md)).",
    "claim-devices": "Request fewer or other devices, end pods that use some, or add nodes.",
    "claim-kept": "Wait: it takes about two minutes and the grace period of the pod that was deleted by force.",
    "claim-pool": "Look at the driver: `kubectl get resourceslices`.",
    "claim-selector": "Mend the selector of the claim or its DeviceClass, or write one that takes less time.",
    "claim-search": "Use fewer requests or constraints in the claim.",
    "claim-place": "Nothing: the claim holds its pods to the nodes of its devices.",
    "claims-only": (
        "Turn on `shares-by-claims` of admission, and request a part of one GPU; or use nodes with a device plugin "
        "([claims](resource-claims.md#shares))."
    ),
    "claims-whole": (
        "Request whole GPUs there, or let the driver publish them with `allowMultipleAllocations` "
        "([claims](resource-claims.md#shares))."
    ),
    "mig": "Request a MIG slice there, or use nodes without MIG.",
    "berth": "Wait: another group has waited longer, and starts there first.",
    "node-pool": "Label the pod or its PodGroup with the pool of these nodes ([node pools](node-pools.md)).",
    "not-ready": "Look at the node: `kubectl describe node NAME`.",
    "cordoned": "Uncordon the node: `kubectl uncordon NAME`.",
    "taint": "Tolerate the taint, if the pod may be there.",
    "selector": "Change `nodeSelector`, or label nodes.",
    "enforced-affinity": "Label nodes as `--enforced-node-affinity` of the scheduler asks for all pods.",
    "affinity": "Change the required node affinity or `nodeSelector`, or label nodes.",
    "place": "Request something that these nodes serve.",
    "resource-source": "Request fewer kinds of extended resources in one pod.",
    "cards": "Accept further GPU products, or none by name.",
    "enforcement": "Use nodes that enforce limits, or leave the requirement out ([which](enforcement.md)).",
    "driver-caps": "Use nodes with `memory-cap=driver` ([hard memory caps](enforcement.md#hard-memory-caps)).",
    "volume-affinity": "Use a volume that these nodes can reach.",
    "volume-zone": "Use a volume of the nodes' zone.",
    "others-anti-affinity": "Change the pod's labels, or the anti-affinity of the pods there.",
    "pod-affinity": "Run the pods that it wants to be with first, or leave the affinity out.",
    "pod-anti-affinity": "Leave the anti-affinity out, or add nodes.",
    "spread": "Raise `maxSkew`, label nodes, or leave the constraint out.",
    "spread-label": "Label the nodes with the constraint's `topologyKey`.",
    "disks": "Wait until the pod there that uses the disk has ended, or mount it read-only in both.",
    "features": "Use nodes whose kubelet has the feature, or leave out what needs it.",
    "host-ports": "Leave out `hostPort`, or use another port.",
}

#: By what protects a pod that could be evicted.
OF_KEPT: Final[Mapping[Kept, str]] = {
    Kept.NOT_PREEMPTIBLE: "They run to their end. Their label `kai.scheduler/preemptibility` or priority says so.",
    Kept.PRIORITY: "Give the waiting group a higher priority, if it should go first.",
    Kept.IN_SHARE: "Nothing is wrong: their queue uses what it may ([who may take from whom](preemption.md)).",
    Kept.MIN_RUNTIME: "Wait until the time that is printed, or shorten the minimum runtime of the queue.",
    Kept.PROTECTED: "Wait until the time that is printed.",
    Kept.BUDGET: "Look at the PodDisruptionBudgets of the namespace.",
    Kept.BUSY: "Wait: they are going, or are starting.",
}
