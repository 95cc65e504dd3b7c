"""The Node object and the lease of a simulated node, as kubelet, GPU discovery and the device plugin write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from simulator.nodes.shape import NodeShape, slice_mib
from wire import names

#: On every simulated node, with the value "true"; also the key of the taint that keeps ordinary pods away.
SIMULATED: Final = "simulator.moorage.dev/simulated"
LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_DURATION_S: Final = 40
#: Added by the API server's TaintNodesByCondition to every new node.
NOT_READY_TAINT: Final = "node.kubernetes.io/not-ready"
#: NodeSystemInfo as far as the API server wants it whole.
_NODE_INFO: Final = (
    *("architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeletVersion", "kubeProxyVersion"),
    *("machineID", "operatingSystem", "osImage", "systemUUID"),
)


def node(shape: NodeShape, *, now: str) -> dict[str, Any]:
    """Make the object that a node registers with. Kubelet's create carries the status, too."""
    metadata: dict[str, Any] = {"name": shape.name, "labels": labels(shape)}
    if len(set(shape.cards_mib)) > 1:
        metadata["annotations"] = {names.NODE_CARDS: ",".join(map(str, shape.cards_mib))}
    plain = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status(shape, now=now)}
    return {**plain, "spec": {"taints": taints(shape)}} if shape.tainted else plain


def taints(shape: NodeShape) -> list[dict[str, str]]:
    """Return the taints that the node registers with."""
    return [{"key": SIMULATED, "value": "true", "effect": "NoSchedule"}] if shape.tainted else []


def labels(shape: NodeShape) -> dict[str, str]:
    """Return the node's labels. ``nvidia.com/gpu.memory`` is one number: with unequal cards, that of the smallest."""
    own = {
        names.HOSTNAME_LABEL: shape.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        SIMULATED: "true",
    }
    if shape.cards_mib:
        own[names.NODE_GPU_COUNT] = str(len(shape.cards_mib))
        own[names.NODE_GPU_MEMORY] = str(min(shape.cards_mib))
    own |= shape.labels
    if shape.slices:
        own[names.NODE_MIG_STRATEGY] = "single" if shape.is_single else "mixed"
    if shape.slices and shape.is_single:
        profile = shape.slices[0]
        own[names.NODE_GPU_COUNT] = str(len(shape.slices))
        own[names.NODE_GPU_MEMORY] = str(slice_mib(profile))
        own[names.NODE_GPU_PRODUCT] = f"{own.get(names.NODE_GPU_PRODUCT, 'NVIDIA')}-MIG-{profile}"
    return own


def readiness(*, is_ready: bool, now: str) -> dict[str, Any]:
    """Make the condition Ready: as its kubelet writes it, or as the node life-cycle controller does who misses it."""
    if is_ready:
        told = {"status": "True", "reason": "KubeletReady", "message": "simulated kubelet is posting ready status"}
    else:
        told = {"status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
    return {"type": "Ready", **told, "lastHeartbeatTime": now, "lastTransitionTime": now}


def status(
    shape: NodeShape, *, now: str, offered: Mapping[str, int] | None = None, also: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Make the status of a Ready node; ``now`` is the last heartbeat, ``offered`` devices that pods can have: all.

    ``also``: devices that the shape does not tell, whether pods can have them or not.
    """
    amounts = {
        names.CPU_RESOURCE: f"{shape.cpu_milli}m",
        names.MEMORY_RESOURCE: f"{shape.mem_mib}Mi",
        names.EPHEMERAL_STORAGE_RESOURCE: f"{shape.ephemeral_mib}Mi",
        names.PODS_RESOURCE: str(shape.pods),
    }
    amounts |= {resource: str(count) for resource, count in {**shape.others, **shape.devices(), **(also or {})}.items()}
    # For people: kubectl shows the version in the list of nodes.
    info = dict.fromkeys(_NODE_INFO, "") | {"kubeletVersion": "simulated", "operatingSystem": "linux"}
    conditions = [readiness(is_ready=True, now=now)]
    allocatable = amounts | {resource: str(count) for resource, count in (offered or {}).items()}
    return {"capacity": amounts, "allocatable": allocatable, "conditions": conditions, "nodeInfo": info}


def lease(name: str, *, owner_uid: str, now_micro: str) -> dict[str, Any]:
    """Make the lease that a node renews; it goes with its node."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": owner_uid}
    spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_DURATION_S, "renewTime": now_micro}
    return {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}
