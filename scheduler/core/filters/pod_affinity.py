"""Required affinity and anti-affinity between pods (kube-scheduler's InterPodAffinity).

Pods that the affinity of the placed pod takes are in the domains of its node; none that its anti-affinity takes is
there; and none is there whose own anti-affinity takes the placed pod.
"""

from __future__ import annotations

from typing import Final

import msgspec
from typing_extensions import override

from scheduler.core.filters.pod_rule import (
    COMPARISONS_PER_OPERATION,
    NO_LIMIT,
    AnyInDomain,
    Asked,
    Counts,
    Limits,
    Owning,
    PodRule,
    TakenByAll,
    Tally,
    Watched,
    takes_pod,
    without_key,
)
from scheduler.core.model.pod_class import PodClass, PodRules

_ANY: Final = Limits(0, NO_LIMIT)
_ONE: Final = Limits(1, NO_LIMIT)


class PodAffinity(PodRule):
    """A pod counts only if all terms take it. A node needs the labels of all terms.

    Where no pod counts in any domain, and the pod takes itself, it is the first of a series: all nodes with the labels
    will do.
    """

    kind = "pod-affinity"
    words = "node(s) didn't match pod affinity rules"

    @override
    def parts(self, cls: PodClass) -> tuple[Beside, ...]:
        """Domains without such pods, of each label."""
        rules = cls.rules
        if rules is None or not rules.affinity:
            return ()
        matcher = TakenByAll(tuple(dict.fromkeys(map(without_key, rules.affinity))), unknown=False)
        keys = tuple(dict.fromkeys(term.key for term in rules.affinity))
        return tuple(Beside(key, keys, matcher, rules) for key in keys)


class Beside(msgspec.Struct, frozen=True):
    """Domains of a label without a pod that all terms take. ``keys``: the labels of all terms."""

    key: str
    keys: tuple[str, ...]
    matcher: TakenByAll
    rules: PodRules

    @property
    def closes_others(self) -> bool:
        """A node needs the labels of all terms."""
        return True

    @property
    def watched(self) -> Watched:
        """A pod that comes, and the last one that goes: then the next is the first of a series."""
        return Watched(self.matcher)

    @property
    def counts(self) -> Asked:
        """Such pods."""
        return Asked(self.matcher, self.key)

    def limits(self, counts: Counts, tally: Tally) -> Limits:
        """One has to be there; none, if the pod is the first of a series."""
        return _ANY if not tally.total and self._is_first(counts) else _ONE

    def _is_first(self, counts: Counts) -> bool:
        if any(counts.tally(self.matcher, key).total for key in self.keys):
            return False
        counts.spend(self.matcher.effort() // COMPARISONS_PER_OPERATION)
        return _takes_itself(self.rules, counts)


def _takes_itself(rules: PodRules, counts: Counts) -> bool:
    labels = dict(rules.labels)
    return all(takes_pod(term, rules.namespace, labels, counts.labels_of, unknown=False) for term in rules.affinity)


class PodAntiAffinity(PodRule):
    """A node without a term's label is in no domain, so that term keeps nobody off it."""

    kind = "pod-anti-affinity"
    words = "node(s) didn't match pod anti-affinity rules"

    @override
    def parts(self, cls: PodClass) -> tuple[AnyInDomain, ...]:
        """Domains with a pod that one of the terms takes."""
        terms = () if cls.rules is None else cls.rules.anti_affinity
        return tuple(AnyInDomain(term.key, TakenByAll((without_key(term),), unknown=True)) for term in terms)


class OthersAntiAffinity(PodRule):
    """The domains differ from pod to pod, and with each pod that comes and goes.

    Those of pods that have a node are found for each pod that waits (nodes/inter_pod_affinity.py) and are a part of its
    class: the ledger takes their nodes out (``Ledger.admitting``). Here are those of pods that the decision itself
    has placed; their terms are a part of the class as long as their owners wait.
    """

    kind = "others-anti-affinity"
    words = "node(s) didn't satisfy existing pods anti-affinity rules"

    @override
    def parts(self, cls: PodClass) -> tuple[AnyInDomain, ...]:
        """Domains with an owner of one of the terms."""
        return tuple(AnyInDomain(term.key, Owning(term)) for term in cls.taken_by)
