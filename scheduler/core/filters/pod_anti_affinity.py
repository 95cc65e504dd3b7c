"""Required anti-affinity of the pod that is placed: no pod that a term takes is in the domain of its node."""

from __future__ import annotations

from typing_extensions import override

from scheduler.core.filters.counted_parts import AnyInDomain
from scheduler.core.filters.pod_rule import PodRule
from scheduler.core.filters.pod_terms import TakenByAll, without_key
from scheduler.core.model.pod_class import PodClass


class PodAntiAffinity(PodRule):
    """A node without a term's label is in no domain, so that term keeps nobody off it."""

    kind = "pod-anti-affinity"
    words = "node(s) didn't match pod anti-affinity rules"

    @override
    def parts(self, cls: PodClass) -> tuple[AnyInDomain, ...]:
        """Domains with a pod that one of the terms takes."""
        terms = () if cls.rules is None else cls.rules.anti_affinity
        return tuple(AnyInDomain(term.key, TakenByAll((without_key(term),), unknown=True)) for term in terms)
