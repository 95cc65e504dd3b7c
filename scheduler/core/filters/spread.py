"""Topology spread that has to hold: selected pods differ in number between domains by ``maxSkew`` at most."""

from __future__ import annotations

from typing import Final

import msgspec
from typing_extensions import override

from scheduler.core.filters.filter import Filter
from scheduler.core.filters.node_affinity import NodeAffinity, Selector, effort_of_all, keys_of
from scheduler.core.filters.pod_rule import (
    NO_LIMIT,
    Asked,
    Bools,
    Counts,
    LabelsOf,
    Limits,
    PodRule,
    Tally,
    Watched,
    all_of,
    takes,
    takes_in_doubt,
)
from scheduler.core.filters.taints import Taints
from scheduler.core.model.pod_class import Constraints, PodClass, PodRules, Requirement, Spread
from scheduler.core.model.records import PodRecord

_AFFINITY: Final[tuple[Filter, ...]] = (Selector(), NodeAffinity())
_TAINTS: Final[tuple[Filter, ...]] = (Taints(),)


class Staying(msgspec.Struct, frozen=True, cache_hash=True):
    """Pods of a namespace that a selector takes, but for terminating ones. The empty selector counts nobody.

    A pod with more labels than are kept counts.
    """

    namespace: str
    selector: tuple[Requirement, ...] | None

    @property
    def reads(self) -> tuple[str, ...]:
        """The labels of the selector."""
        return keys_of(self.selector or ())

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
            and takes_in_doubt(self.selector, pod, unknown=True)
        )


class Admitting(msgspec.Struct, frozen=True, cache_hash=True):
    """Nodes of the pool with all these labels, and if that is asked, such as the pod may use by its constraints.

    A domain that only other pools have can take none of these pods: it would hold up all others for ever.
    """

    keys: tuple[str, ...]
    constraints: Constraints
    honors_affinity: bool
    honors_taints: bool

    def nodes(self, counts: Counts) -> Bools:
        """These nodes."""
        found: Bools = all_of([counts.of_pool, *(counts.domains(key).is_known for key in self.keys)])
        if self.honors_affinity:
            found &= counts.admitted(_AFFINITY, self.constraints)
        if self.honors_taints:
            found &= counts.admitted(_TAINTS, self.constraints)
        return found


class Labelled(msgspec.Struct, frozen=True):
    """All domains of a label are open, and nodes without it are out."""

    key: str

    @property
    def closes_others(self) -> bool:
        """They lack the label."""
        return True

    @property
    def watched(self) -> None:
        """Pods make no difference."""
        return

    @property
    def counts(self) -> None:
        """Nobody."""
        return

    def limits(self, counts: Counts, tally: Tally) -> Limits:
        """No domain is out."""
        del counts, tally
        return Limits(0, NO_LIMIT)


class SpreadLabel(PodRule):
    """Nodes without the label of a constraint."""

    kind = "spread-label"
    words = "node(s) didn't match pod topology spread constraints (missing required label)"

    @override
    def parts(self, cls: PodClass) -> tuple[Labelled, ...]:
        """Nodes that lack one of the labels."""
        return () if cls.rules is None else tuple(map(Labelled, _keys(cls.rules)))


class Skewed(msgspec.Struct, frozen=True):
    """Domains of one constraint in which one more pod would be too many. ``itself``: 1 if the pod would count."""

    spread: Spread
    matcher: Staying
    counted: Admitting
    itself: int

    @property
    def key(self) -> str:
        """The label."""
        return self.spread.key

    @property
    def closes_others(self) -> bool:
        """They are out by another rule."""
        return False

    @property
    def watched(self) -> Watched:
        """A pod that goes, and one that comes to where the fewest are."""
        return Watched(self.matcher)

    @property
    def counts(self) -> Asked:
        """Pods that count, on nodes that do."""
        return Asked(self.matcher, self.key, self.counted)

    def limits(self, counts: Counts, tally: Tally) -> Limits:
        """``maxSkew`` above the fewest; above none, where there are too few domains with a node that counts."""
        there = counts.are_there(self.key, self.counted)
        is_counted = there.domains >= max(1, self.spread.fewest_domains)
        return Limits(0, self.spread.most_skew - self.itself + (tally.fewest(there.are) if is_counted else 0))


class TopologySpread(PodRule):
    """Nodes where one more pod would make a domain differ too much from the one with the fewest.

    Only nodes that have the labels of all constraints count, for each of them.
    """

    kind = "spread"
    words = "node(s) didn't match pod topology spread constraints"

    @override
    def parts(self, cls: PodClass) -> tuple[Skewed, ...]:
        """Each constraint."""
        if (rules := cls.rules) is None:
            return ()
        keys, labels = _keys(rules), dict(rules.labels)
        return tuple(
            Skewed(
                spread,
                Staying(rules.namespace, spread.selector),
                Admitting(keys, cls.constraints, spread.honors_affinity, spread.honors_taints),
                int(takes(spread.selector, labels)),
            )
            for spread in rules.spread
        )


def _keys(rules: PodRules) -> tuple[str, ...]:
    return tuple(dict.fromkeys(spread.key for spread in rules.spread))
