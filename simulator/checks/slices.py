"""S18: a MIG slice is destroyed only while no pod and no book has it.

The machine itself says which pods have a slice: the device manager gave it to them and has not taken it back, or a
process uses it. Containers that kubelet forgot, and tenants whose reservation was lost, are known to the driver alone.
They are not judged where programs never use their slices (docs/mig.md, Limits).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from simulator.facts import PodFacts
from simulator.violations import Findings
from simulator.witness import Freed, Held, Record, Started, Stopped
from wire import names


@dataclass(slots=True)
class SliceUse:
    """Takes what happens on machines; ``live``: pods as the API server has them, by UID."""

    findings: Findings
    live: Mapping[str, PodFacts]
    #: Pod (UID) -> devices that its device manager gave it.
    _held: dict[str, frozenset[str]] = field(default_factory=dict)
    #: Pod (UID), container -> the pod's name and what its process sees.
    _seen: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = field(default_factory=dict)

    def witnessed(self, record: Record) -> None:
        """Take what happened on a machine."""
        match record:
            case Held():
                self._held[record.pod_uid] = frozenset(record.devices)
            case Freed():
                self._held.pop(record.pod_uid, None)
            case Started():
                self._seen[record.pod_uid, record.container] = record.pod, record.devices
            case Stopped():
                self._seen.pop((record.pod_uid, record.container), None)
            case _:
                pass

    def destroyed(self, node: str, uuid: str, at_s: float, *, shows_processes: bool) -> None:
        """Judge the end of a slice."""
        for user in self._users(uuid, shows_processes=shows_processes):
            self.findings.add("S18", at_s, f"slice {uuid} on {node} is destroyed, and {user}")

    def _users(self, uuid: str, *, shows_processes: bool) -> Iterator[str]:
        for uid, devices in self._held.items():
            if uuid in devices:
                pod = self.live.get(uid)
                yield f"kubelet gave it to pod {pod.key if pod is not None else uid}"
        for pod in self.live.values():
            is_there = pod.is_reservation and not pod.has_ended
            if is_there and pod.annotations.get(names.RESERVE_FOR_GPU_INDEX) == uuid and pod.book:
                yield f"the book of {pod.key} has it, with {len(pod.book)} tenants"
        if shows_processes:
            for (_, container), (key, seen) in self._seen.items():
                if uuid in seen:
                    yield f"container {container} of {key} uses it"
