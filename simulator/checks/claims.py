"""All that is judged of ResourceClaims and of volumes that wait: S15 to S17, S19, L7, and L1 of pods that have them.

Objects are judged in the order in which the in-memory API server stores them (observer.py), so the order of writes is
exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from simulator.checks import claim_facts, claims_at_rest, facts
from simulator.checks.claim_facts import KINDS, RESOURCE_CLAIMS, ClaimFacts, ClaimRecords, Held
from simulator.checks.facts import Json, PodFacts
from simulator.checks.gangs import Key, Minimums
from simulator.checks.messages import Scene
from simulator.checks.violations import Findings
from wire import names


@dataclass(slots=True)
class _Given:
    """An allocation: the claim's version and its users (UIDs) of then. ``is_by_others``: None while none was seen."""

    version: int
    users: frozenset[str]
    is_by_others: bool | None = None


@dataclass(slots=True)
class BothWays:
    """S19: no device is held by a reservation and given by a claim at once (docs/design/claims.md, Shares).

    A device is one by the UUID that its driver publishes and that reservation pods report. What another scheduler gave
    to its own pods is not judged: a claim is its own if it was allocated for them alone. Later users do not matter.

    Takes pods and claims; ``records`` is what is known of claims then. ``live``: pods that exist, for reservations that
    reported their devices before there was any claim.
    """

    findings: Findings
    records: ClaimRecords
    live: Mapping[str, PodFacts] = field(default_factory=dict)
    #: UUID -> reservation pods (UIDs) that tell it, with their names.
    _held: dict[str, dict[str, str]] = field(default_factory=dict)
    _told: dict[str, str] = field(default_factory=dict)
    #: By claim (UID), until it is allocated again.
    _given: dict[str, _Given] = field(default_factory=dict)

    def pod(self, pod: PodFacts, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a pod: a reservation may tell a device that a claim has."""
        if not pod.is_reservation:
            return
        uuid = "" if is_gone or pod.has_ended else pod.told_uuid
        before = self._told.pop(pod.uid, "")
        if before:
            self._held[before].pop(pod.uid, None)
        if not uuid:
            return
        self._told[pod.uid] = uuid
        self._held.setdefault(uuid, {})[pod.uid] = pod.key
        for claim in self.records.claims.values():
            if uuid in self._uuids(claim) and not self._is_of_others(claim):
                self._both(uuid, claim, at_s)

    def claim(self, claim: ClaimFacts, at_s: float) -> None:
        """Take a version of a claim: it may have been given a device that a reservation holds."""
        uuids = [] if self._is_of_others(claim) else [*self._uuids(claim)]
        for pod in self.live.values() if uuids else ():
            if pod.uid not in self._told:
                self.pod(pod, at_s, is_gone=False)
        for uuid in uuids:
            if self._held.get(uuid):
                self._both(uuid, claim, at_s)

    def _uuids(self, claim: ClaimFacts) -> Iterator[str]:
        for held in claim.devices or ():
            uuid = "" if held.is_admin else self.records.uuids.get(held.device, "")
            if uuid:
                yield uuid

    def _is_of_others(self, claim: ClaimFacts) -> bool:
        """Whether it was allocated for pods of other schedulers alone."""
        version = self.records.allocated_at.get(claim.uid)
        if version is None:
            return False
        given = self._given.get(claim.uid)
        if given is None or given.version != version:
            given = self._given[claim.uid] = _Given(version, claim.reserved)
        if given.is_by_others is None:
            users = [pod for uid in given.users if (pod := self.live.get(uid)) is not None]
            given.is_by_others = not any(pod.is_ours for pod in users) if users else None
        return bool(given.is_by_others)

    def _both(self, uuid: str, claim: ClaimFacts, at_s: float) -> None:
        holders = ", ".join(sorted(self._held[uuid].values()))
        self.findings.add("S19", at_s, f"device {uuid} is held by {holders} and given by ResourceClaim {claim.told}")


#: A member counts as prepared for so long after it was: a Binding may be on its way for minutes, while the member goes.
_LATE_S: Final = 300.0


@dataclass(slots=True)
class Prepared:
    """S15, S16 and S17: what has to hold of the claims of a pod when it is bound (docs/design/claims.md, volumes.md).

    A pod may be bound by a claim whose device another claim has, too, if the other one was allocated later: that one is
    to give it back. Takes pods and PodGroups; ``records`` is what is known of claims then.
    """

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
        for entry, name in claim_facts.claims_of(pod):
            claim = self.records.claims.get((pod.namespace, name or ""))
            if claim is None:
                yield f"ResourceClaim {name or entry} is not there"
            elif claim.devices is None or pod.uid not in claim.reserved:
                yield f"ResourceClaim {name} is not reserved for it"
            elif claim.pending:
                yield f"devices of ResourceClaim {name} lack {', '.join(claim.pending)}"
            elif on and claim.nodes is not None and on not in claim.nodes:
                yield f"the devices of ResourceClaim {name} are on {', '.join(sorted(claim.nodes))}"
        for name in claim_facts.volumes_of(pod):
            found = self.records.volume_claims.get((pod.namespace, name))
            # Its owner may have deleted it meanwhile: then the pod does not start.
            if found is not None and not found.volume:
                yield f"claim {name} is not bound to a volume"

    # --- S15 ---------------------------------------------------------------------------------------------------------

    def _given_twice(self, pod: PodFacts) -> Iterator[str]:
        for _, name in claim_facts.claims_of(pod):
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
        if len(needed) < len(in_force) or not any(map(claim_facts.has_claims, members)):
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


_PODS: Final = "pods"
_POD_GROUPS: Final = "podgroups"
#: Kinds that are to be shown as they are stored.
STORED: Final = frozenset({*KINDS, _PODS, _POD_GROUPS})


@dataclass(slots=True)
class Claims:
    """Judges the claims of one run. Pods are looked at once there is a claim, a class or a slice."""

    findings: Findings
    #: Pods that are there, by UID.
    live: Mapping[str, PodFacts] = field(default_factory=dict)
    records: ClaimRecords = field(default_factory=ClaimRecords)
    _prepared: Prepared = field(init=False)
    _both_ways: BothWays = field(init=False)

    def __post_init__(self) -> None:
        self._prepared = Prepared(self.findings, self.records)
        self._both_ways = BothWays(self.findings, self.records, self.live)

    def wants(self, kind: str) -> bool:
        """Whether a version of such an object is to be shown now."""
        return kind in KINDS or kind == _POD_GROUPS or (kind == _PODS and self.records.has_any)

    def stored(self, kind: str, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """Take a version of an object of one of STORED."""
        if kind == _PODS:
            pod = facts.pod(raw)
            self._prepared.pod(pod, at_s, is_gone=is_gone)
            self._both_ways.pod(pod, at_s, is_gone=is_gone)
        elif kind == _POD_GROUPS:
            self._prepared.pod_group(raw, at_s, is_gone=is_gone)
        else:
            self.records.take(kind, raw, at_s, is_gone=is_gone)
            if kind == RESOURCE_CLAIMS:
                claim = claim_facts.claim(raw)
                self._prepared.claim(claim, at_s)
                if not is_gone:
                    self._both_ways.claim(claim, at_s)

    def judge_rest(self, at_s: float) -> None:
        """Judge L7 of a cluster at rest."""
        self.findings.judged.add("L7")
        for text in claims_at_rest.kept(self.records, self._prepared.pods, at_s):
            self.findings.add("L7", at_s, text)

    def fitting(
        self, waiting: Sequence[PodFacts], scene: Scene, *, kept_from: Callable[[PodFacts], Collection[str]]
    ) -> Iterator[tuple[PodFacts, str]]:
        """Yield pods with claims that wait though they fit, and where (L1)."""
        if self.records.has_any:
            yield from claims_at_rest.fitting(waiting, scene, self.records, kept_from=kept_from)
            yield from claims_at_rest.backed_fitting(waiting, scene, self.records, kept_from=kept_from)
