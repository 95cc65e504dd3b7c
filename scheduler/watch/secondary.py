"""Feeds what pods depend on beside nodes and their own spec: queues, namespaces, Jobs, claims, volumes.

What Queues show goes to the writer of their status. What agents of nodes report, and whether they work, is followed for
what people are shown: no decision reads it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import anyio
import msgspec
from anyio.abc import TaskStatus
from typing_extensions import override

from gpu.node_use import Agent, NodeUse, agents, is_agent, node_use
from kube.client.api import Api
from kube.client.resources import (
    CONFIG_MAP_NAMES,
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    GPU_NODES,
    JOBS,
    NAMESPACES,
    NODE_RESOURCE_TOPOLOGIES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    REPLICA_SETS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    TOPOLOGIES,
    VOLUME_ATTACHMENTS,
)
from kube.lead.secondary import Kind
from kube.watch.reflector import Reflector
from kube.watch.signal import Signal
from scheduler.core.convert import owners, pod_groups, selectors, volumes
from scheduler.core.convert.config_maps import config_map_record
from scheduler.core.convert.devices import device_class_record, slice_record, taint_rule_record
from scheduler.core.convert.numa import numa_report
from scheduler.core.convert.pod_groups import queue_elsewhere, queue_record
from scheduler.core.convert.resource_claims import resource_claim_record
from scheduler.core.convert.selectors import budget_record
from scheduler.core.groups.priority import priority_class_record
from scheduler.core.model.devices import ResourceClaimRecord
from scheduler.core.model.facts import Facts, Keyed
from scheduler.core.model.quota import QueueElsewhere, QueueRecord
from scheduler.core.model.settings import NodePool
from scheduler.watch.cache import Cache, QueueShown, Shown
from wire import names
from wire.core import Pod
from wire.crds.gpunode import GpuNode
from wire.crds.queue import Queue
from wire.resource import ResourceClaim


class NodeUses:
    """Reports by node. Followed as reflectors are (kube/lead/replica.py), and waited for by nobody.

    ``is_fed``: somebody else watches GpuNodes, and feeds ``sink``.
    """

    def __init__(self, api: Api, *, rng: random.Random, is_fed: bool = False) -> None:
        self.changed = Signal()
        self.reports: dict[str, GpuNode] = {}
        self._agents: dict[str, Pod] = {}
        self._known: dict[str, Agent] | None = None
        pods = Reflector(api, PODS, _Agents(self), namespace=names.NODE_NAMESPACE, rng=rng)
        #: Takes GpuNodes.
        self.sink = _Reports(self)
        reports = [] if is_fed else [Reflector(api, GPU_NODES, self.sink, rng=rng)]
        self._reflectors: list[Reflector[Pod] | Reflector[GpuNode]] = [*reports, pods]
        self._agents_read = pods.synced

    def use_on(self, node: str) -> NodeUse | None:
        """What tenants use there; None: no agent has reported, or nothing has been read yet."""
        report = self.reports.get(node)
        if report is None or not self._agents_read.is_set():
            return None
        if self._known is None:
            self._known = agents(self._agents.values())
        return node_use(report, self._known)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Follow until cancelled. Started at once."""
        async with anyio.create_task_group() as tasks:
            for each in self._reflectors:
                tasks.start_soon(each.run)
            task_status.started()

    async def catch_up(self) -> None:
        """Nothing rests on it, so nobody waits for it."""

    def put_agent(self, pod: Pod) -> None:
        """Take an agent's pod as it is now."""
        self._agents[pod.metadata.uid] = pod
        self._known = None
        self.changed.set()

    def drop_agent(self, uid: str) -> None:
        """An agent's pod is gone."""
        if self._agents.pop(uid, None) is not None:
            self._known = None
            self.changed.set()

    def replace_agents(self, pods: Sequence[Pod]) -> None:
        """Take all pods of agents."""
        self._agents = {pod.metadata.uid: pod for pod in pods}
        self._known = None
        self.changed.set()


class _Agents:
    def __init__(self, uses: NodeUses) -> None:
        self._uses = uses

    def keep(self, obj: Pod) -> Pod | None:
        return obj if is_agent(obj) else None

    async def replace(self, kept: Sequence[Pod | None]) -> None:
        self._uses.replace_agents([pod for pod in kept if pod is not None])

    def upsert(self, obj: Pod) -> None:
        if is_agent(obj):
            self._uses.put_agent(obj)

    def delete(self, obj: Pod) -> None:
        self._uses.drop_agent(obj.metadata.uid)


class _Reports:
    def __init__(self, uses: NodeUses) -> None:
        self._uses = uses

    def keep(self, obj: GpuNode) -> GpuNode:
        return obj

    async def replace(self, kept: Sequence[GpuNode]) -> None:
        self._uses.reports.clear()
        for report in kept:
            self.upsert(report)

    def upsert(self, obj: GpuNode) -> None:
        self._uses.reports[obj.metadata.name] = obj
        self._uses.changed.set()

    def delete(self, obj: GpuNode) -> None:
        self._uses.reports.pop(obj.metadata.name, None)
        self._uses.changed.set()


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


class QuietSink(FactSink[T, R]):
    """The same of kinds of which most change all the time, and no pod waits for them: then nobody is woken."""

    @override
    def upsert(self, obj: T) -> None:
        """Take an object."""
        with self._waking():
            self._facts.put(self._read(obj))

    @override
    def delete(self, obj: T) -> None:
        """Take an object's last state."""
        with self._waking():
            self._facts.drop(self._read(obj))

    @contextmanager
    def _waking(self) -> Iterator[None]:
        before = self._cache.cluster.generation
        yield
        if self._cache.cluster.generation != before:
            self._cache.wake.set()


