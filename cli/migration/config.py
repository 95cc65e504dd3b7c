"""Rows about KAI's Config and shards: what was set to something else than its default, and what becomes of it.

A table has each option (kai-contract 2.5 and 2.6). A path that is missing there is reported as an option without
counterpart: newer versions of KAI have further ones.
"""

from __future__ import annotations

import datetime
import enum
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import msgspec

from cli.checks.reader import Raw
from cli.migration.rows import Code, Row, row
from runtime.settings import kinds
from runtime.settings.declaration import declared
from runtime.settings.kinds import Kind, span
from runtime.settings.scheduler import SchedulerOptions
from wire import names

#: KAI's values are converted into the form that settings of Moorage have. One that can't be converted is returned
#: unchanged; the setting's own parser then refuses it by name.
_UNITS_S: Final = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86_400),
    "w": Fraction(604_800),
    "y": Fraction(365 * 86_400),
}
_NUMBER: Final = r"[0-9]{1,12}(?:\.[0-9]{1,9})?"
_PART: Final = re.compile(rf"({_NUMBER})(ns|us|µs|ms|s|m|h|d|w|y)")
_DURATION: Final = re.compile(rf"(?:{_PART.pattern}){{1,10}}")


def as_given(value: Any) -> str:
    """Text as it is, all else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def duration(value: Any) -> str:
    """A duration of Prometheus or Go, days and weeks as hours: ``1w`` is ``168h``."""
    given = as_given(value)
    if not _DURATION.fullmatch(given):
        return given
    return span(float(sum(Fraction(number) * _UNITS_S[unit] for number, unit in _PART.findall(given))))


def thousandths(value: Any) -> str:
    """A number times 1000, rounded to a whole one: KAI's ``kValue``."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(round(Decimal(str(value)) * 1000)) if is_number else as_given(value)


def epoch_seconds(value: Any) -> str:
    """A time as Kubernetes writes it, in seconds since 1970."""
    given = as_given(value)
    try:
        at = datetime.datetime.fromisoformat(given)
    except ValueError:
        return given
    return given if at.tzinfo is None else str(int(at.timestamp()))


def window_type(value: Any) -> str:
    """The type of a window; "" for ``cron``: here the cron expression alone makes it one."""
    given = as_given(value)
    return "" if given == "cron" else given


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


_CODES: Final = {
    Fate.MAPPED: Code.OPTION_MAPPED,
    Fate.UNUSED: Code.OPTION_UNUSED,
    Fate.MISSING: Code.OPTION_MISSING,
    Fate.FIXED: Code.OPTION_FIXED,
}
_SHARING: Final = "admission.gpuSharing"
_RUNTIME_CLASS: Final = "binder.resourceReservation.runtimeClassName"
#: The scheduler's arguments by their place in the chart, with how each is read.
_ARGUMENTS: Final[Mapping[str, Kind]] = {
    f"scheduler.args.{each.key}": each.setting.kind for each in declared(SchedulerOptions)
}
#: Values that mean the same as an absent option.
_EMPTY: Final[tuple[Any, ...]] = (None, {}, [])


def config_rows(config: Raw) -> Iterator[Row]:
    """What a Config says, and what its silence means here."""
    spec, about = config.get("spec") or {}, f"Config {config['metadata']['name']}"
    if _at(spec, _SHARING) in {None, False}:
        yield row(Code.SHARING_OFF, f"{about}: {_SHARING}")
    if not _at(spec, _RUNTIME_CLASS):
        yield row(Code.NO_RUNTIME_CLASS, f"{about}: {_RUNTIME_CLASS}")
    yield from _rows(about, spec, CONFIG)


def shard_rows(shard: Raw) -> Iterator[Row]:
    """What a shard says."""
    spec, about = dict(shard.get("spec") or {}), f"SchedulingShard {shard['metadata']['name']}"
    if partition := spec.pop("partitionLabelValue", ""):
        yield _partition_row(about, partition)
    strategy = spec.get("placementStrategy") or {}
    if strategy.get("gpu") == strategy.get("cpu"):
        spec["placementStrategy"] = strategy.get("gpu")
    yield from _rows(about, spec, SHARD, pool=partition)


def _partition_row(about: str, partition: str) -> Row:
    try:
        kinds.POOL.read(partition)
    except ValueError as error:
        setting = "scheduler.pools[].value"
        return row(Code.OPTION_UNFIT, f"{about}: partitionLabelValue", value=partition, setting=setting, why=str(error))
    return row(Code.SHARD_PARTITION, about, value=partition)


def _rows(about: str, spec: Raw, table: Mapping[str, Option], *, pool: str = "") -> Iterator[Row]:
    for path, value in _set(spec, table):
        option = _option(path, table) or Option(Fate.MISSING)
        if value not in _EMPTY and _lowered(value) != _lowered(option.default):
            yield _row(f"{about}: {path}", value, option, pool=pool)


def _row(about: str, value: Any, option: Option, *, pool: str) -> Row:
    """What becomes of one option. A value that a setting here refuses is reported with the setting's own reason.

    ``pool``: the node pool whose scheduler it is for, "" for the one without a value.
    """
    given, written = as_given(value), option.written(value)
    if option.fate is Fate.MAPPED and not written:
        return row(Code.OPTION_UNUSED, about, value=given)
    if why := _refusal(option.chart, written):
        return row(Code.OPTION_UNFIT, about, value=given, setting=_chart(option, pool), why=why)
    values = {"chart": f"{_chart(option, pool)}={written}", "allowed": str(option.default), "value": given}
    return row(_CODES[option.fate], about, **{name: values[name] for name in _NAMES[option.fate]})


def _chart(option: Option, pool: str) -> str:
    """The value of the chart; what is the scheduler's is that of its node pool."""
    of_scheduler = option.chart.removeprefix("scheduler.")
    return option.chart if not pool or of_scheduler == option.chart else f"scheduler.pools[{pool}].{of_scheduler}"


def _refusal(chart: str, written: str) -> str:
    """Why the scheduler would refuse an argument when it starts; "" if it takes it, or if it is no argument."""
    kind = _ARGUMENTS.get(chart)
    if kind is None:
        return ""
    try:
        kind.read(written)
    except ValueError as error:
        return str(error)
    return ""


def _lowered(value: Any) -> Any:
    """The same without regard to case: capabilities are written in either."""
    if isinstance(value, dict):
        return {key: _lowered(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_lowered(each) for each in value]
    return value.lower() if isinstance(value, str) else value


_NAMES: Final = {
    Fate.MAPPED: ("value", "chart"),
    Fate.UNUSED: ("value",),
    Fate.MISSING: ("value",),
    Fate.FIXED: ("value", "allowed"),
}


def _set(spec: Raw, table: Mapping[str, Option], before: str = "") -> Iterator[tuple[str, Any]]:
    """Options by their paths: as deep as the table knows them, and to the leaves where it does not."""
    for key, value in sorted(spec.items()):
        path = f"{before}{key}"
        if path in table and not any(other.startswith(f"{path}.") for other in table):
            yield path, value
        elif isinstance(value, dict) and value:
            yield from _set(value, table, f"{path}.")
        else:
            yield path, value


def _option(path: str, table: Mapping[str, Option]) -> Option | None:
    parts = path.split(".")
    begun = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((table[each] for each in begun if each in table), None)


def _at(spec: Raw, path: str) -> Any:
    found: Any = spec
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found
