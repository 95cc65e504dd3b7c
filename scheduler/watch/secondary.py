"""Feeds the core what pods depend on beside nodes and their own spec: queues, namespaces, Jobs, claims, volumes.

What Queues show goes to the writer of their status.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from typing_extensions import override

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
from scheduler.core.convert.queues import queue_record
from scheduler.core.convert.resource_claims import resource_claim_record
from scheduler.core.convert.selectors import budget_record
from scheduler.core.model.devices import ResourceClaimRecord
from scheduler.core.model.facts import Facts, Keyed
from scheduler.core.model.quota import QueueRecord
from scheduler.watch.cache import Cache, QueueShown, Shown
from wire.crds.queue import Queue
from wire.resource import ResourceClaim

T = TypeVar("T", bound=msgspec.Struct)
R = TypeVar("R", bound=Keyed[Any])


class FactSink(Generic[T, R]):
    """Feeds one table of the core, and wakes the deciding task."""

    def __init__(self, cache: Cache, facts: Facts[Any, R], read: Callable[[T], R]) -> None:
        self._cache = cache
        self._facts = facts
        self._read = read
        facts.expect()

    def keep(self, obj: T) -> R:
        """What the core keeps of an object."""
        return self._read(obj)

    async def replace(self, kept: Sequence[R]) -> None:
        """Take a list: what is not in it is gone."""
        self._facts.replace(kept)
        self._cache.wake.set()

    def upsert(self, obj: T) -> None:
        """Take an object."""
        self._facts.put(self._read(obj))
        self._cache.wake.set()

    def delete(self, obj: T) -> None:
        """Take an object's last state."""
        self._facts.drop(self._read(obj))
        self._cache.wake.set()

    def in_step(self, is_in_step: bool) -> None:
        """Take whether changes come in."""
        self._facts.note_in_step(is_in_step)
        self._cache.wake.set()


class StoredSink(FactSink[T, R]):
    """The same of claims or volumes: it tells those who wait for one of them (``Cache.on_stored``)."""

    @override
    async def replace(self, kept: Sequence[R]) -> None:
        """Take a list, and tell that any may have changed."""
        await super().replace(kept)
        self._cache.on_stored(None)

    @override
    def upsert(self, obj: T) -> None:
        """Take an object."""
        super().upsert(obj)
        self._cache.on_stored(self._read(obj).key)

    @override
    def delete(self, obj: T) -> None:
        """Take an object's last state."""
        super().delete(obj)
        self._cache.on_stored(self._read(obj).key)


class ClaimSink(StoredSink[ResourceClaim, ResourceClaimRecord]):
    """The same of ResourceClaims: a list does not say in which order their devices were allocated."""

    def __init__(self, cache: Cache) -> None:
        super().__init__(cache, cache.cluster.claims.claims, resource_claim_record)

    @override
    async def replace(self, kept: Sequence[ResourceClaimRecord]) -> None:
        """Take a list, and tell that any may have changed."""
        with self._cache.cluster.claims.order.listing():
            await super().replace(kept)


_Kept = tuple[QueueRecord, Shown[QueueShown]]


class QueueSink:
    """Takes each Queue twice: a status that changed makes no decision necessary. Those of other pools are not there."""

    def __init__(self, cache: Cache) -> None:
        self._pool = cache.cluster.settings.pool
        self._facts = FactSink(cache, cache.cluster.queues.records, queue_record)
        self._shown = cache.queues

    def keep(self, obj: Queue) -> _Kept | None:
        """What is kept of a Queue."""
        return (self._facts.keep(obj), shown(obj)) if self._is_here(obj) else None

    def _is_here(self, obj: Queue) -> bool:
        return self._pool is None or self._pool.takes(obj.metadata.labels)

    async def replace(self, kept: Sequence[_Kept | None]) -> None:
        """Take a list: what is not in it is gone."""
        here = [each for each in kept if each is not None]
        await self._facts.replace([record for record, _ in here])
        self._shown.replace({record.name: each for record, each in here})

    def upsert(self, obj: Queue) -> None:
        """Take a Queue."""
        if not self._is_here(obj):
            self.delete(obj)
            return
        self._facts.upsert(obj)
        self._shown.note(obj.metadata.name, shown(obj))

    def delete(self, obj: Queue) -> None:
        """Take a Queue's last state."""
        self._facts.delete(obj)
        self._shown.drop(obj.metadata.name)

    def in_step(self, is_in_step: bool) -> None:
        """Take whether changes come in."""
        self._facts.in_step(is_in_step)


def shown(queue: Queue) -> Shown[QueueShown]:
    """What a Queue shows."""
    meta = queue.metadata
    return Shown(meta.uid, meta.resource_version, QueueShown(queue.spec.display_name, queue.status))


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
