"""Required anti-affinity of the pod that is placed: no pod that a term takes is in the domain of its node."""

from __future__ import annotations

from typing_extensions import override

from scheduler.core.filters.pod_rule import Bools, Counts, PodRule, any_of
from scheduler.core.filters.pod_terms import TakenByAll, without_key
from scheduler.core.model.records import PodClass


class PodAntiAffinity(PodRule):
    """A node without a term's label is in no domain, so that term keeps nobody off it."""

    kind = "pod-anti-affinity"
    words = "node(s) didn't match pod anti-affinity rules"

    @override
    def closed(self, cls: PodClass, counts: Counts) -> Bools | None:
        """Nodes in a domain with a pod that one of the terms takes."""
        if cls.rules is None or not cls.rules.anti_affinity:
            return None
        closed = []
        for term in cls.rules.anti_affinity:
            domains = counts.domains(term.key)
            taken = counts.in_domains(TakenByAll((without_key(term),), unknown=True), term.key)
            closed.append(domains.at_nodes(taken) > 0)
        return any_of(closed)
