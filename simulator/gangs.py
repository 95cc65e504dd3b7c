"""S4, from the API objects: a gang is bound whole or not at all."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from simulator.facts import Json, PodFacts
from simulator.violations import Findings
from wire import names


@dataclass(slots=True)
class Gang:
    """One PodGroup. ``bound``: UIDs of members that are bound and have not failed."""

    minimum: int = 0
    bound: set[str] = field(default_factory=set)
    partial_since_s: float | None = None
    #: Once its minimum was bound it has had what it was promised; what its owner deletes later is no matter.
    was_whole: bool = False


@dataclass(slots=True)
class Gangs:
    """Judges each gang that is bound in part for longer than ``grace_s``: binding takes its time, release too."""

    findings: Findings
    grace_s: float
    _gangs: defaultdict[tuple[str, str], Gang] = field(default_factory=lambda: defaultdict(Gang))
    _partial: set[tuple[str, str]] = field(default_factory=set)

    def pod_group(self, raw: Json, at_s: float) -> None:
        """Take a version of a PodGroup."""
        key = (raw["metadata"].get("namespace", ""), raw["metadata"]["name"])
        self._gangs[key].minimum = int((raw.get("spec") or {}).get("minMember") or 0)
        self._count(key, at_s)

    def pod(self, pod: PodFacts, *, is_gone: bool, at_s: float) -> None:
        """Take a version of a pod."""
        name = pod.annotations.get(names.POD_GROUP_NAME)
        if not name:
            return
        key = (pod.namespace, name)
        if pod.node and pod.phase != names.FAILED and not is_gone:
            self._gangs[key].bound.add(pod.uid)
        else:
            self._gangs[key].bound.discard(pod.uid)
        self._count(key, at_s)

    def judge(self, at_s: float, *, is_end: bool = False) -> None:
        """Judge gangs bound in part; at the end of a run there is no grace any more."""
        for key in sorted(self._partial):
            gang = self._gangs[key]
            since_s = gang.partial_since_s
            if since_s is not None and (is_end or at_s - since_s > self.grace_s):
                place = "/".join(key)
                text = f"gang {place} is bound in part: {len(gang.bound)} of {gang.minimum} since {since_s:.3f} s"
                self.findings.add("S4", at_s, text)

    def _count(self, key: tuple[str, str], at_s: float) -> None:
        gang = self._gangs[key]
        gang.was_whole |= 0 < gang.minimum <= len(gang.bound)
        if gang.was_whole or not 0 < len(gang.bound) < gang.minimum:
            gang.partial_since_s = None
            self._partial.discard(key)
        elif gang.partial_since_s is None:
            gang.partial_since_s = at_s
            self._partial.add(key)
