"""Groups, from the API objects: a gang is bound whole or not at all (S4), which are broken (S7), and their pools.

S5, L1, L3, L4 and L6 are about the nodes that a pod's scheduler may use; S6 and S14 about the queues and nominations of
its node pool.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from simulator.checks.facts import Json, PodFacts
from simulator.checks.ledgers import NodeFacts
from simulator.checks.violations import Findings
from wire import names

_NOBODY: Final[Mapping[str, int]] = {}


@dataclass(slots=True)
class _Group:
    """A sub-group; "" is the PodGroup. ``pods`` and ``parts``: its minimums.

    ``fewest``: the number of pods with which it is complete; None if it can't be.
    """

    pods: int = 0
    parts: int | None = None
    children: list[str] = field(default_factory=list)
    fewest: int | None = 0


class Minimums:
    """What a PodGroup needs to be whole, by a count of our own: its pods in all, and its sub-groups level by level.

    From what the fields are documented to mean (kai-contract 2.2), not from the scheduler. A level without
    `minSubGroup` needs all its children. Children that need no pods help only where there are too few others.
    ``is_clear``: whether they mean something. ``has_parts``: whether there are sub-groups.
    """

    def __init__(self, spec: Json) -> None:
        self.in_all = int(spec.get("minMember") or 0)
        listed = list(spec.get("subGroups") or ())
        self.has_parts = bool(listed) or spec.get("minSubGroup") is not None
        self._groups = {"": _Group(parts=spec.get("minSubGroup"))}
        for part in listed:
            self._groups[part["name"]] = _Group(int(part.get("minMember") or 0), part.get("minSubGroup"))
        is_sound = len(self._groups) == len(listed) + 1 and not any(map(_has_both, [spec, *listed]))
        is_sound = is_sound and all((part.get("parent") or "") in self._groups for part in listed)
        for part in listed if is_sound else ():
            self._groups[part.get("parent") or ""].children.append(part["name"])
        #: Names, children before what is above them.
        self._upwards = self._from_below()
        has_empty = any(each.parts is not None and not each.children for name, each in self._groups.items() if name)
        self.is_clear = is_sound and len(self._upwards) == len(self._groups) and not has_empty
        for name in self._upwards:
            self._groups[name].fewest = self._of(name, _NOBODY, None, {})

    def _from_below(self) -> list[str]:
        found = [""]
        for name in found:
            found += self._groups[name].children
        return found[::-1]

    @property
    def pods(self) -> int:
        """The fewest pods with which it is whole; of one that can't be, all that its sub-groups need."""
        fewest = self._groups[""].fewest
        if fewest is None:
            fewest = sum(each.pods for each in self._groups.values() if not each.children)
        return max(self.in_all, fewest)

    def lacks(self, there: Mapping[str, int], waiting: Mapping[str, int] | None = None) -> int | None:
        """How many pods make it whole beside those ``there`` (by sub-group), out of those that wait if they are given.

        None if that can't be.
        """
        found = self._all(there, waiting)[""]
        missing = max(0, self.in_all - sum(there.values()))
        if found is None or (waiting is not None and missing > sum(waiting.values())):
            return None
        return max(found, missing)

    def complete(self, name: str, there: Mapping[str, int]) -> tuple[int, int]:
        """How many complete sub-groups one needs that has others below it, and how many it has with these pods."""
        lacking = self._all(there, _NOBODY)
        group = self._groups[name]
        needing = [child for child in group.children if self._groups[child].fewest != 0]
        return self._wanted(group, len(needing)), sum(lacking[child] == 0 for child in needing)

    def least(self, name: str) -> int:
        """The minimum of pods of a sub-group that has none below it."""
        return self._groups[name].pods if name in self._groups else 0

    def is_whole(self, there: Mapping[str, int]) -> bool:
        """Whether these pods by sub-group are enough."""
        return self.lacks(there) == 0

    def _all(self, there: Mapping[str, int], waiting: Mapping[str, int] | None) -> dict[str, int | None]:
        known: dict[str, int | None] = {}
        for name in self._upwards:
            known[name] = self._of(name, there, waiting, known)
        return known

    def _of(
        self, name: str, there: Mapping[str, int], waiting: Mapping[str, int] | None, known: Mapping[str, int | None]
    ) -> int | None:
        group = self._groups[name]
        if name and not group.children:
            missing = max(0, group.pods - there.get(name, 0))
            return missing if waiting is None or missing <= waiting.get(name, 0) else None
        needing = [child for child in group.children if self._groups[child].fewest != 0]
        of_children = [known.get(child, self._groups[child].fewest) for child in needing]
        sums = sorted(each for each in of_children if each is not None)
        wanted = self._wanted(group, len(needing))
        return sum(sums[:wanted]) if len(sums) >= wanted else None

    @staticmethod
    def _wanted(group: _Group, needing: int) -> int:
        if group.parts is None:
            return needing
        free = len(group.children) - needing
        return max(min(group.parts, needing), group.parts - free)


