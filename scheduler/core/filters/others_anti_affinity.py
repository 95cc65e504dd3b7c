"""Domains that required anti-affinity of other pods keeps a pod off."""

from __future__ import annotations

from typing_extensions import override

from scheduler.core.filters.pod_rule import Bools, Counts, PodRule, any_of
from scheduler.core.filters.pod_terms import Owning
from scheduler.core.model.records import PodClass


class OthersAntiAffinity(PodRule):
    """The domains differ from pod to pod, and with each pod that comes and goes.

    Those of pods that have a node are found for each pod that waits (nodes/anti_affinity.py) and are a part of its
    class: the ledger takes their nodes out (``Ledger.admitting``). Here are those of pods that the decision itself
    has placed; their terms are a part of the class as long as their owners wait.
    """

    kind = "others-anti-affinity"
    words = "node(s) didn't satisfy existing pods anti-affinity rules"

    @override
    def closed(self, cls: PodClass, counts: Counts) -> Bools | None:
        """Nodes in a domain with an owner of one of the terms."""
        if not cls.taken_by:
            return None
        closed = [
            counts.domains(term.key).at_nodes(counts.in_domains(Owning(term), term.key)) > 0 for term in cls.taken_by
        ]
        return any_of(closed)
