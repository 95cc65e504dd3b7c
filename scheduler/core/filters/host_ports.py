"""Ports of the host: two pods on a node can't have the same."""

from __future__ import annotations

import msgspec
from typing_extensions import override

from scheduler.core.filters.pod_rule import AnyOnNode, LabelsOf, PodRule
from scheduler.core.model.pod_class import HostPort, PodClass
from scheduler.core.model.records import PodRecord


class Clashing(msgspec.Struct, frozen=True, cache_hash=True):
    """Pods that have one of some ports."""

    ports: tuple[HostPort, ...]

    @property
    def reads(self) -> None:
        """Ports alone."""
        return

    def effort(self) -> int:
        """What it takes to look at one pod that has some, in comparisons or so."""
        return len(self.ports)

    def takes(self, pod: PodRecord, labels_of: LabelsOf) -> bool:
        """Whether a pod is one of them."""
        del labels_of
        if not pod.ports:
            return False
        addresses: dict[tuple[str, int], set[str]] = {}
        for port in self.ports:
            addresses.setdefault((port.protocol, port.port), set()).add(port.address)
        there = ((port, addresses.get((port.protocol, port.port))) for port in pod.ports)
        return any(asked and (not port.address or not asked.isdisjoint(("", port.address))) for port, asked in there)


class HostPorts(PodRule):
    """Pods of all schedulers have ports, those in the host's network all that they name."""

    kind = "host-ports"
    words = "node(s) didn't have free ports for the requested pod ports"

    @override
    def parts(self, cls: PodClass) -> tuple[AnyOnNode, ...]:
        """Nodes with a pod that has one of the ports."""
        return (AnyOnNode(Clashing(cls.rules.ports)),) if cls.rules is not None and cls.rules.ports else ()
