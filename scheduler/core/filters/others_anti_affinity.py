"""Domains that required anti-affinity of other pods keeps a pod off."""

from __future__ import annotations

from typing_extensions import override

from scheduler.core.filters.counted_parts import AnyInDomain
from scheduler.core.filters.pod_rule import PodRule
from scheduler.core.filters.pod_terms import Owning
from scheduler.core.model.pod_class import PodClass


class OthersAntiAffinity(PodRule):
    """The domains differ from pod to pod, and with each pod that comes and goes.

    Those of pods that have a node are found for each pod that waits (nodes/anti_affinity.py) and are a part of its
    class: the ledger takes their nodes out (``Ledger.admitting``). Here are those of pods that the decision itself
    has placed; their terms are a part of the class as long as their owners wait.
    """

    kind = "others-anti-affinity"
    words = "node(s) didn't satisfy existing pods anti-affinity rules"

    @override
    def parts(self, cls: PodClass) -> tuple[AnyInDomain, ...]:
        """Domains with an owner of one of the terms."""
        return tuple(AnyInDomain(term.key, Owning(term)) for term in cls.taken_by)