class StoredSink(FactSink[T, R]):
    """The same of claims or volumes: it tells those who wait for one of them (``CacheListeners.stored``)."""

    @override
    async def replace(self, kept: Sequence[R]) -> None:
        """Take a list, and tell that any may have changed."""
        await super().replace(kept)
        self._cache.listeners.stored(None)

    @override
    def upsert(self, obj: T) -> None:
        """Take an object."""
        super().upsert(obj)
        self._cache.listeners.stored(self._read(obj).key)

    @override
    def delete(self, obj: T) -> None:
        """Take an object's last state."""
        super().delete(obj)
        self._cache.listeners.stored(self._read(obj).key)


class ClaimSink(StoredSink[ResourceClaim, ResourceClaimRecord]):
    """The same of ResourceClaims: a list does not say in which order their devices were allocated."""

    def __init__(self, cache: Cache) -> None:
        super().__init__(cache, cache.cluster.claims.claims, resource_claim_record)

    @override
    async def replace(self, kept: Sequence[ResourceClaimRecord]) -> None:
        """Take a list, and tell that any may have changed."""
        with self._cache.cluster.claims.order.listing():
            await super().replace(kept)


_Kept = tuple[QueueRecord, Shown[QueueShown]] | QueueElsewhere


class QueueSink:
    """Takes each Queue twice: a status that changed makes no decision necessary. Of other pools' the names are kept."""

    def __init__(self, cache: Cache) -> None:
        self._pool = cache.cluster.settings.pool
        self._facts = FactSink(cache, cache.cluster.queues.records, queue_record)
        self._elsewhere = cache.cluster.queues.elsewhere
        self._shown = cache.queues

    def keep(self, obj: Queue) -> _Kept:
        """What is kept of a Queue."""
        if self._is_here(obj):
            return self._facts.keep(obj), shown(obj)
        return self._of_other_pool(obj)

    def _is_here(self, obj: Queue) -> bool:
        return self._pool is None or self._pool.takes(obj.metadata.labels)

    def _of_other_pool(self, obj: Queue) -> QueueElsewhere:
        pool = NodePool() if self._pool is None else self._pool
        return queue_elsewhere(obj, pool.key)

    async def replace(self, kept: Sequence[_Kept]) -> None:
        """Take a list: what is not in it is gone."""
        here = [each for each in kept if not isinstance(each, QueueElsewhere)]
        self._elsewhere.replace([each for each in kept if isinstance(each, QueueElsewhere)])
        await self._facts.replace([record for record, _ in here])
        self._shown.replace({record.name: each for record, each in here})

    def upsert(self, obj: Queue) -> None:
        """Take a Queue."""
        if not self._is_here(obj):
            self.delete(obj)
            self._elsewhere.put(self._of_other_pool(obj))
            return
        self._elsewhere.drop(self._of_other_pool(obj))
        self._facts.upsert(obj)
        self._shown.note(obj.metadata.name, shown(obj))

    def delete(self, obj: Queue) -> None:
        """Take a Queue's last state."""
        self._elsewhere.drop(self._of_other_pool(obj))
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
        FactSink(cache, cache.preemption.budgets, budget_record),
        "pods are asked to go for others by the budgets that were read before, and the API server refuses what it must",
    )


def config_maps(cache: Cache) -> Kind[Any]:
    """What to follow where pods wait for ConfigMaps."""
    return Kind(
        CONFIG_MAP_NAMES,
        QuietSink(cache, cache.cluster.config_maps.there, config_map_record),
        "pods do not wait for ConfigMaps that do not exist, and are bound without them",
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


def plain_owners(cache: Cache) -> tuple[Kind[Any], ...]:
    """What to follow where workloads are grouped: what says whether the pods of its kind start alone."""
    without = "pods of ReplicaSets and StatefulSets not read before wait"
    return tuple(
        Kind(
            resource,
            QuietSink(cache, cache.cluster.owners.plain[resource.kind], owners.plain_record(resource.kind)),
            without,
        )
        for resource in (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS)
    )


def secondary(cache: Cache) -> tuple[Kind[Any], ...]:
    """What to follow that the scheduler can do without for a while, each with what waits then.

    The kinds that it can't do without are in scheduler/app.py, with why.
    """
    facts = cache.cluster
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
        Kind(
            PRIORITY_CLASSES,
            FactSink(cache, facts.priorities.classes, priority_class_record),
            "gangs whose PodGroup names a PriorityClass not read before wait",
        ),
        Kind(JOBS, FactSink(cache, facts.owners.jobs, owners.job_record), "pods of Jobs not read before wait"),
        *_storage(cache),
        *_devices(cache),
    )


def _storage(cache: Cache) -> tuple[Kind[Any], ...]:
    """Volumes, and what says where they can be."""
    storage = cache.cluster.storage
    return (
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
            FactSink(cache, storage.attachments.limits, volumes.limits_record),
            "pods with CSI volumes wait, or go by the limits that were read before",
        ),
        Kind(
            VOLUME_ATTACHMENTS,
            FactSink(cache, storage.attachments.attached, volumes.attachment_record),
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
    )


def _devices(cache: Cache) -> tuple[Kind[Any], ...]:
    """ResourceClaims, and the devices that they can be allocated."""
    inventory = cache.cluster.claims.inventory
    return (
        Kind(
            DEVICE_CLASSES,
            FactSink(cache, inventory.classes, device_class_record),
            "pods with ResourceClaims of classes not read before wait",
        ),
        Kind(
            RESOURCE_SLICES,
            FactSink(cache, inventory.slices, slice_record),
            "pods whose ResourceClaims are not allocated wait",
        ),
        Kind(RESOURCE_CLAIMS, ClaimSink(cache), "pods with ResourceClaims wait"),
    )