def _has_both(said: Json) -> bool:
    return said.get("minMember") is not None and said.get("minSubGroup") is not None


Key = tuple[str, str]
_T = TypeVar("_T")


@dataclass(slots=True)
class Gang:
    """One PodGroup, by UIDs of members: ``bound`` that are bound and have not failed, ``active`` that still work.

    ``part_of``: member -> its subgroup.
    ``leaving`` of those that are bound were told to end: how long that takes is up to their machines.
    """

    needs: Minimums = field(default_factory=lambda: Minimums({}))
    #: For how long it may be below its minimum, as it says itself; None: it doesn't say.
    release_s: float | None = None
    part_of: dict[str, str] = field(default_factory=dict)
    bound: set[str] = field(default_factory=set)
    active: set[str] = field(default_factory=set)
    leaving: set[str] = field(default_factory=set)
    partial_since_s: float | None = None
    #: Since when fewer than the minimum are active, but some.
    short_since_s: float | None = None
    #: Since when it was so the last time that it was.
    last_short_since_s: float | None = None
    #: Once its minimum was bound it has had what it was promised; what its owner deletes later is no matter.
    was_whole: bool = False

    @property
    def is_short(self) -> bool:
        """Whether some still work, but too few, or too few sub-groups are whole."""
        return bool(self.active) and not self.is_whole(self.active)

    def is_whole(self, members: set[str]) -> bool:
        """Whether these members are enough."""
        return self.needs.is_whole(Counter(self.part_of[uid] for uid in members))


