"""S19: no device is held by a reservation and given by a claim at once (docs/design/claims.md, Shares).

Judged on objects in the order in which the API server stores them. A device is one by the UUID that its driver
publishes and that reservation pods tell. What another scheduler gave to its own pods is not judged: a claim is its own
if it was allocated for them alone. Later users do not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from simulator.checks.claim_records import ClaimRecords
from simulator.claimfacts import ClaimFacts
from simulator.facts import PodFacts
from simulator.violations import Findings


@dataclass(slots=True)
class _Given:
    """An allocation: the claim's version and its users (UIDs) of then. ``is_by_others``: None while none was seen."""

    version: int
    users: frozenset[str]
    is_by_others: bool | None = None


@dataclass(slots=True)
class BothWays:
    """Takes pods and claims; ``records`` is what is known of claims then.

    ``live``: pods that are there, for reservations that told their devices before there was any claim.
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
