"""What waits in a cluster at rest: whether it fits (L1), whether it says why (L3, S11), and nodes kept for it (L6).

Each node pool that has a scheduler is judged by its own nodes and pods.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from simulator.checks import placing, telling
from simulator.checks.asking import Asking
from simulator.checks.berths import Berths
from simulator.checks.claims import Claims
from simulator.checks.limits import Limits
from simulator.checks.pools import Pools
from simulator.checks.telling import Scene
from simulator.facts import PodFacts
from simulator.gangs import Key
from simulator.violations import Findings


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
            for part, waiting in self.pools.parts(scene, self.waiting())
            for told in (
                *placing.fitting(waiting, part.members, minimums, part.rooms, kept_from=kept_from),
                *self.claims.fitting(waiting, replace(part, minimums=minimums), kept_from=kept_from),
            )
        )
        free = ((pod, where) for pod, where in found if not self._may_hold(pod, scene))
        return {pod.uid: f"pod {pod.key} waits, and {where}" for pod, where in free}

    def kept_from(self, scene: Scene) -> Callable[[PodFacts], Collection[str]]:
        """Return what gives the nodes from which a waiting pod is kept, by berths of its pool or by other pods."""
        berths: dict[str, Berths] = {}
        for part, waiting in self.pools.parts(scene, self.waiting()):
            berths.update(dict.fromkeys((pod.uid for pod in waiting), self._berths(part, waiting)))

        def kept_from(pod: PodFacts) -> Collection[str]:
            kept = berths[pod.uid].kept_from(pod) if pod.uid in berths else ()
            return scene.apart.kept_from(pod).union(kept)

        return kept_from

    def judge(self, scene: Scene, used: Collection[str], at_s: float) -> None:
        """Judge what pods say that wait (L3, S11), and for whom nodes are kept (L6). ``used``: nodes that have pods."""
        for part, waiting in self.pools.parts(scene, self.waiting()):
            berths = self._berths(part, waiting)
            for text in berths.drained(used):
                self.findings.add("L6", at_s, text)
            for pod in waiting:
                if pod.is_gated:
                    continue
                for text in (*telling.untrue(pod, part), *self.limits.untrue(pod), *berths.untrue(pod)):
                    self.findings.add("L3", at_s, f"pod {pod.key}: {text}")
                self.asking.waits(pod, at_s)
        self.findings.judged.add("L3")

    def _berths(self, part: Scene, waiting: Iterable[PodFacts]) -> Berths:
        """Nodes of a pool that are kept for groups that have waited too long, as its pods say it."""

        def is_short(pod: PodFacts) -> bool:
            missing = _missing(pod, part)
            return missing is not None and self.limits.is_short(pod, missing=missing)

        berths = Berths(self.limits.queue_of, is_short, part.nodes, several_decide=self.several_decide)
        berths.take(waiting)
        return berths

    def _may_hold(self, pod: PodFacts, scene: Scene) -> bool:
        missing = _missing(pod, scene)
        return missing is None or self.limits.may_hold(pod, missing=missing)


def _missing(pod: PodFacts, scene: Scene) -> int | None:
    """How many of its gang have to start together; None if they can't."""
    key = (pod.namespace, pod.pod_group)
    least = scene.minimums.get(key)
    return 1 if least is None else least.lacks(placing.placed(scene.members[key]))
