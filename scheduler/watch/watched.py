"""Feeds the core what pods depend on beside nodes and their own spec: queues, namespaces, Jobs, claims, volumes."""

from __future__ import annotations

from typing import Any

from kube.client.resources import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    JOBS,
    NAMESPACES,
    NODE_RESOURCE_TOPOLOGIES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    QUEUES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    TOPOLOGIES,
    VOLUME_ATTACHMENTS,
)
from kube.lead.secondary import Kind
from scheduler.core.convert import owners, pod_groups, selectors, volumes
from scheduler.core.convert.devices import device_class_record, slice_record, taint_rule_record
from scheduler.core.convert.numa import numa_report
from scheduler.core.convert.selectors import budget_record
from scheduler.watch.cache import Cache
from scheduler.watch.fact_sink import ClaimSink, FactSink, StoredSink
from scheduler.watch.queue_sink import QueueSink


def budgets(cache: Cache) -> Kind[Any]:
    """What to follow where pods are evicted for others."""
    return Kind(
        POD_DISRUPTION_BUDGETS,
        FactSink(cache, cache.room.budgets, budget_record),
        "pods are asked to go for others by the budgets that were read before, and the API server refuses what it must",
    )


def taint_rules(cache: Cache) -> Kind[Any]:
    """What to follow where administrators taint devices."""
    return Kind(
        DEVICE_TAINT_RULES,
        FactSink(cache, cache.cluster.claims.inventory.rules, taint_rule_record),
        "pods whose ResourceClaims are not allocated wait; without --device-taint-rules none is read",
    )


def numa_nodes(cache: Cache) -> Kind[Any]:
    """What to follow where pods are aligned on NUMA nodes."""
    return Kind(
        NODE_RESOURCE_TOPOLOGIES,
        FactSink(cache, cache.cluster.numa, numa_report),
        "pods go by the NUMA nodes that were read before, and by none on other nodes",
    )


def secondary(cache: Cache) -> tuple[Kind[Any], ...]:
    """What to follow that the scheduler can do without for a while, each with what waits then.

    The kinds that it can't do without are in scheduler/app.py, with why.
    """
    facts, storage = cache.cluster, cache.cluster.storage
    attachments = storage.attachments
    return (
        Kind(QUEUES, QueueSink(cache), "pods wait, or go by the queues that were read before"),
        Kind(
            NAMESPACES,
            FactSink(cache, facts.others.namespaces, selectors.namespace_record),
            "anti-affinity of running pods that selects namespaces keeps pods of all namespaces off",
        ),
        Kind(
            TOPOLOGIES,
            FactSink(cache, facts.topologies.of_kai, pod_groups.topology_record),
            "gangs whose pods have to be in one domain of a Topology not read before wait",
        ),
        Kind(JOBS, FactSink(cache, facts.owners.jobs, owners.job_record), "pods of Jobs not read before wait"),
        Kind(
            STORAGE_CLASSES,
            FactSink(cache, storage.classes, volumes.storage_class_record),
            "pods with unbound claims of classes not read before wait",
        ),
        Kind(
            CSI_DRIVERS,
            FactSink(cache, storage.offers.drivers, volumes.driver_record),
            "pods with unbound claims wait, or go by the drivers that were read before",
        ),
        Kind(
            CSI_STORAGE_CAPACITIES,
            FactSink(cache, storage.offers.capacities, volumes.capacity_record),
            "pods with unbound claims of drivers that tell their capacity wait",
        ),
        Kind(
            CSI_NODES,
            FactSink(cache, attachments.limits, volumes.limits_record),
            "pods with CSI volumes wait, or go by the limits that were read before",
        ),
        Kind(
            VOLUME_ATTACHMENTS,
            FactSink(cache, attachments.attached, volumes.attachment_record),
            "pods with volumes of CSI drivers that have a limit wait",
        ),
        Kind(
            PERSISTENT_VOLUMES,
            StoredSink(cache, storage.volumes, volumes.volume_record),
            "pods with claims wait, but for volumes that were read before",
        ),
        Kind(
            PERSISTENT_VOLUME_CLAIMS,
            StoredSink(cache, storage.claims, volumes.claim_record),
            "pods with claims wait, but for claims that were bound before",
        ),
        Kind(
            DEVICE_CLASSES,
            FactSink(cache, facts.claims.inventory.classes, device_class_record),
            "pods with ResourceClaims of classes not read before wait",
        ),
        Kind(
            RESOURCE_SLICES,
            FactSink(cache, facts.claims.inventory.slices, slice_record),
            "pods whose ResourceClaims are not allocated wait",
        ),
        Kind(RESOURCE_CLAIMS, ClaimSink(cache), "pods with ResourceClaims wait"),
    )
