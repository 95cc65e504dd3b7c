"""The process of ``moorage scheduler``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.events import EventRecorder
from kube.lead.replica import Replica
from kube.telemetry.tracing import Tracer
from runtime import process
from runtime.metrics.registry import Registry, count_watches
from runtime.metrics.scheduler import ExplainMetrics, SchedulerMetrics, show_queues, show_state
from runtime.options.selection import UNITS_MIB
from runtime.process import listening
from runtime.replicas import Own, run_replica
from runtime.settings.scheduler import SchedulerOptions
from runtime.text import BadInput
from scheduler.app import Scheduler
from scheduler.core.model.preemption import PreemptionSettings
from scheduler.core.model.settings import NodePool, Settings, own_name
from scheduler.core.queues.use_over_time import UsePeriod
from scheduler.report.inspect_api import Inspected, Inspecting
from scheduler.settings import (
    InspectSettings,
    PartitioningSettings,
    PricingSettings,
    ScalingSettings,
    SchedulerSettings,
    UseSource,
)
from wire import names
from wire.units import SECOND_NS

#: The lease of the scheduler for objects without the label; others' end in the value that they are for.
LEASE: Final = "moorage-scheduler"
#: Makes of a replica one that also explains, for those that ask at a listener.
Explaining = Callable[..., Replica]


def settings(options: SchedulerOptions) -> SchedulerSettings:
    """Return what is chosen about the scheduler."""
    decisions = Settings(
        pool=_pool(options),
        gpu_strategy=options.gpu_strategy,
        cpu_strategy=options.cpu_strategy,
        weights=options.weights(),
        require_enforcement=options.require_enforcement,
        enforced_node_affinity=options.enforced_node_affinity,
        workloads_are_grouped=options.workloads_are_grouped,
        preemption=options.preemption,
        reserved_nodes_patience_ns=round(options.reserved_nodes_patience * SECOND_NS),
        reserved_nodes_percent=options.reserved_nodes_percent,
        preemption_settings=_preemption(options),
        numa_alignment=options.numa_alignment,
        distinct_gpus=options.distinct_gpus,
    )
    scaling = ScalingSettings(
        image=options.scaling_pod_image, memory_to_fraction_ratio_nano=options.gpu_memory_to_fraction_ratio
    )
    return SchedulerSettings(
        decisions=decisions,
        staleness_grace_s=options.default_staleness_grace_period,
        scaling=scaling if options.cluster_autoscaling else None,
        partitioning=PartitioningSettings() if options.mig_on_demand else None,
        object_status=options.object_status,
        suggestions=options.suggestions,
        cdi=options.cdi_enabled,
        memory_caps=options.memory_caps,
        queue_use=_queue_use(options),
        use_source=_use_source(options),
        evictions_per_s=options.evictions_per_second,
        pricing=PricingSettings(in_thread=True),
        follows_use=True,
        device_taint_rules=options.device_taint_rules,
        wait_for_config_maps=options.wait_for_config_maps,
    )


def _pool(options: SchedulerOptions) -> NodePool | None:
    """The part of the cluster that it decides on; None: all of it."""
    if options.nodepool_label_key:
        return NodePool(key=options.nodepool_label_key, value=options.partition_label_value)
    if options.partition_label_value:
        value = options.partition_label_value
        raise BadInput(
            f"--partition-label-value: {value!r} is given without a label; allowed: with --nodepool-label-key"
        )
    return None


def _preemption(options: SchedulerOptions) -> PreemptionSettings:
    """Return what is chosen about preemption."""
    return PreemptionSettings(
        saturation_multiplier_milli=options.reclaimer_saturation_multiplier,
        preempt_min_runtime_ns=round(options.default_preempt_min_runtime * SECOND_NS),
        reclaim_min_runtime_ns=round(options.default_reclaim_min_runtime * SECOND_NS),
        reclaim_resolve_method=options.reclaim_resolve_method,
        interval_ns=round(options.preemption_interval * SECOND_NS),
        releasing_threshold_ns=round(options.stuck_in_releasing_threshold * SECOND_NS),
        longest_victim_grace_s=round(options.longest_victim_grace_period),
        disruption_budgets=options.disruption_budgets,
        disruption_budgets_percent=options.disruption_budgets_percent,
    )


def _queue_use(options: SchedulerOptions) -> UsePeriod | None:
    """Which use of queues over time counts; None: none."""
    if options.queue_use_window is None and options.queue_use_window_cron is None and not options.queue_use_prometheus:
        return None
    return UsePeriod(
        window_s=round(options.queue_use_window or UsePeriod().window_s),
        cron=options.queue_use_window_cron,
        window=options.queue_use_window_type,
        half_life_s=round(options.queue_use_half_life or 0),
        window_start_s=options.queue_use_window_start,
        weight_milli=options.queue_use_weight,
    )


def _use_source(options: SchedulerOptions) -> UseSource | None:
    """Who says what queues used over time; None: the scheduler counts."""
    if not options.queue_use_prometheus:
        return None
    return UseSource(
        url=options.queue_use_prometheus,
        fetch_s=round(options.queue_use_fetch_interval),
        staleness_period_s=round(options.queue_use_staleness_period),
        timeout_s=options.queue_use_query_timeout,
        resolution_s=round(options.queue_use_query_resolution),
    )


def inspect_settings(options: SchedulerOptions) -> InspectSettings:
    """Return what is chosen about the inspect API."""
    return InspectSettings(unit_mib=UNITS_MIB[options.inspect_memory_unit])


async def run(options: SchedulerOptions, stop: anyio.Event, *, explaining: Explaining | None = None) -> None:
    """Run a replica of the scheduler. ``explaining``: what lets it explain where ``--explain-address`` is given."""
    rng, clock = process.rng(), SystemClock()
    listener = listening("--inspect-address", options.inspect_address)
    explain = listening("--explain-address", options.explain_address)

    def make(api: Api, events: EventRecorder, registry: Registry, tracer: Tracer | None) -> Replica:
        scheduler = Scheduler(
            api,
            settings=settings(options),
            clock=clock,
            rng=rng,
            events=events,
            emit=SchedulerMetrics(registry).take,
            tracer=tracer,
        )
        count_watches(registry, scheduler.reflectors)
        show_state(registry, scheduler.state)
        show_queues(registry, scheduler.state)
        questions = ExplainMetrics(registry).take
        replica: Replica = scheduler
        if listener is not None:
            inspecting = Inspecting(scheduler.cache.cluster, inspect_settings(options))
            replica = Inspected(replica, inspecting, listener)
        if explain is None or explaining is None:
            return replica
        return explaining(replica, scheduler, api=api, listener=explain, emit=questions)

    lease = own_name(LEASE, _pool(options))
    own = Own("scheduler", controller=names.SCHEDULER_NAME, clock=clock, rng=rng, lease=lease)
    await run_replica(options, stop, own=own, make=make)
