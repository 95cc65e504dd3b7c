"""Topology spread that has to hold: selected pods differ in number between domains by ``maxSkew`` at most."""

from __future__ import annotations

from typing import Final

import msgspec
from typing_extensions import override

from scheduler.core.filters.filter import Filter
from scheduler.core.filters.node_affinity import NodeAffinity, Selector
from scheduler.core.filters.pod_rule import Bools, Counts, Ints, PodRule, all_of, any_of
from scheduler.core.filters.pod_terms import LabelsOf, takes
from scheduler.core.filters.requirements import effort_of_all
from scheduler.core.filters.taints import Taints
from scheduler.core.model.pod_rules import PodRules, Spread
from scheduler.core.model.records import Constraints, PodClass, PodRecord, Requirement

_AFFINITY: Final[tuple[Filter, ...]] = (Selector(), NodeAffinity())
_TAINTS: Final[tuple[Filter, ...]] = (Taints(),)


class Staying(msgspec.Struct, frozen=True, cache_hash=True):
    """Pods of a namespace that a selector takes, but for terminating ones. The empty selector counts nobody."""

    namespace: str
    selector: tuple[Requirement, ...] | None

    def effort(self) -> int:
        """What it takes to look at one pod, in comparisons or so."""
        return 1 + effort_of_all(self.selector or ())

    def takes(self, pod: PodRecord, labels_of: LabelsOf) -> bool:
        """Whether a pod is one of them."""
        del labels_of
        return (
            bool(self.selector)
            and pod.namespace == self.namespace
            and not pod.deleting
            and takes(self.selector, pod.labels)
        )


class Admitting(msgspec.Struct, frozen=True, cache_hash=True):
    """Nodes with all these labels, and if that is asked, such as the pod may use by its constraints."""

    keys: tuple[str, ...]
    constraints: Constraints
    honors_affinity: bool
    honors_taints: bool

    def nodes(self, counts: Counts) -> Bools:
        """These nodes."""
        found: Bools = all_of([counts.domains(key).is_known for key in self.keys])
        if self.honors_affinity:
            found &= counts.admitted(_AFFINITY, self.constraints)
        if self.honors_taints:
            found &= counts.admitted(_TAINTS, self.constraints)
        return found


class SpreadLabel(PodRule):
    """Nodes without the label of a constraint."""

    kind = "spread-label"
    words = "node(s) didn't match pod topology spread constraints (missing required label)"

    @override
    def closed(self, cls: PodClass, counts: Counts) -> Bools | None:
        """Nodes that lack one of the labels."""
        if cls.rules is None or not cls.rules.spread:
            return None
        known = [counts.domains(spread.key).is_known for spread in cls.rules.spread]
        found: Bools = ~all_of(known)
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
        keys = tuple(dict.fromkeys(spread.key for spread in rules.spread))
        closed = [_is_too_much(spread, rules, _counted(spread, keys, cls), counts) for spread in rules.spread]
        return any_of(closed)


def _counted(spread: Spread, keys: tuple[str, ...], cls: PodClass) -> Admitting:
    return Admitting(keys, cls.constraints, spread.honors_affinity, spread.honors_taints)


def _is_too_much(spread: Spread, rules: PodRules, counted: Admitting, counts: Counts) -> Bools:
    per_domain = counts.in_domains(Staying(rules.namespace, spread.selector), spread.key, counted)
    is_there = counts.are_there(spread.key, counted)
    itself = int(takes(spread.selector, dict(rules.labels)))
    most = spread.most_skew - itself + _least(spread, per_domain, is_there)
    found: Bools = counts.domains(spread.key).at_nodes(per_domain) > most
    return found


def _least(spread: Spread, per_domain: Ints, is_there: Bools) -> int:
    """The fewest pods of a domain in which a node counts; 0 where there are too few such domains."""
    if is_there.sum() < max(1, spread.fewest_domains):
        return 0
    return int(per_domain[is_there].min())
