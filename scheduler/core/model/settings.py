"""What an administrator may set about decisions. One frozen value, passed in.

A node pool is the part of a cluster that one scheduler decides on: nodes, pods, PodGroups and Queues with one value of
a label. Several schedulers share a cluster by it (KAI's ``SchedulingShard``, kai-contract 2.5): each object is of
exactly one pool, so no two of them place the same pod, or place pods on the same node.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from scheduler.core.model.pod_class import Term, Weights
from scheduler.core.model.preemption import PreemptionSettings
from wire import names
from wire.crds.podgroup import DEFAULT_NODE_POOL


class NodePool(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """``value`` "": objects without the label, or with an empty one."""

    key: str = names.NODE_POOL_LABEL
    value: str = ""

    @property
    def name(self) -> str:
        """What events and conditions call it."""
        return self.value or DEFAULT_NODE_POOL

    @property
    def suffix(self) -> str:
        """What names of objects that each scheduler has of its own end in, as its lease does."""
        return f"-{self.value}" if self.value else ""

    @property
    def labels(self) -> dict[str, str]:
        """What an object of this pool is labelled with."""
        return {self.key: self.value} if self.value else {}

    def takes(self, labels: Mapping[str, str] | None) -> bool:
        """Whether an object with these labels is of this pool."""
        return (labels or {}).get(self.key, "") == self.value


def own_name(name: str, pool: NodePool | None) -> str:
    """The name of an object that each scheduler has of its own."""
    return name if pool is None else name + pool.suffix


def name_of(pool: NodePool | None) -> str:
    """What events and conditions call a pool; None: the cluster is not divided."""
    return DEFAULT_NODE_POOL if pool is None else pool.name


class Strategy(enum.StrEnum):
    """Where the next pod goes: onto what is in use, onto what is free, or where the least usable capacity is lost."""

    BINPACK = "binpack"
    SPREAD = "spread"
    PRICED = "priced"


class Settings(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Settings of the core. Reservation requests are those that the binder gives its reservation pods."""

    scheduler_name: str = names.SCHEDULER_NAME
    #: What this scheduler decides on, if the cluster is divided; None: all of it.
    pool: NodePool | None = None
    reservation_namespace: str = names.RESERVATION_NAMESPACE
    reservation_app: str = names.RESERVATION_APP
    #: Names of scores (scores/registry.py): for GPUs, whole and in parts, and for pods without.
    gpu_strategy: str = Strategy.PRICED
    cpu_strategy: str = Strategy.PRICED
    #: What preferences of pods weigh (scores/preferences).
    weights: Weights = Weights()
    reservation_cpu_milli: int = 0
    reservation_mem_mib: int = 0
    #: A pod whose attempt failed waits this long, doubled with each further failure up to the longest.
    back_off_ns: int = 1_000_000_000
    longest_back_off_ns: int = 300_000_000_000
    #: The longest wait after failures that no node was to blame for: a prediction that came late is soon put right.
    longest_blameless_back_off_ns: int = 10_000_000_000
    #: So often a pod that somebody changed just before its Binding is tried again at once; then it waits likewise.
    free_overtakings: int = 3
    #: The node of a failed attempt is out for that pod this long, doubled likewise.
    exclusion_ns: int = 30_000_000_000
    longest_exclusion_ns: int = 1_800_000_000_000
    #: So often a pod is moved away from nodes that don't answer; then it waits where it is.
    most_moves: int = 2
    #: Workloads are grouped by ``moorage podgrouper``: pods of a Job, too, wait until they name a PodGroup.
    workloads_are_grouped: bool = False
    #: All pods wait for nodes that enforce what they wish, not only those that say so themselves.
    require_enforcement: bool = False
    #: Node affinity that all pods have beside their own, by the terms of which one has to hold; None: none.
    enforced_node_affinity: tuple[Term, ...] | None = None
    #: Pods are evicted for others that have a right to what they use (docs/design/preemption.md).
    preemption: bool = True
    #: After so long nodes are kept for a group that found no room, if its queue says nothing (queues.reserved_nodes).
    reserved_nodes_patience_ns: int = 600_000_000_000
    #: Of all GPUs, how many may be on such nodes; 0: none are kept.
    reserved_nodes_percent: int = 10
    preemption_settings: PreemptionSettings = PreemptionSettings()
    #: Pods go only where kubelets can align them on NUMA nodes, as NodeResourceTopology objects say.
    numa_alignment: bool = False
    #: Pods with several GPUs do not go where two may be the same one, as the device plugin offers each several times.
    distinct_gpus: bool = False

    @property
    def uses_prices(self) -> bool:
        """Whether decisions go by prices, so that somebody has to make them (scores/prices.py)."""
        return Strategy.PRICED in {self.gpu_strategy, self.cpu_strategy}
