"""What the agent of a node counts, and what it shows of GPUs and their tenants.

What is shown of tenants is read from the last sample whenever somebody asks. Unlike the metrics of components
(runtime/metrics/declared.py) these name pods: each node's agent tells of its own tenants, so there are no more series
than tenants, and those of a tenant end with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from typing_extensions import override

from nodeagent.app import Agent
from nodeagent.core.enforcement.usage import Deeds, DeviceMeasures, Measures, TenantMeasures
from nodeagent.core.report.devices import Outcome
from nodeagent.report.devices import Observer
from runtime.metrics.declared import (
    GPU_NODE_WRITES,
    KUBELET_SILENT,
    MIG_LAYOUTS,
    NODE_GPUS,
    PLUGIN_RIVALS,
    WITNESS_SECONDS,
    WITNESSED,
    Metric,
    counter,
    gauge,
)
from runtime.metrics.registry import Registry, Sample

_SECOND_NS: Final = 1_000_000_000
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
DEEDS: Final = counter(
    "moorage_limit_deeds_total",
    "Decisions to end processes above their memory cap.",
    {"deed": "`largest` or `all` (processes of the pod on the GPU)", "dry_run": "`true`: nothing was ended"},
)

_OF_DEVICES: Final = (MEMORY_TOTAL, MEMORY_USED, UTILIZATION, ASKED, UNATTRIBUTED)
_OF_TENANTS: Final = (
    TENANT_USED, TENANT_ASKED, TENANT_CAP, TENANT_SM, TENANT_SM_OF_SHARE, TENANT_NANO, TENANT_PROCESSES,
    TENANT_IDLE,
)  # fmt: skip
#: All that are declared here.
TENANTS: Final = (*_OF_DEVICES, *_OF_TENANTS, DEEDS)


def show_tenants(registry: Registry, measured: Callable[[], Measures], deeds: Callable[[], Deeds]) -> None:
    """Show what was measured last; nothing of a node without a warden."""
    registry.read_together((*_OF_DEVICES, *_OF_TENANTS), lambda: _samples(measured()))
    registry.read(DEEDS, lambda: [((deed, str(dry).lower()), number) for (deed, dry), number in deeds().items()])


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
        (TENANT_IDLE, None if tenant.idle_ns is None else tenant.idle_ns // _SECOND_NS),
    )


def _ratio(percent: int | None) -> float | None:
    return None if percent is None else percent / 100


class AgentCounted(Observer):
    """Counts what the agent tells. All series are there from the start, so that a rate sees the first of each."""

    def __init__(self, registry: Registry) -> None:
        witnessed = registry.counter(WITNESSED)
        self._outcomes = {outcome: witnessed.labels(outcome.value) for outcome in Outcome}
        self._seconds = registry.histogram(WITNESS_SECONDS)
        self._silent = registry.counter(KUBELET_SILENT)
        self._writes = registry.counter(GPU_NODE_WRITES)

    @override
    def witnessed(self, outcome: Outcome) -> None:
        """Count it."""
        self._outcomes[outcome].inc()

    @override
    def told(self, took_s: float) -> None:
        """Count it."""
        self._seconds.observe(took_s)

    @override
    def unanswered(self) -> None:
        """Count it."""
        self._silent.inc()

    @override
    def published(self) -> None:
        """Count it."""
        self._writes.inc()


def show_cards(registry: Registry, agent: Agent) -> None:
    """Read how many GPUs the driver shows, whenever somebody asks, and which of them others offer."""
    registry.read_one(NODE_GPUS, lambda: float(len(agent.cards.cards)))
    registry.read_one(PLUGIN_RIVALS, lambda: float(agent.plugin.rivals if agent.plugin else 0))
    registry.read(MIG_LAYOUTS, lambda: [((state,), count) for state, count in _layouts(agent).items()])


def _layouts(agent: Agent) -> Mapping[str, int]:
    return {} if agent.plugin is None else agent.plugin.layouts()