@dataclass(slots=True)
class Gangs:
    """Judges each gang that is bound in part for longer than ``grace_s``: binding takes its time, release too."""

    findings: Findings
    grace_s: float
    _gangs: defaultdict[Key, Gang] = field(default_factory=lambda: defaultdict(Gang))
    _partial: set[Key] = field(default_factory=set)
    #: Pod UID -> the gang in which it was last seen.
    _gang_of: dict[str, Key] = field(default_factory=dict)
    #: UIDs of members that are gone. One that comes back was restored, and with it what its PodGroup says of the past.
    _gone: set[str] = field(default_factory=set)
    #: PodGroups that are there -> what they need.
    minimums: dict[Key, Minimums] = field(default_factory=dict)
    #: The labels that they have.
    labels: dict[Key, Json] = field(default_factory=dict)
    #: Of these, those that ask for a domain of a topology, which is not counted here, or contradict themselves.
    uncounted: set[Key] = field(default_factory=set)

    def pod_group(self, raw: Json, at_s: float, *, is_gone: bool = False) -> None:
        """Take a version of a PodGroup. One that is gone promises nothing any more."""
        key = (raw["metadata"].get("namespace", ""), raw["metadata"]["name"])
        spec = {} if is_gone else raw.get("spec") or {}
        needs = Minimums(spec)
        self._gangs[key].needs = needs if needs.is_clear else Minimums({})
        self._gangs[key].release_s = _period_s(spec.get("stalenessGracePeriod"))
        _put(self.uncounted, key, is_in=not needs.is_clear or _asks_for_a_place(spec))
        if is_gone:
            self.minimums.pop(key, None)
            self.labels.pop(key, None)
        else:
            self.minimums[key] = needs
            self.labels[key] = raw["metadata"].get("labels") or {}
        self._count(key, at_s)

    def pod(self, pod: PodFacts, *, is_gone: bool, at_s: float) -> None:
        """Take a version of a pod."""
        name = pod.pod_group
        before, key = self._gang_of.get(pod.uid), (pod.namespace, name)
        if before is not None and before != key:
            self._leave(before, pod.uid, at_s)
        if not name:
            return
        self._gang_of[pod.uid] = key
        gang = self._gangs[key]
        gang.part_of[pod.uid] = str(pod.labels.get(names.SUBGROUP_LABEL) or "")
        is_bound = bool(pod.node) and pod.phase != names.FAILED and not is_gone
        _put(gang.bound, pod.uid, is_in=is_bound)
        _put(gang.leaving, pod.uid, is_in=is_bound and pod.deleting)
        _put(gang.active, pod.uid, is_in=is_bound and not pod.deleting and not pod.has_ended)
        self._count(key, at_s)
        if pod.uid in self._gone and gang.short_since_s is not None and gang.last_short_since_s is not None:
            gang.short_since_s = gang.last_short_since_s
        _put(self._gone, pod.uid, is_in=is_gone)

    def judge(self, at_s: float, *, is_end: bool = False) -> None:
        """Judge gangs bound in part; at the end of a run there is no grace any more."""
        if not self._partial:
            return
        for key in sorted(self._partial):
            gang = self._gangs[key]
            since_s = gang.partial_since_s
            if since_s is not None and (is_end or at_s - since_s > self.grace_s):
                place = "/".join(key)
                text = f"gang {place} is bound in part: {len(gang.bound)} of {gang.needs.pods} since {since_s:.3f} s"
                self.findings.add("S4", at_s, text)

    def is_broken(self, pod_uid: str, at_s: float, *, for_s: float) -> bool:
        """Whether a pod's gang has been below its minimum for so long, or for as long as it says itself."""
        key = self._gang_of.get(pod_uid)
        gang = self._gangs[key] if key is not None else Gang()
        if gang.release_s is not None:
            for_s = gang.release_s if gang.release_s >= 0 else math.inf
        return gang.short_since_s is not None and at_s - gang.short_since_s >= for_s

    def members(self, pods: Mapping[str, PodFacts]) -> dict[Key, list[PodFacts]]:
        """Of pods by UID, those that name a PodGroup, by it."""
        found: defaultdict[Key, list[PodFacts]] = defaultdict(list)
        for pod in pods.values():
            if pod.pod_group:
                found[pod.namespace, pod.pod_group].append(pod)
        return found

    def _leave(self, key: Key, pod_uid: str, at_s: float) -> None:
        del self._gang_of[pod_uid]
        self._gangs[key].bound.discard(pod_uid)
        self._gangs[key].active.discard(pod_uid)
        self._gangs[key].part_of.pop(pod_uid, None)
        self._gangs[key].leaving.discard(pod_uid)
        self._count(key, at_s)

    def _count(self, key: Key, at_s: float) -> None:
        gang = self._gangs[key]
        # With nobody left of it, the next pod under its name starts another gang.
        gang.was_whole = bool(gang.bound) and (gang.was_whole or (gang.needs.pods > 0 and gang.is_whole(gang.bound)))
        if gang.is_short and gang.short_since_s is None:
            gang.short_since_s = at_s
        elif not gang.is_short and gang.short_since_s is not None:
            gang.last_short_since_s, gang.short_since_s = gang.short_since_s, None
        there = gang.bound - gang.leaving
        # Members that have ended hold nothing: of a gang whose others were evicted only they are left.
        if gang.was_whole or not gang.active or gang.is_whole(there):
            gang.partial_since_s = None
            self._partial.discard(key)
        elif gang.partial_since_s is None:
            gang.partial_since_s = at_s
            self._partial.add(key)


def _period_s(text: str | None) -> float | None:
    """Read whole seconds or minutes, which is all that simulated users write."""
    found = re.fullmatch(r"(-?[0-9]+)([sm])", text or "", re.ASCII)
    return int(found[1]) * (60.0 if found[2] == "m" else 1.0) if found else None


def _asks_for_a_place(spec: Json) -> bool:
    """Whether a PodGroup asks that its pods be in one domain of a topology, or prefers that."""
    constraints = [each.get("topologyConstraint") or {} for each in (spec, *(spec.get("subGroups") or ()))]
    return any(each.get("requiredTopologyLevel") or each.get("preferredTopologyLevel") for each in constraints)


def _put(listed: set[_T], each: _T, *, is_in: bool) -> None:
    if is_in:
        listed.add(each)
    else:
        listed.discard(each)


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
