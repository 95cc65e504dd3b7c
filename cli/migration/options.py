"""KAI's options (Config and SchedulingShard, kai-contract 2.5 and 2.6) and what becomes of each: a table.

A path that is missing here is reported as an option without counterpart: newer versions of KAI have further ones.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Final

import msgspec

from cli.migration.values import as_given, duration, epoch_seconds, thousandths, window_type
from wire import names


class Fate(enum.Enum):
    """What becomes of an option that is set to something else than its default."""

    MAPPED = "mapped"
    UNUSED = "unused"
    MISSING = "missing"
    #: Only ``default`` is served: pods that run were made under it.
    FIXED = "fixed"


class Option(msgspec.Struct, frozen=True):
    """``chart``: the value of Moorage's chart that means the same. ``default``: KAI's value where it is not set.

    ``written``: converts KAI's value into the chart's; "" means that there is nothing to set.
    """

    fate: Fate
    chart: str = ""
    default: Any = None
    written: Callable[[Any], str] = as_given


def _same(path: str, default: Any = None, *, written: Callable[[Any], str] = as_given) -> Option:
    return Option(Fate.MAPPED, path, default, written)


def _resources(*amounts: str) -> dict[str, dict[str, str]]:
    """CPU and memory of requests, then of limits."""
    cpu, memory, most_cpu, most_memory = amounts
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": most_cpu, "memory": most_memory}}


_UNUSED: Final = Option(Fate.UNUSED)
_MISSING: Final = Option(Fate.MISSING)
#: What KAI's operator fills in (contract 2.6, 6.2); the chart's own is as strict.
_UNPRIVILEGED: Final = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "runAsUser": 10000,
    "capabilities": {"drop": ["all"]},
}
_RESERVATION: Final = "kai-resource-reservation"

#: Below ``spec`` of the Config. The longest path that begins an option's is its own.
CONFIG: Final[dict[str, Option]] = {
    "namespace": Option(Fate.FIXED, default=names.SYSTEM_NAMESPACE),
    "global.schedulerName": Option(Fate.FIXED, default=names.SCHEDULER_NAME),
    "global.securityContext": _same("global.securityContext", _UNPRIVILEGED),
    "global.podSecurityContext": _same("global.podSecurityContext"),
    "global.additionalImagePullSecrets": _same("global.imagePullSecrets"),
    "global.imagesPullSecret": _same("global.imagePullSecrets", ""),
    "global.nodeSelector": _same("global.nodeSelector"),
    "global.tolerations": _same("global.tolerations"),
    "global.affinity": _same("global.affinity"),
    "global.priorityClassName": _same("global.priorityClassName", ""),
    "global.replicaCount": _same("scheduler.replicas, binder.replicas, admission.replicas", 1),
    "global.jsonLog": _same("global.jsonLog", default=False),
    "global.queueLabelKey": Option(Fate.MISSING, default=names.QUEUE_LABEL),
    "global.nodePoolLabelKey": _same("global.nodePoolLabelKey", names.NODE_POOL_LABEL),
    "global.namespaceLabelSelector": _MISSING,
    "global.podLabelSelector": _MISSING,
    "global": _UNUSED,
    "admission.gpuSharing": _same("global.gpuSharing", default=False),
    "admission.blockNvidiaVisibleDevices": _same("global.blockNvidiaVisibleDevices", default=False),
    "admission.gpuFractionRuntimeClassName": _same("admission.gpuFractionRuntimeClassName", "nvidia"),
    "admission.gpuPodRuntimeClassName": _MISSING,
    "admission.queueLabelSelector": Option(Fate.MISSING, default=False),
    "admission": _UNUSED,
    "binder.cdiEnabled": _same("binder.cdiEnabled"),
    "binder.plugins": _MISSING,
    "binder.resourceReservation.namespace": Option(Fate.FIXED, default=_RESERVATION),
    "binder.resourceReservation.serviceAccountName": Option(Fate.FIXED, default=_RESERVATION),
    "binder.resourceReservation.appLabel": Option(Fate.FIXED, default=_RESERVATION),
    "binder.resourceReservation.runtimeClassName": _same("binder.resourceReservation.runtimeClassName"),
    "binder": _UNUSED,
    "scheduler": _UNUSED,
    "podGrouper.args": _MISSING,
    "podGrouper": _UNUSED,
    "podGroupController": _UNUSED,
    "queueController": _UNUSED,
    "nodeScaleAdjuster.service.enabled": _same("global.clusterAutoscaling", default=False),
    "nodeScaleAdjuster.args.gpuMemoryToFractionRatio": _same("scheduler.args.gpu-memory-to-fraction-ratio", 0.1),
    "nodeScaleAdjuster.args.nodeScaleNamespace": Option(Fate.FIXED, default=names.SCALE_ADJUST_NAMESPACE),
    "nodeScaleAdjuster": _UNUSED,
    "numaPlacementExporter.service.enabled": Option(Fate.MISSING, default=False),
    "numaPlacementExporter": _UNUSED,
    "prometheus.enabled": Option(Fate.MISSING, default=False),
    "prometheus": _UNUSED,
    "scheduler.replicas": _same("scheduler.replicas", 1),
    "scheduler.service.resources": _same("scheduler.resources", _resources("250m", "512Mi", "700m", "512Mi")),
    "binder.replicas": _same("binder.replicas", 1),
    "binder.service.resources": _same("binder.resources", _resources("50m", "200Mi", "100m", "200Mi")),
    "admission.replicas": _same("admission.replicas", 1),
    "admission.service.resources": _same("admission.resources"),
}

#: Below ``spec`` of a SchedulingShard.
SHARD: Final[dict[str, Option]] = {
    "placementStrategy": _same("scheduler.placementStrategy", "binpack"),
    "placementStrategy.gpu": _same("scheduler.args.gpu-strategy", "binpack"),
    "placementStrategy.cpu": _same("scheduler.args.cpu-strategy", "binpack"),
    "args.default-staleness-grace-period": _same(
        "scheduler.args.default-staleness-grace-period", "60s", written=duration
    ),
    "args.stuck-in-releasing-threshold": _same("scheduler.args.stuck-in-releasing-threshold", written=duration),
    "args.v": _UNUSED,
    "args": _MISSING,
    "queueDepthPerAction": _MISSING,
    "minRuntime.preemptMinRuntime": _same("scheduler.args.default-preempt-min-runtime", written=duration),
    "minRuntime.reclaimMinRuntime": _same("scheduler.args.default-reclaim-min-runtime", written=duration),
    "kValue": _same("scheduler.args.queue-use-weight", 1.0, written=thousandths),
    "plugins": _MISSING,
    "actions": _MISSING,
    "scenarioSearchBudgets": _MISSING,
    "usageDBConfig.clientType": Option(Fate.MISSING, default="prometheus"),
    "usageDBConfig.connectionString": _same("scheduler.args.queue-use-prometheus"),
    "usageDBConfig.usageParams.windowSize": _same("scheduler.args.queue-use-window", "1w", written=duration),
    "usageDBConfig.usageParams.windowType": _same(
        "scheduler.args.queue-use-window-type", "sliding", written=window_type
    ),
    "usageDBConfig.usageParams.tumblingWindowStartTime": _same(
        "scheduler.args.queue-use-window-start", written=epoch_seconds
    ),
    "usageDBConfig.usageParams.cronString": _same("scheduler.args.queue-use-window-cron"),
    "usageDBConfig.usageParams.halfLifePeriod": _same("scheduler.args.queue-use-half-life", written=duration),
    "usageDBConfig.usageParams.fetchInterval": _same("scheduler.args.queue-use-fetch-interval", "1m", written=duration),
    "usageDBConfig.usageParams.stalenessPeriod": _same(
        "scheduler.args.queue-use-staleness-period", "5m", written=duration
    ),
    "usageDBConfig.usageParams.waitTimeout": _UNUSED,
    "usageDBConfig": _MISSING,
    "goMemLimitRatio": _UNUSED,
    "goMemLimit": _UNUSED,
}
