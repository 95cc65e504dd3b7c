"""All that is judged of ResourceClaims and of volumes that wait: S15 to S17, S19, L7, and L1 of pods that have them.

The checker is shown objects as the in-memory API server stores them (simulator/overhearing.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from simulator import claimfacts, facts
from simulator.checks import backed_at_rest, claims_at_rest
from simulator.checks.both_ways import BothWays
from simulator.checks.claim_records import KINDS, RESOURCE_CLAIMS, ClaimRecords
from simulator.checks.prepared import Prepared
from simulator.checks.telling import Scene
from simulator.facts import Json, PodFacts
from simulator.violations import Findings

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
                claim = claimfacts.claim(raw)
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
            yield from backed_at_rest.fitting(waiting, scene, self.records, kept_from=kept_from)
