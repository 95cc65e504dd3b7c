"""What nodes lack for a pod, and the units in which it is written (explain.py counts and sorts these)."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.core.nodes.table import Bools, Int64s
from wire import names

#: What is lacking of a resource that is no resource of Kubernetes.
GPU_SHARE = "gpu-share"
GPU_MEMORY = "gpu-memory"
COMPUTE = "compute"

#: What a shortfall is counted in, by resource; GPUs first, since they are what people wait for.
UNITS = {
    GPU_SHARE: "nano_gpu",
    GPU_MEMORY: "gpu_mem_mib",
    COMPUTE: "compute_percent",
    names.GPU_RESOURCE: "gpu",
    names.CPU_RESOURCE: "cpu_milli",
    names.MEMORY_RESOURCE: "mem_mib",
    names.EPHEMERAL_STORAGE_RESOURCE: "ephemeral_mib",
    names.PODS_RESOURCE: "pods",
}


@dataclass(slots=True)
class Lack:
    """One thing that some of the usable nodes lack: which ones, and how much of it each, in ``unit``."""

    kind: str
    resource: str
    unit: str
    where: Bools
    amount: Int64s


def unit(resource: str) -> str:
    """What a shortfall of it is counted in."""
    return UNITS.get(resource, resource)
