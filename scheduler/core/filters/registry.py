"""All filters, in the order in which reasons are reported: the first that lets no pod on a node is its reason.

The judgement of one set of constraints on one node is a small number, so that judgements of all nodes are one array:
OK, NO_NODE, or the place of the filter in the registry, from 1.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

from scheduler.core.filters.declared_features import DeclaredFeatures
from scheduler.core.filters.distinct_gpus import DistinctGpus
from scheduler.core.filters.enforcement import DriverCaps, Enforcement
from scheduler.core.filters.filter import Filter
from scheduler.core.filters.gpu_product import GpuProduct
from scheduler.core.filters.host_ports import HostPorts
from scheduler.core.filters.inline_disks import InlineDisks
from scheduler.core.filters.node_affinity import EnforcedAffinity, NodeAffinity, Selector
from scheduler.core.filters.node_pool import OwnPool
from scheduler.core.filters.numa import NumaAlignment
from scheduler.core.filters.place import Place
from scheduler.core.filters.pod_affinity import OthersAntiAffinity, PodAffinity, PodAntiAffinity
from scheduler.core.filters.pod_rule import Part, PodRule
from scheduler.core.filters.resource_claims import ClaimPlaces, ResourceSource
from scheduler.core.filters.spread import SpreadLabel, TopologySpread
from scheduler.core.filters.taints import Cordon, Readiness, Taints
from scheduler.core.filters.volume_places import VolumeAffinity, VolumeZone
from scheduler.core.model.pod_class import Constraints, PodClass, Term
from scheduler.core.model.records import NodeRecord
from scheduler.core.model.settings import NodePool
from wire.core import Pod

OK: Final = 0
#: A row of the table that stands for no node.
NO_NODE: Final = -1


class Filters:
    """Filters in order. Raises ValueError if two are of one kind."""

    __slots__ = ("_numbers", "all")

    def __init__(self, filters: Sequence[Filter]) -> None:
        self.all = tuple(filters)
        self._numbers = {each.kind: number for number, each in enumerate(self.all, 1)}
        if len(self._numbers) < len(self.all):
            raise ValueError(f"filters have to differ in kind: {[each.kind for each in self.all]}")

    def enforcing(self, terms: tuple[Term, ...] | None) -> Filters:
        """These filters, with node affinity that all pods ask (filters/node_affinity.py)."""
        if terms is None:
            return self
        return Filters([EnforcedAffinity(terms) if isinstance(each, EnforcedAffinity) else each for each in self.all])

    def of_pool(self, pool: NodePool | None) -> Filters:
        """These filters, for pods of one node pool (filters/node_pool.py)."""
        if pool is None:
            return self
        return Filters([OwnPool(pool) if isinstance(each, OwnPool) else each for each in self.all])

    @property
    def own_pool(self) -> tuple[Filter, ...]:
        """The filter that knows the pool; none where a test has left it out."""
        return tuple(each for each in self.all if isinstance(each, OwnPool))

    @property
    def numbers(self) -> dict[str, int]:
        """Kind -> the judgement that stands for it, in order."""
        return self._numbers

    def number(self, filter_: type[Filter]) -> int:
        """The judgement that stands for a filter."""
        return self._numbers[filter_.kind]

    def words(self) -> dict[str, str]:
        """Kind -> what people read."""
        return {each.kind: each.words for each in self.all}

    def read(self, pod: Pod) -> tuple[tuple[str, Hashable], ...]:
        """What a pod asks of filters that read it themselves, by kind."""
        read = ((each.kind, each.read(pod)) for each in self.all)
        return tuple((kind, asked) for kind, asked in read if asked is not None)

    def parts(self, cls: PodClass) -> tuple[tuple[int, Part], ...]:
        """What a class asks of the pods around it: parts of rules, each with its rule's number, in order."""
        return tuple(
            (number, part)
            for number, each in enumerate(self.all, 1)
            if isinstance(each, PodRule)
            for part in each.parts(cls)
        )

    def judge(self, node: NodeRecord, constraints: Constraints) -> int:
        """OK, or the number of the first filter that lets no pod with these constraints on ``node``."""
        return self.judging(constraints)(node)

    def judging(self, constraints: Constraints) -> Callable[[NodeRecord], int]:
        """The same for many nodes."""
        asked = ((number, each, each.asked(constraints)) for number, each in enumerate(self.all, 1))
        checks: list[tuple[int, Callable[[NodeRecord, Any], bool], Any]] = [
            (number, each.admits, ask) for number, each, ask in asked if ask is not None
        ]

        def judge(node: NodeRecord) -> int:
            for number, admits, ask in checks:
                if not admits(node, ask):
                    return number
            return OK

        return judge

    def effort(self, constraints: Constraints) -> int:
        """How much there is to look at for one node, in comparisons or so."""
        asked = ((each, each.asked(constraints)) for each in self.all)
        return 1 + sum(each.effort(ask) for each, ask in asked if ask is not None)

    def admit_alike(self, one: NodeRecord, other: NodeRecord) -> bool:
        """Whether the same pods may be on both: everything that filters read is equal."""
        return all(each.reads(one) == each.reads(other) for each in self.all)


FILTERS: Final = Filters(
    [
        OwnPool(),
        Readiness(),
        Cordon(),
        Taints(),
        EnforcedAffinity(),
        Selector(),
        NodeAffinity(),
        HostPorts(),
        InlineDisks(),
        VolumeZone(),
        VolumeAffinity(),
        ClaimPlaces(),
        GpuProduct(),
        Enforcement(),
        DriverCaps(),
        Place(),
        ResourceSource(),
        SpreadLabel(),
        TopologySpread(),
        PodAffinity(),
        PodAntiAffinity(),
        OthersAntiAffinity(),
        DeclaredFeatures(),
        NumaAlignment(),
        DistinctGpus(),
    ]
)
