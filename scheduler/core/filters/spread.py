"""Topology spread that has to hold: pods that a selector takes differ in number between domains by so many at most."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from typing_extensions import override

from scheduler.core.filters.filter import Filter
from scheduler.core.filters.node_affinity import NodeAffinity, Selector
from scheduler.core.filters.pod_rule import Bools, Counts, Domains, Ints, PodRule
from scheduler.core.filters.pod_terms import LabelsOf, takes
from scheduler.core.filters.taints import Taints
from scheduler.core.model.pod_rules import PodRules, Spread
from scheduler.core.model.records import PodClass, PodRecord, Requirement

_AFFINITY: Final[tuple[Filter, ...]] = (Selector(), NodeAffinity())
_TAINTS: Final[tuple[Filter, ...]] = (Taints(),)


class Staying(msgspec.Struct, frozen=True, cache_hash=True):
    """Pods of a namespace that a selector takes, but for terminating ones. The empty selector counts nobody."""

    namespace: str
    selector: tuple[Requirement, ...] | None

    def takes(self, pod: PodRecord, labels_of: LabelsOf) -> bool:
        """Whether a pod is one of them."""
        del labels_of
        return (
            bool(self.selector)
            and pod.namespace == self.namespace
            and not pod.deleting
            and takes(self.selector, pod.labels)
        )


class SpreadLabel(PodRule):
    """Nodes without the label of a constraint."""

    kind = "spread-label"
    words = "node(s) didn't match pod topology spread constraints (missing required label)"

    @override
    def closed(self, cls: PodClass, counts: Counts) -> Bools | None:
        """Nodes that lack one of the labels."""
        if cls.rules is None or not cls.rules.spread:
            return None
        found: Bools = ~_with_labels(cls.rules, counts)
        return found


class TopologySpread(PodRule):
    """Nodes where one more pod would make a domain differ too much from the one with the fewest.

    Only nodes that have the labels of all constraints count, for each of them.
    """

    kind = "spread"
    words = "node(s) didn't match pod topology spread constraints"

    @override
    def closed(self, cls: PodClass, counts: Counts) -> Bools | None:
        """Nodes in such domains."""
        rules = cls.rules
        if rules is None or not rules.spread:
            return None
        closed = [_is_too_much(spread, rules, cls, counts) for spread in rules.spread]
        found: Bools = np.logical_or.reduce(closed)
        return found


def _with_labels(rules: PodRules, counts: Counts) -> Bools:
    known = [counts.domains(spread.key).is_known for spread in rules.spread]
    found: Bools = np.logical_and.reduce(known)
    return found


def _is_too_much(spread: Spread, rules: PodRules, cls: PodClass, counts: Counts) -> Bools:
    counted = _with_labels(rules, counts)
    if spread.honors_affinity:
        counted = counted & counts.admitted(_AFFINITY, cls.constraints)
    if spread.honors_taints:
        counted = counted & counts.admitted(_TAINTS, cls.constraints)
    domains = counts.domains(spread.key)
    taken = counts.per_node(Staying(rules.namespace, spread.selector))
    per_domain = domains.sums(np.where(counted, taken, 0))
    least = _least(spread, domains, per_domain, counted)
    itself = int(takes(spread.selector, dict(rules.labels)))
    found: Bools = domains.at_nodes(per_domain) + (itself - least) > spread.most_skew
    return found


def _least(spread: Spread, domains: Domains, per_domain: Ints, counted: Bools) -> int:
    """The fewest pods of a domain in which a node counts; 0 where there are too few such domains."""
    is_there = domains.sums(counted.astype(np.int64)) > 0
    if np.count_nonzero(is_there) < max(1, spread.fewest_domains):
        return 0
    return int(per_domain[is_there].min())
