"""Required affinity of the pod that is placed: pods that its terms take are in the domains of its node."""

from __future__ import annotations

from typing import Final

import msgspec
from typing_extensions import override

from scheduler.core.filters.pod_rule import (
    COMPARISONS_PER_OPERATION,
    NO_LIMIT,
    Asked,
    Counts,
    Limits,
    PodRule,
    Tally,
    Watched,
)
from scheduler.core.filters.pod_terms import TakenByAll, takes_pod, without_key
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.pod_rules import PodRules

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
