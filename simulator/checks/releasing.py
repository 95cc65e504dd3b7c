"""Whose eviction S7 allows for the pod's own sake: its gang is broken, or it can't use what it was given."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from simulator.devices import Device
from simulator.facts import PodFacts
from simulator.gangs import Gangs
from simulator.usage import Usage

#: For so long others may not have heard what happened: watches are late, and an eviction takes its time.
_HEARSAY_S: Final = 300.0


@dataclass(slots=True)
class Releasable:
    """Says which pods may be evicted. ``find``: a pod that is there, by namespace and name.

    ``devices``: those of each node. ``release_s``: for how long a gang must have been broken.
    """

    gangs: Gangs
    usage: Usage
    devices: Mapping[str, tuple[Device, ...]]
    find: Callable[[str, str], PodFacts | None]
    release_s: float
    #: Device -> until when it was seen unhealthy.
    _ill_at_s: dict[str, float] = field(default_factory=dict)

    def changed(self, known: PodFacts | None, pod: PodFacts, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a pod. ``known``: the one before it."""
        self._ill_at_s.update(dict.fromkeys(known.ill if known else (), at_s))
        self._ill_at_s.update(dict.fromkeys(pod.ill, at_s if is_gone else math.inf))

    def is_releasable(self, namespace: str, name: str, at_s: float) -> bool:
        """Whether this pod may be evicted now."""
        pod = self.find(namespace, name)
        if pod is None:
            return False
        if self.gangs.is_broken(pod.uid, at_s, for_s=self.release_s):
            return True
        return self.usage.is_contended(pod) or self._was_ill(pod, at_s) or self._is_elsewhere(pod)

    def _is_elsewhere(self, pod: PodFacts) -> bool:
        """Whether it was given a card of another machine (a reservation that lies): it can't run where it is."""
        cards = {device.uuid for device in self.devices.get(pod.node, ())}
        return any(grant.uuid not in cards for grant in pod.grants)

    def _was_ill(self, pod: PodFacts, at_s: float) -> bool:
        """Whether a device of its was unhealthy just now: who evicts may not have heard of its recovery."""
        return any(at_s - self._ill_at_s.get(grant.uuid, -math.inf) <= _HEARSAY_S for grant in pod.grants)
