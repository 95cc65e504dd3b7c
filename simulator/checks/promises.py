"""S1 and S2 from the API objects, whether pods run or not.

What bound pods are promised of a device is one device at most, and so is what they ask of its compute; those that run
in a mode run in the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from simulator import recorded
from simulator.devices import Device
from simulator.facts import PodFacts
from simulator.sharing import Share, asked, excess
from simulator.violations import Findings

_ALL_COMPUTE: Final = 100


@dataclass(slots=True)
class Promises:
    """Devices (``cards`` by UUID) and the pods whose annotations hand them over.

    ``pods``: the newest version of each pod that was ever seen, by UID.
    """

    findings: Findings
    cards: Mapping[str, Device]
    pods: Mapping[str, PodFacts]
    _promised: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def to(self, uuid: str) -> list[PodFacts]:
        """Pods on the API server that a device is promised to."""
        return [self.pods[uid] for uid in sorted(self._promised.get(uuid, ()))]

    def take(self, pod: PodFacts, *, is_gone: bool, before: frozenset[str], at_s: float) -> None:
        """Take a version of a pod that is among ``pods`` now; ``before``: what the version before it was promised."""
        for uuid in self._note(pod, is_gone=is_gone, before=before):
            self._judge(uuid, at_s)
            self._judge_compute(uuid, at_s)
            self._judge_modes(uuid, at_s)

    def _note(self, pod: PodFacts, *, is_gone: bool, before: frozenset[str]) -> Iterator[str]:
        """Note the devices that a pod is promised now; yield those to which it is new."""
        now: frozenset[str] = frozenset() if is_gone or pod.has_ended or not pod.node else pod.promised
        for uuid in before - now:
            self._promised[uuid].discard(pod.uid)
        new = sorted(uuid for uuid in now if pod.uid not in self._promised[uuid])
        for uuid in new:
            self._promised[uuid].add(pod.uid)
        yield from new

    def _judge(self, uuid: str, at_s: float) -> None:
        card = self.cards.get(uuid)
        if card is None:
            return
        shares = {pod.key: self._share(pod, uuid, card) for pod in self.to(uuid)}
        found = excess(shares.values(), card.mem_mib)
        if found:
            told = ", ".join(f"{key} {float(share.part):.6g}" for key, share in sorted(shares.items()))
            self.findings.add("S1", at_s, f"{uuid} is promised to {told}, {found}")

    def _share(self, pod: PodFacts, uuid: str, card: Device) -> Share:
        if recorded.ways(pod):
            placed = recorded.placed(pod, self.cards)
            return placed.share(uuid) if placed is not None else Share()
        shares = [asked(ask, card.mem_mib) for ask in pod.asks.values()]
        return Share(sum((share.part for share in shares), Fraction(0)), any(share.is_memory for share in shares))

    def _judge_compute(self, uuid: str, at_s: float) -> None:
        found = {pod.key: recorded.placed(pod, self.cards) for pod in self.to(uuid) if recorded.ways(pod)}
        percents = {key: placed.percent(uuid) for key, placed in found.items() if placed is not None}
        if sum(percents.values()) > _ALL_COMPUTE:
            told = ", ".join(f"{key} {percent}%" for key, percent in sorted(percents.items()))
            self.findings.add("S1", at_s, f"{uuid}: of its compute {told} are promised")

    def _judge_modes(self, uuid: str, at_s: float) -> None:
        modes = {pod.key: pod.mode for pod in self.to(uuid) if pod.mode}
        if len({*modes.values()}) > 1:
            told = ", ".join(f"{key} in mode {mode}" for key, mode in sorted(modes.items()))
            self.findings.add("S2", at_s, f"{uuid} is promised to {told}")
