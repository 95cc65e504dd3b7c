"""Metrics of the node agent: its own counts, GPUs, their tenants, and the names that other exporters have for those.

Tenants are read from the last sample whenever somebody asks. Unlike the metrics of components
(runtime/metrics/declared.py) these name pods: each agent reports its own tenants, so there are no more series than
tenants, and those of a tenant end with it. Under other exporters' names the processes of a pod are counted together:
labels that name a process or a container are "-".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from gpu.share import NANO_PER_DEVICE
from nodeagent.app import Agent
from nodeagent.core.enforcement.overuse import MIB
from nodeagent.core.enforcement.tenants import DeviceMeasures, KillCounts, Measures, TenantMeasures
from nodeagent.core.report.devices import Outcome
from nodeagent.report.devices import AgentEvent, DeviceReported, GpuNodeWritten, KubeletSilent
from runtime.metrics.declared import (
    DEVICE_REPORT_SECONDS,
    DEVICE_REPORTS,
    GPU_NODE_WRITES,
    KUBELET_SILENT,
    MIG_LAYOUTS,
    NODE_GPUS,
    PLUGIN_RIVALS,
    Metric,
    counter,
    gauge,
)
from runtime.metrics.registry import Registry, Sample
from wire import names
from wire.units import SECOND_NS

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

_COMPAT_DEVICE: Final = {
    "device_uuid": "UUID of the GPU or MIG slice",
    "device_index": "its index, `-` for MIG slices",
    "resource_name": "`nvidia.com/gpu`",
    "node_name": "of the node",
}
_COMPAT_TENANT: Final = {
    "uuid": "UUID of the GPU or MIG slice",
    "pid": "`-`",
    "cmdline": "`-`",
    "user": "`-`",
    "pod_name": "name of the pod",
    "pod_namespace": "its namespace",
    "resource_name": "`nvidia.com/gpu`",
    "node_name": "of the node",
}
METAGPU_SHARES: Final = gauge("metagpu_device_shares", "MetaGPU's name: shares of a GPU, always 100.", _COMPAT_DEVICE)
METAGPU_TOTAL: Final = gauge("metagpu_device_memory_total", "MetaGPU's name: memory of the GPU in MiB.", _COMPAT_DEVICE)
METAGPU_FREE: Final = gauge("metagpu_device_memory_free", "MetaGPU's name: memory not in use, in MiB.", _COMPAT_DEVICE)
METAGPU_USED: Final = gauge("metagpu_device_memory_used", "MetaGPU's name: memory in use, in MiB.", _COMPAT_DEVICE)
METAGPU_SIZE: Final = gauge(
    "metagpu_device_memory_share_size", "MetaGPU's name: a hundredth of it, in MiB.", _COMPAT_DEVICE
)
METAGPU_SM: Final = gauge(
    "metagpu_process_absolute_gpu_utilization", "MetaGPU's name: percent of the GPU's multiprocessors.", _COMPAT_TENANT
)
METAGPU_MEMORY: Final = gauge(
    "metagpu_process_memory_usage", "MetaGPU's name: memory of the pod in MiB.", _COMPAT_TENANT
)
METAGPU_ALLOWED: Final = gauge(
    "metagpu_process_max_allowed_metagpu_memory",
    "MetaGPU's name: memory that its share stands for, in MiB.",
    _COMPAT_TENANT,
)
METAGPU_OF_SHARE: Final = gauge(
    "metagpu_process_metagpu_relative_gpu_utilization", "MetaGPU's name: percent of its share of SMs.", _COMPAT_TENANT
)
METAGPU_MEMORY_OF_SHARE: Final = gauge(
    "metagpu_process_metagpu_relative_memory_utilization",
    "MetaGPU's name: percent of the memory of its share.",
    _COMPAT_TENANT,
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
        yield from ((metric, (labels, value)) for metric, value in _compat_of_device(device))
    for tenant in found.tenants:
        namespace, _, name = tenant.tenancy.pod.partition("/")
        process = _NOT_TOLD, _NOT_TOLD, _NOT_TOLD
        where = tenant.tenancy.device, *process, name, namespace, names.GPU_RESOURCE, node
        yield from ((metric, (where, value)) for metric, value in _compat_of_tenant(tenant))


def _compat_of_device(device: DeviceMeasures) -> Iterator[tuple[Metric, float]]:
    total = device.total_bytes // MIB
    yield METAGPU_SHARES, _SHARES
    yield METAGPU_TOTAL, total
    yield METAGPU_FREE, (device.total_bytes - device.used_bytes) // MIB
    yield METAGPU_USED, device.used_bytes // MIB
    yield METAGPU_SIZE, total // _SHARES


def _compat_of_tenant(tenant: TenantMeasures) -> Iterator[tuple[Metric, float]]:
    yield METAGPU_ALLOWED, tenant.asked_bytes // MIB
    if tenant.sm_percent is not None:
        yield METAGPU_SM, tenant.sm_percent
        yield METAGPU_OF_SHARE, tenant.sm_percent * NANO_PER_DEVICE // tenant.tenancy.nano
    if tenant.used_bytes is not None:
        yield METAGPU_MEMORY, tenant.used_bytes // MIB
        if tenant.asked_bytes:
            yield METAGPU_MEMORY_OF_SHARE, tenant.used_bytes * 100 // tenant.asked_bytes


_DEVICE: Final = {"uuid": "UUID of the GPU or MIG slice"}
_TENANT: Final = {**_DEVICE, "namespace": "of the pod", "pod": "its name", "pod_uid": "its UID"}

MEMORY_TOTAL: Final = gauge("moorage_gpu_memory_total_bytes", "Memory of the GPU or MIG slice.", _DEVICE)
MEMORY_USED: Final = gauge("moorage_gpu_memory_used_bytes", "Memory in use, as NVML reports it.", _DEVICE)
UTILIZATION: Final = gauge(
    "moorage_gpu_utilization_ratio", "Part of the time in which a kernel ran; absent for MIG slices.", _DEVICE
)
ASKED: Final = gauge("moorage_gpu_asked_nano", "Sum of the shares on it, in billionths of a GPU.", _DEVICE)
UNATTRIBUTED: Final = gauge(
    "moorage_unattributed_memory_bytes", "Memory of processes that belong to no tenant of the GPU.", _DEVICE
)
TENANT_USED: Final = gauge("moorage_tenant_memory_used_bytes", "Memory that the pod's processes have.", _TENANT)
TENANT_ASKED: Final = gauge("moorage_tenant_memory_asked_bytes", "Memory that its share stands for.", _TENANT)
TENANT_CAP: Final = gauge("moorage_tenant_memory_cap_bytes", "Its memory cap; absent without one.", _TENANT)
TENANT_SM: Final = gauge(
    "moorage_tenant_sm_ratio", "Use of the GPU's multiprocessors; absent where NVML does not report it.", _TENANT
)
TENANT_SM_OF_SHARE: Final = gauge("moorage_tenant_sm_of_share_ratio", "The same by its share; may be above 1.", _TENANT)
TENANT_NANO: Final = gauge("moorage_tenant_asked_nano", "Its share, in billionths of a GPU.", _TENANT)
TENANT_PROCESSES: Final = gauge("moorage_tenant_processes", "Its processes on the GPU.", _TENANT)
TENANT_IDLE: Final = gauge(
    "moorage_tenant_idle_seconds",
    "Time for which the pod has used at most 5 % of its share; absent below half an hour, and for shares below a "
    "quarter of a GPU.",
    _TENANT,
)
KILLS: Final = counter(
    "moorage_memory_enforcer_kills_total",
    "Decisions to end processes above their memory cap.",
    {"processes": "`largest` or `all` (processes of the pod on the GPU)", "dry_run": "`true`: nothing was ended"},
)

_OF_DEVICES: Final = (MEMORY_TOTAL, MEMORY_USED, UTILIZATION, ASKED, UNATTRIBUTED)
_OF_TENANTS: Final = (
    TENANT_USED, TENANT_ASKED, TENANT_CAP, TENANT_SM, TENANT_SM_OF_SHARE, TENANT_NANO, TENANT_PROCESSES,
    TENANT_IDLE,
)  # fmt: skip
#: All that are declared here.
TENANTS: Final = (*_OF_DEVICES, *_OF_TENANTS, KILLS)


def show_tenants(registry: Registry, measured: Callable[[], Measures], kills: Callable[[], KillCounts]) -> None:
    """Show what was measured last; nothing of a node without a memory enforcer."""
    registry.read_together((*_OF_DEVICES, *_OF_TENANTS), lambda: _samples(measured()))
    registry.read(KILLS, lambda: [((kill, str(dry).lower()), number) for (kill, dry), number in kills().items()])


def _samples(found: Measures) -> Iterator[tuple[Metric, Sample]]:
    for device in found.devices:
        yield from _known((device.uuid,), _of_device(device))
    for tenant in found.tenants:
        namespace, _, name = tenant.tenancy.pod.partition("/")
        labels = tenant.tenancy.device, namespace, name, tenant.tenancy.pod_uid
        yield from _known(labels, _of_tenant(tenant))


def _known(labels: tuple[str, ...], values: Iterable[tuple[Metric, float | None]]) -> Iterator[tuple[Metric, Sample]]:
    return ((metric, (labels, value)) for metric, value in values if value is not None)


def _of_device(device: DeviceMeasures) -> Iterable[tuple[Metric, float | None]]:
    return (
        (MEMORY_TOTAL, device.total_bytes),
        (MEMORY_USED, device.used_bytes),
        (UTILIZATION, _ratio(device.sm_percent)),
        (ASKED, device.asked_nano),
        (UNATTRIBUTED, device.unattributed_bytes),
    )


def _of_tenant(tenant: TenantMeasures) -> Iterable[tuple[Metric, float | None]]:
    return (
        (TENANT_USED, tenant.used_bytes),
        (TENANT_ASKED, tenant.asked_bytes),
        (TENANT_CAP, tenant.cap_bytes),
        (TENANT_SM, _ratio(tenant.sm_percent)),
        (TENANT_SM_OF_SHARE, _ratio(tenant.sm_of_share_percent)),
        (TENANT_NANO, tenant.tenancy.nano),
        (TENANT_PROCESSES, tenant.processes),
        (TENANT_IDLE, None if tenant.idle_ns is None else tenant.idle_ns // SECOND_NS),
    )


def _ratio(percent: int | None) -> float | None:
    return None if percent is None else percent / 100


class AgentMetrics:
    """Counts events of the agent. All series are there from the start, so that a rate sees the first of each."""

    def __init__(self, registry: Registry) -> None:
        reported = registry.counter(DEVICE_REPORTS)
        self._outcomes = {outcome: reported.labels(outcome.value) for outcome in Outcome}
        self._seconds = registry.histogram(DEVICE_REPORT_SECONDS)
        self._silent = registry.counter(KUBELET_SILENT)
        self._writes = registry.counter(GPU_NODE_WRITES)

    def take(self, event: AgentEvent) -> None:
        """Count an event."""
        match event:
            case DeviceReported(outcome=outcome, took_s=took_s):
                self._outcomes[outcome].inc()
                if took_s is not None:
                    self._seconds.observe(took_s)
            case KubeletSilent():
                self._silent.inc()
            case GpuNodeWritten():
                self._writes.inc()


def show_cards(registry: Registry, agent: Agent) -> None:
    """Read how many GPUs the driver shows, whenever somebody asks, and which of them others offer."""
    registry.read_one(NODE_GPUS, lambda: float(len(agent.cards.cards)))
    registry.read_one(PLUGIN_RIVALS, lambda: float(agent.plugin.rivals if agent.plugin else 0))
    registry.read(MIG_LAYOUTS, lambda: [((state,), count) for state, count in _layouts(agent).items()])


def _layouts(agent: Agent) -> Mapping[str, int]:
    return {} if agent.plugin is None else agent.plugin.layouts()
