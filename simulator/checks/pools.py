"""Node pools: of which pool an object is, and a cluster at rest as each pool has it.

L1, L3, L4, L6 and S5 are about the nodes that a pod's scheduler may use; S6 and S14 about the queues and nominations of
its pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from simulator.checks.facts import Json, PodFacts
from simulator.checks.gangs import Key
from simulator.checks.ledgers import NodeFacts
from simulator.checks.messages import Scene
from wire import names


@dataclass(frozen=True, slots=True)
class Pools:
    """``is_divided``: whether each pool has a scheduler. ``groups``: labels of PodGroups that are there."""

    is_divided: bool
    groups: Mapping[Key, Json]

    def of(self, pod: PodFacts) -> str:
        """The pool of a pod: what its PodGroup's label says, or its own without a PodGroup."""
        return self.labelled(self.groups.get((pod.namespace, pod.pod_group), pod.labels))

    def labelled(self, labels: Mapping[str, str] | None) -> str:
        """The pool of an object with these labels; "" of all objects where the cluster is not divided."""
        return str((labels or {}).get(names.NODE_POOL_LABEL) or "") if self.is_divided else ""

    def may_use(self, pod: PodFacts, node: NodeFacts) -> bool:
        """Whether a pod's scheduler uses a node."""
        return not self.is_divided or self.of(pod) == node.pool

    def parts(self, scene: Scene, waiting: Iterable[PodFacts]) -> Iterator[tuple[Scene, list[PodFacts]]]:
        """Yield what each pool has, with the pods of it that wait."""
        if not self.is_divided:
            yield scene, list(waiting)
            return
        found: dict[str, list[PodFacts]] = {}
        for pod in waiting:
            found.setdefault(self.of(pod), []).append(pod)
        for pool, pods in found.items():
            nodes = {name: node for name, node in scene.nodes.items() if node.pool == pool}
            rooms = [room for room in scene.rooms if room.name in nodes]
            yield replace(scene, nodes=nodes, rooms=rooms, others=len(scene.nodes) - len(nodes), short={}), pods
