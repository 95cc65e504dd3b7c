"""What to do about each reason that a pod can wait for: the table of docs/pending.md, and the command that prints it.

The documentation explains reasons on one page, under one stable name for each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from scheduler.core.model.preemption import Kept
from scheduler.core.model.verdict import Code

_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def anchor(reason: str) -> str:
    """Return the stable name of a reason: of ``NoNodeFits`` it is ``no-node-fits``."""
    return _CAPITAL.sub("-", reason).lower()


def link(reason: str) -> str:
    """Return the command that prints what to do about a reason."""
    return f"moorage explain reason {anchor(reason)}"


_MEND_CLAIM: Final = "Repair the claim (`kubectl describe pvc NAME`). The pod is placed once it is bound."
_MEND_GROUP: Final = "Correct the subgroup in `spec.subGroups` that the message names."
_GOES_ON: Final = "Nothing: it goes on automatically."
_DELETE_CLAIM: Final = "Delete the claim of that name, which another pod or PodGroup left."
_CORRECT_QUEUE: Final = "Correct the queue that the message names."
_TOPOLOGY: Final = "See [what helps](topology.md#why-a-gang-waits)."
_PINNED: Final = "Name another GPU or none, or wait for pods there to end."
_NUMA: Final = "Request less per container, wait, or use nodes with another policy ([NUMA](numa.md))."
_SHARES: Final = "See [what shares by claims need](resource-claims.md#shares), or use other nodes."
_ENFORCING: Final = "Use nodes that [enforce limits](enforcement.md), or remove the requirement."
_LABELS: Final = "Change `nodeSelector` or the affinity, or label nodes."
_REACHED: Final = "Use a volume that these nodes can reach."
_AFFINITY: Final = "Change the labels or the affinity, or run the other pods first."
_SPREAD: Final = "Raise `maxSkew`, label nodes, or remove the constraint."
_RESERVATIONS: Final = "See [reservation pods](operate.md#reservation-pods-pile-up-or-do-not-start)."

#: By the verdict's code.
OF_CODES: Final[Mapping[Code, str]] = {
    Code.NO_NODE_FITS: "See the nodes below; `explain` prints changes that help.",
    Code.GANG_INCOMPLETE: "Lower `minMember`, request less per pod, or add nodes.",
    Code.GANG_NOT_READY: "Look at the workload: pods are missing or gated.",
    Code.UNSUPPORTED_CONSTRAINT: "Remove the constraint that the message names ([limits](limits.md)).",
    Code.WAITS_FOR_TURN: _GOES_ON,
    Code.NO_POD_GROUP: "Create and name a PodGroup, or turn on [grouping](grouping.md).",
    Code.NOT_GROUPED: "See events `PodGrouperWarning`; check that `moorage-podgrouper` runs.",
    Code.OWNER_NOT_SEEN: _GOES_ON,
    Code.NOT_READ: "Grant the scheduler `list` and `watch` on these; else see its log.",
    Code.POD_GROUP_NOT_FOUND: "Create the PodGroup, or correct annotation `pod-group-name`.",
    Code.GROUP_NAME_TWICE: _MEND_GROUP,
    Code.GROUP_PARENT_NOT_FOUND: _MEND_GROUP,
    Code.GROUP_CYCLE: _MEND_GROUP,
    Code.GROUP_TWO_MINIMUMS: _MEND_GROUP,
    Code.GROUP_NO_CHILDREN: _MEND_GROUP,
    Code.INVALID_REQUEST: "Correct the request; check it with `moorage lint FILE`.",
    Code.NOT_ADMITTED: "Create the pod again while the admission webhook runs.",
    Code.BACKING_OFF: "Nothing: it is tried again. If it keeps failing, look at the named node.",
    Code.WAITING_FOR_DEVICE: _GOES_ON,
    Code.WAITS_FOR_VICTIMS: _GOES_ON,
    Code.WAITS_FOR_RESERVED_NODES: _GOES_ON,
    Code.PARTITIONING_UNDER_WAY: _GOES_ON,
    Code.NO_GPU_CAN_BE_PARTITIONED: "Wait for free slices, or offer more GPUs ([MIG](mig.md)).",
    Code.CLAIM_NOT_FOUND: _MEND_CLAIM,
    Code.CLAIM_NOT_MADE: _GOES_ON,
    Code.CLAIM_NOT_OWN: _DELETE_CLAIM,
    Code.CLAIM_LOST: _MEND_CLAIM,
    Code.CLAIM_LEAVING: _MEND_CLAIM,
    Code.CLAIM_UNBOUND: _MEND_CLAIM,
    Code.CLAIM_NOT_READABLE: _MEND_CLAIM,
    Code.CLAIM_IN_USE: "Wait for the other pod to end, or use a claim that several pods may mount.",
    Code.CONFIG_MAP_NOT_FOUND: "Create the ConfigMap, or mark it as `optional` in the pod.",
    Code.RESOURCE_CLAIM_NOT_FOUND: "Create the ResourceClaim, or name another one in the pod.",
    Code.RESOURCE_CLAIM_NOT_MADE: "Look for the template: `kubectl get resourceclaimtemplates`.",
    Code.RESOURCE_CLAIM_NOT_OWN: _DELETE_CLAIM,
    Code.RESOURCE_CLAIM_OF_GROUP: _DELETE_CLAIM,
    Code.RESOURCE_CLAIM_LEAVING: "Wait until it is gone, then create it again.",
    Code.RESOURCE_CLAIM_IN_USE: "Use another ResourceClaim: 256 pods may use one.",
    Code.RESOURCE_CLAIM_FAILED: "Look at `status.devices` of the claim; end the pods that use it.",
    Code.RESOURCE_CLAIM_GIVEN_BACK: _GOES_ON,
    Code.DEVICE_CLASS_NOT_FOUND: "Create the DeviceClass, or name another one in the claim.",
    Code.VOLUME_NOT_FOUND: "Create the volume, or bind the claim to another one.",
    Code.OVER_LIMIT: "Raise the limit, use another queue, or wait for its pods to end.",
    Code.OVER_QUOTA: "Make the workload preemptible, raise the quota, or use another queue.",
    Code.QUEUE_NOT_FOUND: "Create the queue, or correct label `kai.scheduler/queue` or `kai.scheduler/node-pool`.",
    Code.QUEUE_NOT_LEAF: "Name one of the queues below it.",
    Code.QUEUE_PARENT_NOT_FOUND: _CORRECT_QUEUE,
    Code.QUEUE_CYCLE: _CORRECT_QUEUE,
    Code.QUEUE_TOO_DEEP: _CORRECT_QUEUE,
    Code.TOPOLOGY_NOT_FOUND: _TOPOLOGY,
    Code.TOPOLOGY_LEVEL_NOT_FOUND: _TOPOLOGY,
    Code.TOPOLOGY_AMBIGUOUS: _TOPOLOGY,
    Code.TOPOLOGY_NOT_SATISFIED: _TOPOLOGY,
    Code.TOPOLOGY_SEARCH_CUT: _TOPOLOGY,
    Code.QUEUE_CLOSED: _CORRECT_QUEUE,
}

#: By the kind of the reason that keeps nodes out.
OF_NODES: Final[Mapping[str, str]] = {
    "insufficient": "Request less, end something, or add nodes; `explain` prints amounts.",
    "pods": "Raise kubelet's `maxPods`, or add nodes.",
    "no-gpu-memory-label": "Run NVIDIA's GPU feature discovery, or set label `nvidia.com/gpu.memory`.",
    "excluded": "Nothing: the node is tried again.",
    "probation": _RESERVATIONS,
    "contended": "See Events `GPULost` of the pods there.",
    "silent": _RESERVATIONS,
    "ill": "Repair the GPU, or drain the node.",
    "mode": "Use the mode of the pods there, or wait for another GPU.",
    "compute": "Request less compute.",
    "pinned": _PINNED,
    "pinned-full": _PINNED,
    "pinned-whole": _PINNED,
    "pinned-room": _PINNED,
    "exclusion": "Exclude fewer GPUs.",
    "multiplied": "Turn time-slicing off on nodes whose GPUs are to be shared.",
    "time-slices": "Request one GPU, or use nodes without time-slicing.",
    "volumes": "Mount fewer volumes of that CSI driver, or add nodes.",
    "volume-binding": "Create volumes there, or use a StorageClass that does ([volumes](design/volumes.md)).",
    "volume-space": "Request a smaller volume, or free storage.",
    "numa": _NUMA,
    "numa-free": _NUMA,
    "claim-devices": "Request fewer or other devices, end pods that use some, or add nodes.",
    "claim-kept": "Wait two minutes and their grace period.",
    "claim-pool": "Look at the driver: `kubectl get resourceslices`.",
    "claim-selector": "Correct the selector of the claim or DeviceClass, or write a faster one.",
    "claim-search": "Use fewer requests or constraints in the claim.",
    "claim-place": "Nothing: a claim binds pods to the nodes of its devices.",
    "claims-only": _SHARES,
    "claims-whole": _SHARES,
    "mig": "Request a MIG slice there, or use nodes without MIG.",
    "reserve": "Wait: another group starts there first.",
    "node-pool": "Label the pod or PodGroup with that [node pool](node-pools.md).",
    "not-ready": "Look at the node: `kubectl describe node NAME`.",
    "cordoned": "Uncordon the node: `kubectl uncordon NAME`.",
    "taint": "Tolerate the taint, if the pod may be there.",
    "selector": _LABELS,
    "enforced-affinity": _LABELS,
    "affinity": _LABELS,
    "place": "Request something that these nodes serve.",
    "resource-source": "Request fewer kinds of extended resources in one pod.",
    "cards": "Accept further GPU products, or none by name.",
    "enforcement": _ENFORCING,
    "driver-caps": _ENFORCING,
    "volume-affinity": _REACHED,
    "volume-zone": _REACHED,
    "others-anti-affinity": _AFFINITY,
    "pod-affinity": _AFFINITY,
    "pod-anti-affinity": _AFFINITY,
    "spread": _SPREAD,
    "spread-label": _SPREAD,
    "disks": "Wait for the disk's pod to end, or mount it read-only in both.",
    "features": "Use nodes whose kubelet has the feature.",
    "host-ports": "Remove or change `hostPort`.",
}

#: By what protects a pod that could be evicted.
OF_KEPT: Final[Mapping[Kept, str]] = {
    Kept.NOT_PREEMPTIBLE: "Nothing: label `kai.scheduler/preemptibility` or priority says so.",
    Kept.PRIORITY: "Give the waiting group a higher priority.",
    Kept.IN_SHARE: "Nothing: their queue uses [what it may](preemption.md).",
    Kept.MIN_RUNTIME: "Wait until the printed time, or shorten the queue's minimum runtime.",
    Kept.PROTECTED: "Wait until the printed time.",
    Kept.BUDGET: "See the PodDisruptionBudgets of the namespace.",
    Kept.BUSY: "Wait.",
    Kept.RESERVED: "Wait. A higher priority helps only if the nodes are reserved for a group of the same queue.",
}

#: A link in the documentation: its words, and the page.
_LINK: Final = re.compile(r"\[([^]]+)\]\(([^)]+)\)")


def by_name() -> dict[str, str]:
    """Return what to do about each reason by its stable name, with the pages of the documentation in words."""
    found = {code.value: text for code, text in OF_CODES.items()}
    found |= {kept.value: text for kept, text in OF_KEPT.items()}
    found |= OF_NODES
    return {anchor(reason): _LINK.sub(r"\1 (docs/\2)", text) for reason, text in found.items()}
