"""Label selectors of pods' terms and of PodDisruptionBudgets, and the namespaces that terms select.

Read once, judged by plain values.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

import msgspec

from scheduler.core.filters.pod_rule import everybody
from scheduler.core.model.pod_class import AntiTerm, Requirement
from scheduler.core.model.preemption import BudgetRecord
from wire.api_groups import PodDisruptionBudget
from wire.core import LabelSelector, Namespace, Pod, PodAffinityTerm

#: Expressions and values of a selector. Nobody means more.
_MOST_WORDS: Final = 1_000


def budget_record(budget: PodDisruptionBudget) -> BudgetRecord:
    """Read a budget. While its controller has not counted its newest generation, it lets nobody go.

    One with a longer selector than is kept lets nobody of its namespace go.
    """
    meta, status = budget.metadata, budget.status
    is_counted = status.observed_generation >= meta.generation
    selector = requirements(budget.spec.selector)
    is_too_long = sum(1 + len(each.values) for each in selector or ()) > _MOST_WORDS
    return BudgetRecord(
        namespace=meta.namespace,
        name=meta.name,
        selector=() if is_too_long else selector,
        allowed=max(0, status.disruptions_allowed) if is_counted and not is_too_long else 0,
    )


_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
#: A pod with more terms than anybody means keeps everybody of their namespaces off; if these are as many, everybody,
#: but for terms that name no namespaces.
_MOST_TERMS: Final = 32


class NamespaceRecord(msgspec.Struct, frozen=True, gc=False):
    """A namespace, as terms select it."""

    name: str
    labels: dict[str, str]

    @property
    def key(self) -> str:
        """Its name."""
        return self.name


def namespace_record(namespace: Namespace) -> NamespaceRecord:
    """Read a namespace."""
    return NamespaceRecord(namespace.metadata.name, namespace.metadata.labels or {})


def anti_terms(pod: Pod) -> tuple[AntiTerm, ...]:
    """Required anti-affinity of a pod: what it keeps others off."""
    rules = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None
    written = (rules.required_during_scheduling_ignored_during_execution if rules else None) or ()
    if len(written) > _MOST_WORDS:
        return _by_keys(written, pod.metadata.namespace)
    terms = tuple(dict.fromkeys(pod_term(term, pod.metadata.namespace) for term in written))
    if _are_too_many(terms):
        terms = tuple(dict.fromkeys(msgspec.structs.replace(term, selector=()) for term in terms))
    return _by_keys(written, pod.metadata.namespace) if _are_too_many(terms) else terms


def _by_keys(written: Sequence[PodAffinityTerm], namespace: str) -> tuple[AntiTerm, ...]:
    """A term a key: it takes everybody, or all pods of the owner's namespace where no term names any."""
    names_others: dict[str, bool] = {}
    for term in written:
        names_others[term.topology_key] = names_others.get(term.topology_key, False) or not _is_own(term)
    return tuple(
        everybody(key) if names else AntiTerm(key, selector=(), namespaces=frozenset((namespace,)), is_own=True)
        for key, names in islice(names_others.items(), _MOST_TERMS)
    )


def _is_own(term: PodAffinityTerm) -> bool:
    """Whether a term means the pod's own namespace by naming none (core/v1 PodAffinityTerm)."""
    return not term.namespaces and term.namespace_selector is None


def _are_too_many(terms: tuple[AntiTerm, ...]) -> bool:
    return len(terms) > _MOST_TERMS or sum(map(words_of, terms)) > _MOST_WORDS


def words_of(term: AntiTerm) -> int:
    """Expressions and values in the selectors of a term, and its namespaces."""
    asked = (*(term.selector or ()), *(term.namespace_selector or ()))
    return len(term.namespaces) + sum(1 + len(requirement.values) for requirement in asked)


def pod_term(term: PodAffinityTerm, namespace: str) -> AntiTerm:
    """Read a term."""
    is_own = _is_own(term)
    return AntiTerm(
        term.topology_key,
        selector=requirements(term.label_selector),
        namespaces=frozenset((namespace,) if is_own else term.namespaces or ()),
        namespace_selector=requirements(term.namespace_selector),
        is_own=is_own,
    )


def requirements(selector: LabelSelector | None) -> tuple[Requirement, ...] | None:
    """Read a selector. One that can't be read takes everything: too much is kept off rather than too little."""
    if selector is None:
        return None
    written = selector.match_expressions or ()
    if not can_be_read(selector):
        return ()
    labels = (Requirement(key, "In", (value,)) for key, value in sorted((selector.match_labels or {}).items()))
    return (*labels, *(Requirement(e.key, e.operator, tuple(e.values or ())) for e in written))


def can_be_read(selector: LabelSelector | None) -> bool:
    """Whether all operators of a selector are known."""
    written = (selector.match_expressions if selector is not None else None) or ()
    return all(expression.operator in _OPERATORS for expression in written)
