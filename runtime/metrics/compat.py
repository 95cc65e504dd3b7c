"""Names of other systems' exporters for what the warden measured last, for dashboards that know these names.

A pod's processes are counted together, so labels that name a process or a container are "-". One series for a tenant
and device, as with our own names (runtime/metrics/nodeagent.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final

from gpu.share import NANO_PER_DEVICE
from nodeagent.core.enforcement.overuse import MIB
from nodeagent.core.enforcement.usage import DeviceMeasures, Measures, TenantMeasures
from runtime.metrics.declared import Metric, gauge
from runtime.metrics.registry import Registry, Sample
from wire import names

HAMI: Final = "hami"
METAGPU: Final = "metagpu"
SYSTEMS: Final = (HAMI, METAGPU)

_NOT_TOLD: Final = "-"
#: MetaGPU's default: shares of a device.
_SHARES: Final = 100

_OF_HAMI: Final = {
    "namespace": "of the pod",
    "pod": "its name",
    "container": "`-`",
    "vdevice_index": "`-`",
    "device_uuid": "UUID of the GPU or MIG slice",
}
HAMI_USED: Final = gauge("hami_vgpu_memory_used_bytes", "HAMi's name: memory that the pod's processes have.", _OF_HAMI)
HAMI_LIMIT: Final = gauge("hami_vgpu_memory_limit_bytes", "HAMi's name: the memory cap; absent without one.", _OF_HAMI)

_DEVICE: Final = {
    "device_uuid": "UUID of the GPU or MIG slice",
    "device_index": "its index, `-` for MIG slices",
    "resource_name": "`nvidia.com/gpu`",
    "node_name": "of the node",
}
_TENANT: Final = {
    "uuid": "UUID of the GPU or MIG slice",
    "pid": "`-`",
    "cmdline": "`-`",
    "user": "`-`",
    "pod_name": "name of the pod",
    "pod_namespace": "its namespace",
    "resource_name": "`nvidia.com/gpu`",
    "node_name": "of the node",
}
METAGPU_SHARES: Final = gauge("metagpu_device_shares", "MetaGPU's name: shares of a GPU, always 100.", _DEVICE)
METAGPU_TOTAL: Final = gauge("metagpu_device_memory_total", "MetaGPU's name: memory of the GPU in MiB.", _DEVICE)
METAGPU_FREE: Final = gauge("metagpu_device_memory_free", "MetaGPU's name: memory not in use, in MiB.", _DEVICE)
METAGPU_USED: Final = gauge("metagpu_device_memory_used", "MetaGPU's name: memory in use, in MiB.", _DEVICE)
METAGPU_SIZE: Final = gauge("metagpu_device_memory_share_size", "MetaGPU's name: a hundredth of it, in MiB.", _DEVICE)
METAGPU_SM: Final = gauge(
    "metagpu_process_absolute_gpu_utilization", "MetaGPU's name: percent of the GPU's multiprocessors.", _TENANT
)
METAGPU_MEMORY: Final = gauge("metagpu_process_memory_usage", "MetaGPU's name: memory of the pod in MiB.", _TENANT)
METAGPU_ALLOWED: Final = gauge(
    "metagpu_process_max_allowed_metagpu_memory", "MetaGPU's name: memory that its share stands for, in MiB.", _TENANT
)
METAGPU_OF_SHARE: Final = gauge(
    "metagpu_process_metagpu_relative_gpu_utilization", "MetaGPU's name: percent of its share of SMs.", _TENANT
)
METAGPU_MEMORY_OF_SHARE: Final = gauge(
    "metagpu_process_metagpu_relative_memory_utilization",
    "MetaGPU's name: percent of the memory of its share.",
    _TENANT,
)
_DEVICES: Final = (METAGPU_SHARES, METAGPU_TOTAL, METAGPU_FREE, METAGPU_USED, METAGPU_SIZE)
_TENANTS: Final = (METAGPU_SM, METAGPU_MEMORY, METAGPU_ALLOWED, METAGPU_OF_SHARE, METAGPU_MEMORY_OF_SHARE)
#: All that are declared here.
COMPAT: Final = (HAMI_USED, HAMI_LIMIT, *_DEVICES, *_TENANTS)

_Read = Iterator[tuple[Metric, Sample]]


def show_compat(
    registry: Registry,
    systems: Collection[str],
    measured: Callable[[], Measures],
    *,
    node: str,
    index_of: Callable[[str], int | None],
) -> None:
    """Show what was measured last under the names of these systems. ``index_of``: a device's, by UUID."""
    if HAMI in systems:
        registry.read_together((HAMI_USED, HAMI_LIMIT), lambda: _hami(measured()))
    if METAGPU in systems:
        registry.read_together((*_DEVICES, *_TENANTS), lambda: _metagpu(measured(), node, index_of))


def _hami(found: Measures) -> _Read:
    for tenant in found.tenants:
        namespace, _, name = tenant.tenancy.pod.partition("/")
        labels = namespace, name, _NOT_TOLD, _NOT_TOLD, tenant.tenancy.device
        if tenant.used_bytes is not None:
            yield HAMI_USED, (labels, tenant.used_bytes)
        if tenant.cap_bytes is not None:
            yield HAMI_LIMIT, (labels, tenant.cap_bytes)


def _metagpu(found: Measures, node: str, index_of: Callable[[str], int | None]) -> _Read:
    for device in found.devices:
        index = index_of(device.uuid)
        labels = device.uuid, _NOT_TOLD if index is None else str(index), names.GPU_RESOURCE, node
        yield from ((metric, (labels, value)) for metric, value in _of_device(device))
    for tenant in found.tenants:
        namespace, _, name = tenant.tenancy.pod.partition("/")
        process = _NOT_TOLD, _NOT_TOLD, _NOT_TOLD
        where = tenant.tenancy.device, *process, name, namespace, names.GPU_RESOURCE, node
        yield from ((metric, (where, value)) for metric, value in _of_tenant(tenant))


def _of_device(device: DeviceMeasures) -> Iterator[tuple[Metric, float]]:
    total = device.total_bytes // MIB
    yield METAGPU_SHARES, _SHARES
    yield METAGPU_TOTAL, total
    yield METAGPU_FREE, (device.total_bytes - device.used_bytes) // MIB
    yield METAGPU_USED, device.used_bytes // MIB
    yield METAGPU_SIZE, total // _SHARES


def _of_tenant(tenant: TenantMeasures) -> Iterator[tuple[Metric, float]]:
    yield METAGPU_ALLOWED, tenant.asked_bytes // MIB
    if tenant.sm_percent is not None:
        yield METAGPU_SM, tenant.sm_percent
        yield METAGPU_OF_SHARE, tenant.sm_percent * NANO_PER_DEVICE // tenant.tenancy.nano
    if tenant.used_bytes is not None:
        yield METAGPU_MEMORY, tenant.used_bytes // MIB
        if tenant.asked_bytes:
            yield METAGPU_MEMORY_OF_SHARE, tenant.used_bytes * 100 // tenant.asked_bytes
