"""S15, S16 and S17: what has to hold of the claims of a pod when it is bound (docs/design/claims.md, volumes.md).

Judged on objects in the order in which the API server stores them, so the order of writes is exact. A pod may be bound
by a claim whose device another claim has, too, if the other one was allocated later: that one is to give it back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from simulator import claimfacts
from simulator.checks.claim_records import ClaimRecords
from simulator.claimfacts import ClaimFacts, Held
from simulator.facts import Json, PodFacts
from simulator.gangs import Key
from simulator.minimums import Minimums
from simulator.violations import Findings
from wire import names

#: A member counts as prepared for so long after it was: a Binding may be on its way for minutes, while the member goes.
_LATE_S: Final = 300.0


@dataclass(slots=True)
class Prepared:
    """Takes pods and PodGroups in the order of their storing; ``records`` is what is known of claims then."""

    findings: Findings
    records: ClaimRecords
    #: Pods that are there, by UID.
    pods: dict[str, PodFacts] = field(default_factory=dict)
    #: PodGroup -> the minimums that it has had, each with the time when it came; None: the PodGroup went.
    _minimums: dict[Key, list[tuple[float, Minimums | None]]] = field(default_factory=dict)
    #: Pod (UID) -> its gang, its sub-group, and when all its claims were last seen reserved for it and bound.
    _ready: dict[str, tuple[Key, str, float]] = field(default_factory=dict)

    def pod_group(self, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a PodGroup."""
        key = raw["metadata"].get("namespace", ""), raw["metadata"]["name"]
        self._minimums.setdefault(key, []).append((at_s, None if is_gone else Minimums(raw.get("spec") or {})))

    def pod(self, pod: PodFacts, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a pod, and judge it if it has just been bound."""
        known = self.pods.get(pod.uid)
        if is_gone:
            self._note_ready(pod, at_s)
            self.pods.pop(pod.uid, None)
            return
        self.pods[pod.uid] = pod
        if known is not None and not known.node and pod.node and pod.is_ours:
            self._bound(pod, at_s)
        else:
            self._note_ready(pod, at_s)

    def claim(self, claim: ClaimFacts, at_s: float) -> None:
        """A claim has changed: pods for which it is reserved may be ready now."""
        for uid in claim.reserved & self.pods.keys():
            self._note_ready(self.pods[uid], at_s)

    def _note_ready(self, pod: PodFacts, at_s: float) -> None:
        if pod.pod_group and pod.is_ours and not [*self._lacks(pod, on="")]:
            self._ready[pod.uid] = (pod.namespace, pod.pod_group), _part(pod), at_s

    def _bound(self, pod: PodFacts, at_s: float) -> None:
        for text in self._lacks(pod, on=pod.node):
            self.findings.add("S16", at_s, f"pod {pod.key} is bound to {pod.node}, and {text}")
        for text in self._given_twice(pod):
            self.findings.add("S15", at_s, f"pod {pod.key} is bound to {pod.node}, and {text}")
        self._note_ready(pod, at_s)
        if pod.pod_group:
            self._judge_gang(pod, at_s)

    def _lacks(self, pod: PodFacts, *, on: str) -> Iterator[str]:
        """What is missing of the claims of a pod; ``on``: the node that they have to be usable on, "" for any."""
        for entry, name in claimfacts.claims_of(pod):
            claim = self.records.claims.get((pod.namespace, name or ""))
            if claim is None:
                yield f"ResourceClaim {name or entry} is not there"
            elif claim.devices is None or pod.uid not in claim.reserved:
                yield f"ResourceClaim {name} is not reserved for it"
            elif claim.pending:
                yield f"devices of ResourceClaim {name} lack {', '.join(claim.pending)}"
            elif on and claim.nodes is not None and on not in claim.nodes:
                yield f"the devices of ResourceClaim {name} are on {', '.join(sorted(claim.nodes))}"
        for name in claimfacts.volumes_of(pod):
            found = self.records.volume_claims.get((pod.namespace, name))
            # Its owner may have deleted it meanwhile: then the pod does not start.
            if found is not None and not found.volume:
                yield f"claim {name} is not bound to a volume"

    # --- S15 ---------------------------------------------------------------------------------------------------------

    def _given_twice(self, pod: PodFacts) -> Iterator[str]:
        for _, name in claimfacts.claims_of(pod):
            claim = self.records.claims.get((pod.namespace, name or ""))
            for held in (claim.devices if claim is not None else None) or ():
                if claim is not None and not held.is_admin:
                    yield from self._earlier(claim, held)
            if claim is not None:
                yield from self._overdrawn(claim)

    def _earlier(self, claim: ClaimFacts, held: Held) -> Iterator[str]:
        """Claims that have had the device for longer, and leave none of it for this one."""
        at = self.records.allocated_at
        others = {
            uid: each
            for uid, each in self.records.holders.get(held.device, {}).items()
            if uid != claim.uid and not each.is_admin and at.get(uid, 0) < at.get(claim.uid, 0)
        }
        device = "/".join(held.device)
        if held.part is None or any(each.part is None for each in others.values()):
            if others:
                yield f"device {device} of ResourceClaim {claim.told} was given to {self._told(others)} before"
            return
        for name, most in self.records.capacities.get(held.device, {}).items():
            used = sum((each.part or {}).get(name, Fraction(0)) for each in (held, *others.values()))
            if used > most:
                before = self._told(others)
                yield f"{used} of {most} {name} of device {device} are given with what {before} had before"

    def _overdrawn(self, claim: ClaimFacts) -> Iterator[str]:
        """Counters of which devices of this claim take more than earlier claims left. A device counts once."""
        at, records = self.records.allocated_at, self.records
        own = {held.device for held in claim.devices or () if not held.is_admin}
        for counter in sorted({each for device in own for each in records.draws.get(device, {})}):
            used, others = Fraction(0), set[str]()
            for device, draws in records.draws.items():
                before = [
                    uid
                    for uid, held in records.holders.get(device, {}).items()
                    if not held.is_admin and at.get(uid, 0) < at.get(claim.uid, 0)
                ]
                if counter in draws and (before or device in own):
                    used += draws[counter]
                    others.update(before)
            most = records.counters.get(counter, Fraction(0))
            if used > most and others:
                told = ", ".join(sorted(each.told for each in records.claims.values() if each.uid in others))
                yield f"{used} of {most} {counter[-1]} of pool {counter[1]} are taken with what {told} had before"

    def _told(self, uids: dict[str, Held]) -> str:
        return ", ".join(sorted(each.told for each in self.records.claims.values() if each.uid in uids))

    # --- S17 ---------------------------------------------------------------------------------------------------------

    def _judge_gang(self, pod: PodFacts, at_s: float) -> None:
        """The first Bindings of a gang: as many members as it needs have what their claims ask."""
        key = pod.namespace, pod.pod_group
        in_force = [*self._in_force(key, at_s)]
        needed = [least for least in in_force if least is not None]
        members = [each for each in self.pods.values() if (each.namespace, each.pod_group) == key]
        if len(needed) < len(in_force) or not any(map(claimfacts.has_claims, members)):
            return
        bound = {each.uid: _part(each) for each in members if each.node}
        there = Counter(part for uid, part in bound.items() if uid != pod.uid)
        ready = Counter({**self._ready_members(key, members, at_s), **bound}.values())
        if needed and not any(least.is_whole(there) or least.is_whole(ready) for least in needed):
            text = f"pod {pod.key} is bound, and of gang {pod.pod_group} {ready.total()} of {needed[-1].pods} are ready"
            self.findings.add("S17", at_s, text)

    def _ready_members(self, key: Key, members: Iterable[PodFacts], at_s: float) -> dict[str, str]:
        """Members (UIDs) that are ready, or were a moment ago, with their sub-groups."""
        recent = {
            uid: part for uid, (gang, part, seen_s) in self._ready.items() if gang == key and at_s - seen_s <= _LATE_S
        }
        return recent | {each.uid: _part(each) for each in members if not [*self._lacks(each, on="")]}

    def _in_force(self, key: Key, at_s: float) -> Iterator[Minimums | None]:
        """The minimums that a gang has, or had a while ago."""
        listed = self._minimums.get(key, [])
        for number, (_, least) in enumerate(listed):
            if number + 1 == len(listed) or at_s - listed[number + 1][0] <= _LATE_S:
                yield least


def _part(pod: PodFacts) -> str:
    return str(pod.labels.get(names.SUBGROUP_LABEL) or "")
