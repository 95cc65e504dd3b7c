"""Which pods are taken: by label selectors, by terms of affinity and anti-affinity (core/v1 PodAffinityTerm)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from scheduler.core.filters.requirements import effort_of_all, keys_of, meets
from scheduler.core.model.pod_class import AntiTerm, Requirement, WeightedTerm
from scheduler.core.model.records import PodRecord

Labels: TypeAlias = Mapping[str, str]
#: The labels of a namespace; None while nobody knows them.
LabelsOf: TypeAlias = Callable[[str], Labels | None]

_NO_KEY: Final = ""


def takes(selector: tuple[Requirement, ...] | None, labels: Labels) -> bool:
    """Whether a selector takes these labels. None takes nothing; one without requirements takes everything."""
    if selector is None:
        return False
    for requirement in selector:  # noqa: SIM110 - asked for each pod; a generator takes twice as long
        if not meets(requirement, labels):
            return False
    return True


def takes_in_doubt(selector: tuple[Requirement, ...] | None, pod: PodRecord, *, unknown: bool) -> bool:
    """Whether a selector takes a pod. ``unknown``: whether it takes one whose labels are too many to be kept."""
    if pod.are_labels_cut and selector:
        return unknown
    return takes(selector, pod.labels)


def takes_pod(term: AntiTerm, namespace: str, labels: Labels, labels_of: LabelsOf, *, unknown: bool) -> bool:
    """Whether a term takes a pod. ``unknown``: whether it means a namespace whose labels nobody knows."""
    if namespace not in term.namespaces and not _selects(term, namespace, labels_of, unknown=unknown):
        return False
    return takes(term.selector, labels)


def _selects(term: AntiTerm, namespace: str, labels_of: LabelsOf, *, unknown: bool) -> bool:
    """Whether a term means a namespace by its labels."""
    if term.namespace_selector is None:
        return False
    labels = labels_of(namespace)
    return unknown if labels is None else takes(term.namespace_selector, labels)


class TakenByAll(msgspec.Struct, frozen=True, cache_hash=True):
    """Pods that each of some terms takes. ``unknown``: as above, of labels of namespaces and of pods."""

    terms: tuple[AntiTerm, ...]
    unknown: bool

    @property
    def reads(self) -> tuple[str, ...]:
        """The labels of all selectors."""
        return keys_of(requirement for term in self.terms for requirement in term.selector or ())

    def effort(self) -> int:
        """What it takes to look at one pod, in comparisons or so."""
        return sum(map(effort_of_term, self.terms))

    def takes(self, pod: PodRecord, labels_of: LabelsOf) -> bool:
        """Whether a pod is one of them."""
        for term in self.terms:
            if pod.namespace not in term.namespaces and not _selects(
                term, pod.namespace, labels_of, unknown=self.unknown
            ):
                return False
            if not takes_in_doubt(term.selector, pod, unknown=self.unknown):
                return False
        return True


class Owning(msgspec.Struct, frozen=True, cache_hash=True):
    """Pods that have a term of required anti-affinity, which may be written more narrowly than it counts.

    If it is widened, only pods without a node: those with one have terms that may take nobody, and are compared by
    them (nodes/inter_pod_affinity.py). Else a crowd of pods that wait would close all nodes of others' pods with terms.
    """

    term: AntiTerm

    @property
    def reads(self) -> None:
        """Terms alone."""
        return

    def effort(self) -> int:
        """What it takes to look at one pod: terms are compared by their hashes."""
        return 1

    def takes(self, pod: PodRecord, labels_of: LabelsOf) -> bool:
        """Whether a pod is one of them."""
        del labels_of
        if not self.term.is_widened:
            return self.term in pod.keeps_off
        return not pod.node and any(self.term in wider(term) for term in pod.keeps_off)


class Drawing(msgspec.Struct, frozen=True, cache_hash=True):
    """Pods that have a term by which others are scored."""

    term: WeightedTerm

    @property
    def reads(self) -> None:
        """Terms alone."""
        return

    def effort(self) -> int:
        """What it takes to look at one pod: terms are compared by their hashes."""
        return 1

    def takes(self, pod: PodRecord, labels_of: LabelsOf) -> bool:
        """Whether a pod is one of them."""
        del labels_of
        return self.term in pod.draws


def owned_term(matcher: object) -> AntiTerm | WeightedTerm | None:
    """The term that each pod has which a matcher takes; None: it takes pods by something else."""
    if isinstance(matcher, Drawing):
        return matcher.term
    return matcher.term if isinstance(matcher, Owning) and not matcher.term.is_widened else None


def effort_of_term(term: AntiTerm) -> int:
    """What it takes to compare a pod with a term, in comparisons or so."""
    return 1 + effort_of_all(term.selector or ()) + effort_of_all(term.namespace_selector or ())


def wider(term: AntiTerm) -> tuple[AntiTerm, ...]:
    """A term, all pods of its namespaces, and all pods."""
    wide = (msgspec.structs.replace(term, selector=()), everybody(term.key))
    return term, *(msgspec.structs.replace(each, is_widened=True) for each in wide)


def everybody(topology_key: str) -> AntiTerm:
    """A term that takes all pods of all namespaces."""
    return AntiTerm(topology_key, selector=(), namespaces=frozenset(), namespace_selector=())


def without_key(term: AntiTerm) -> AntiTerm:
    """What a term takes, wherever: terms that differ in their key alone count the same pods."""
    return msgspec.structs.replace(term, key=_NO_KEY)
