"""What waits in a cluster at rest: whether it fits (L1), whether it says why (L3, S11), and nodes kept for it (L6).

Each node pool that has a scheduler is judged by its own nodes and pods.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from simulator.checks import fit, messages
from simulator.checks.claims import Claims
from simulator.checks.facts import PodFacts
from simulator.checks.gangs import Key, Pools
from simulator.checks.limits import Limits
from simulator.checks.messages import Asking, Scene
from simulator.checks.violations import Findings

_OWNER: Final = re.compile(
    r"(?P<owner>\S+) has waited since \S+, so its place is being freed on (?P<nodes>.+?)(?: and (?P<more>\d+) more)?"
    r"\. It starts when enough of the pods there have ended"
)
_KEPT_FOR: Final = re.compile(
    r"node\(s\) are kept for (?:another group of queue (?P<queue>\S+)|(?P<owner>\S+)), which has waited since "
)


@dataclass(slots=True)
class NodeReserve:
    """Of ``owner`` (namespace and name), in a queue. ``pods``: those of it that wait; ``nodes``: as far as told."""

    owner: str
    queue: str
    nodes: frozenset[str]
    is_told_whole: bool
    pods: list[PodFacts] = field(default_factory=list)


@dataclass(slots=True)
class NodeReserves:
    """Node reserves of one cluster, or node pool, at rest, as pods say it of themselves (docs/queues.md, Large jobs).

    Owners say on which nodes their places are being freed, and pods that are kept off say for which owner:

    - a queue has one node reserve, of nodes that exist, and nobody waits for an owner that does not say it is one (L3);
    - a pod that fits on nodes of a node reserve waits only if that may keep it off: not one that stays within its
      queue's quotas, nor one of the owner's queue that is more urgent (L1);
    - an owner of which all nodes are empty has its place (L6).

    Where several schedulers decide on one pool (``several_decide``), a queue may have one of each, and an owner may say
    what another scheduler decided: neither is judged. ``queue_of``: a pod's queue; ``priority_of``: its priority;
    ``is_short``: whether its queue is within its quotas with it, or with its gang.
    """

    queue_of: Callable[[PodFacts], str]
    priority_of: Callable[[PodFacts], int]
    is_short: Callable[[PodFacts], bool]
    nodes: Collection[str]
    several_decide: bool = False
    of: dict[str, NodeReserve] = field(default_factory=dict)

    def take(self, waiting: Iterable[PodFacts]) -> None:
        """Take what pods say that wait."""
        for pod in waiting:
            if (found := _told(pod)) is None:
                continue
            nodes = frozenset(found["nodes"].split(", "))
            reserve = NodeReserve(found["owner"], self.queue_of(pod), nodes, found["more"] is None)
            self.of.setdefault(reserve.owner, reserve).pods.append(pod)

    def kept_from(self, pod: PodFacts) -> Collection[str]:
        """Nodes that node reserves may keep from a pod: all, where one does not name all of its nodes.

        Also all where several schedulers decide and another one wrote over what the owner said: nobody names its nodes.
        """
        kept = _KEPT_FOR.search(pod.verdict.message) if pod.verdict else None
        if self.several_decide and kept is not None and kept["owner"] not in self.of:
            return self.nodes
        against = [reserve for reserve in self.of.values() if self._is_against(reserve, pod)]
        if any(not reserve.is_told_whole for reserve in against):
            return self.nodes
        return {name for reserve in against for name in reserve.nodes}

    def _is_against(self, reserve: NodeReserve, pod: PodFacts) -> bool:
        if reserve.owner == owner_of(pod):
            return False
        if reserve.queue == self.queue_of(pod):
            return self.priority_of(pod) <= max(map(self.priority_of, reserve.pods))
        return not self.is_short(pod)

    # --- what is judged ----------------------------------------------------------------------------------------------
    def untrue(self, pod: PodFacts) -> Iterator[str]:
        """Yield what a waiting pod says of node reserves that is not so (L3)."""
        if (found := _told(pod)) is not None:
            if found["owner"] not in {owner_of(pod), pod.key}:
                yield f"it says that nodes are kept for it as {found['owner']}, and it is {owner_of(pod)}"
            if missing := set(found["nodes"].split(", ")) - set(self.nodes):
                yield f"it says that {', '.join(sorted(missing))} are being freed, and there are no such nodes"
            others = [each for each in self.of.values() if each.queue == self.queue_of(pod)]
            if len(others) > 1 and not self.several_decide:
                yield f"queue {self.queue_of(pod)} has reserves for {', '.join(sorted(each.owner for each in others))}"
        text = pod.verdict.message if pod.verdict else ""
        if (kept := _KEPT_FOR.search(text)) and not self.several_decide:
            if kept["owner"] and kept["owner"] not in self.of:
                yield f"it says that nodes are kept for {kept['owner']}, which does not say so"
            if kept["queue"] and kept["queue"] not in {reserve.queue for reserve in self.of.values()}:
                yield f"it says that nodes are kept for a group of queue {kept['queue']}, of which none says so"

    def drained(self, used: Collection[str]) -> Iterator[str]:
        """Yield owners of which all nodes are empty. ``used``: nodes on which there are pods."""
        for reserve in self.of.values():
            if reserve.is_told_whole and reserve.nodes.isdisjoint(used) and reserve.nodes <= set(self.nodes):
                yield f"{reserve.owner} waits for {', '.join(sorted(reserve.nodes))}, where nothing is left"


def owner_of(pod: PodFacts) -> str:
    """As whom a pod would have a node reserve: its PodGroup, or itself."""
    return f"{pod.namespace}/{pod.pod_group}" if pod.pod_group else pod.key


def _told(pod: PodFacts) -> re.Match[str] | None:
    return _OWNER.fullmatch(pod.verdict.message) if pod.verdict else None


@dataclass(frozen=True, slots=True)
class AtRest:
    """``live``: the pods that are there, by UID. ``several_decide``: several schedulers decide on one pool at once."""

    findings: Findings
    pools: Pools
    limits: Limits
    asking: Asking
    live: Mapping[str, PodFacts]
    several_decide: bool
    claims: Claims

    def waiting(self) -> list[PodFacts]:
        """Pods that are for us to place, and are not placed yet."""
        return [pod for pod in self.live.values() if pod.waits]

    def fitting(self, scene: Scene, uncounted: Collection[Key]) -> dict[str, str]:
        """Pods that wait though they fit, by UID: where (L1). ``uncounted``: gangs that are not judged."""
        minimums = {key: least for key, least in scene.minimums.items() if key not in uncounted}
        kept_from = self.kept_from(scene)
        found = (
            told
            for part, waiting in parts_by_pool(self.pools, scene, self.waiting())
            for told in (
                *fit.fitting(waiting, part.members, minimums, part.rooms, kept_from=kept_from),
                *self.claims.fitting(waiting, replace(part, minimums=minimums), kept_from=kept_from),
            )
        )
        free = ((pod, where) for pod, where in found if not self._may_hold(pod, scene))
        return {pod.uid: f"pod {pod.key} waits, and {where}" for pod, where in free}

    def kept_from(self, scene: Scene) -> Callable[[PodFacts], Collection[str]]:
        """Return a function: the nodes from which a waiting pod is kept, by node reserves of its pool or other pods."""
        reserves: dict[str, NodeReserves] = {}
        for part, waiting in parts_by_pool(self.pools, scene, self.waiting()):
            reserves.update(dict.fromkeys((pod.uid for pod in waiting), self._reserves(part, waiting)))

        def kept_from(pod: PodFacts) -> Collection[str]:
            kept = reserves[pod.uid].kept_from(pod) if pod.uid in reserves else ()
            return scene.apart.kept_from(pod).union(kept)

        return kept_from

    def judge(self, scene: Scene, used: Collection[str], at_s: float) -> None:
        """Judge what pods say that wait (L3, S11), and for whom nodes are kept (L6). ``used``: nodes that have pods."""
        for part, waiting in parts_by_pool(self.pools, scene, self.waiting()):
            reserves = self._reserves(part, waiting)
            for text in reserves.drained(used):
                self.findings.add("L6", at_s, text)
            for pod in waiting:
                if pod.is_gated:
                    continue
                for text in (*messages.untrue(pod, part), *self.limits.untrue(pod), *reserves.untrue(pod)):
                    self.findings.add("L3", at_s, f"pod {pod.key}: {text}")
                self.asking.waits(pod, at_s)
        self.findings.judged.add("L3")

    def _reserves(self, part: Scene, waiting: Iterable[PodFacts]) -> NodeReserves:
        """Nodes of a pool that are kept for groups that have waited too long, as its pods say it."""

        def is_short(pod: PodFacts) -> bool:
            missing = _missing(pod, part)
            return missing is not None and self.limits.is_short(pod, missing=missing)

        limits = self.limits
        reserves = NodeReserves(
            limits.queue_of, limits.priority_of, is_short, part.nodes, several_decide=self.several_decide
        )
        reserves.take(waiting)
        return reserves

    def _may_hold(self, pod: PodFacts, scene: Scene) -> bool:
        missing = _missing(pod, scene)
        return missing is None or self.limits.may_hold(pod, missing=missing)


def _missing(pod: PodFacts, scene: Scene) -> int | None:
    """How many of its gang have to start together; None if they can't."""
    key = (pod.namespace, pod.pod_group)
    least = scene.minimums.get(key)
    return 1 if least is None else least.lacks(fit.placed(scene.members[key]))


def parts_by_pool(pools: Pools, scene: Scene, waiting: Iterable[PodFacts]) -> Iterator[tuple[Scene, list[PodFacts]]]:
    """Yield what each pool has, with the pods of it that wait."""
    if not pools.is_divided:
        yield scene, list(waiting)
        return
    found: dict[str, list[PodFacts]] = {}
    for pod in waiting:
        found.setdefault(pools.of(pod), []).append(pod)
    for pool, pods in found.items():
        nodes = {name: node for name, node in scene.nodes.items() if node.pool == pool}
        rooms = [room for room in scene.rooms if room.name in nodes]
        yield replace(scene, nodes=nodes, rooms=rooms, others=len(scene.nodes) - len(nodes), short={}), pods
