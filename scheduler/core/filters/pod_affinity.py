"""Required affinity of the pod that is placed: pods that its terms take are in the domains of its node."""

from __future__ import annotations

from typing_extensions import override

from scheduler.core.filters.pod_rule import Bools, Counts, PodRule, all_of
from scheduler.core.filters.pod_terms import TakenByAll, takes_pod, without_key
from scheduler.core.model.pod_rules import PodRules
from scheduler.core.model.records import PodClass


class PodAffinity(PodRule):
    """A pod counts only if all terms take it. A node needs the labels of all terms.

    Where no pod counts in any domain, and the pod takes itself, it is the first of a series: all nodes with the labels
    will do.
    """

    kind = "pod-affinity"
    words = "node(s) didn't match pod affinity rules"

    @override
    def closed(self, cls: PodClass, counts: Counts) -> Bools | None:
        """Nodes without such pods in one of their domains, or without one of the labels."""
        rules = cls.rules
        if rules is None or not rules.affinity:
            return None
        matcher = TakenByAll(tuple(dict.fromkeys(map(without_key, rules.affinity))), unknown=False)
        keys = dict.fromkeys(term.key for term in rules.affinity)
        by_key, sums = [counts.domains(key) for key in keys], [counts.in_domains(matcher, key) for key in keys]
        has_labels = all_of([domains.is_known for domains in by_key])
        if not any(each.any() for each in sums) and _takes_itself(rules, counts):
            first: Bools = ~has_labels
            return first
        beside = [domains.at_nodes(each) > 0 for domains, each in zip(by_key, sums, strict=True)]
        found: Bools = ~(has_labels & all_of(beside))
        return found


def _takes_itself(rules: PodRules, counts: Counts) -> bool:
    labels = dict(rules.labels)
    return all(takes_pod(term, rules.namespace, labels, counts.labels_of, unknown=False) for term in rules.affinity)
