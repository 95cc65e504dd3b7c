"""Reading what a pod prefers, and what draws other pods towards it or away from it.

A preference that can't be read, or that is beyond what a pod may have, does not count: it keeps no pod waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, TypeVar

from scheduler.core.convert import constraints, pod_rules
from scheduler.core.convert.selectors import can_be_read, pod_term
from scheduler.core.model.pod_class import (
    AntiTerm,
    PodPreferences,
    Requirement,
    Spread,
    WeightedNodeTerm,
    WeightedTerm,
    Weights,
)
from wire.core import Container, NodeSelector, Pod, PodAffinity, PodAffinityTerm

_SOFT: Final = "ScheduleAnyway"
_MOST_WEIGHT: Final = 100
#: Each costs a look at all nodes, as each rule does (pod_rules.py).
MOST_PREFERENCES: Final = 32
#: Expressions, values and namespaces in all of them.
MOST_WORDS: Final = 1_000
_MOST_KEPT: Final = 10_000

_One = TypeVar("_One", WeightedNodeTerm, WeightedTerm, Spread)


class _Left:
    """What a pod may still have."""

    def __init__(self) -> None:
        self._terms, self._words = MOST_PREFERENCES, MOST_WORDS

    def take(self, found: Iterable[_One]) -> tuple[_One, ...]:
        """The first ones, as far as they are within the bounds; none after the first that is not."""
        taken: list[_One] = []
        for one in found:
            words = _words(one)
            if not self._terms or words > self._words:
                self._terms = 0
                break
            self._terms -= 1
            self._words -= words
            taken.append(one)
        return tuple(taken)


def pod_preferences(pod: Pod, weights: Weights) -> PodPreferences | None:
    """What ``pod`` prefers of what counts; None if that is nothing."""
    left = _Left()
    node_terms = left.take(_node_terms(pod)) if weights.node_affinity else ()
    pod_terms = left.take(_own_terms(pod)) if weights.pod_affinity else ()
    spread = left.take(_soft_spread(pod)) if weights.soft_spread else ()
    images = _images(pod) if weights.images else ()
    if not (node_terms or pod_terms or spread or images):
        return None
    return PodPreferences(
        namespace=pod.metadata.namespace,
        node_terms=node_terms,
        pod_terms=pod_terms,
        spread=spread,
        images=images,
        containers=len(_containers(pod)) if images else 0,
    )


def drawing_terms(pod: Pod, weights: Weights) -> tuple[WeightedTerm, ...]:
    """Terms of a pod by which others are scored beside it: preferred ones, and required affinity.

    Of equal terms there is one, with the sum of their weights.
    """
    if not weights.pod_affinity:
        return ()
    sums: dict[AntiTerm, int] = {}
    for one in _Left().take((*_required(pod, weights.hard_pod_affinity), *_own_terms(pod))):
        sums[one.term] = sums.get(one.term, 0) + one.weight
    return _kept(tuple(WeightedTerm(weight, term) for term, weight in sums.items() if weight))


@lru_cache(maxsize=_MOST_KEPT)
def _kept(terms: tuple[WeightedTerm, ...]) -> tuple[WeightedTerm, ...]:
    """The same value for all pods that are alike: most come from few templates."""
    return terms


def _own_terms(pod: Pod) -> Iterator[WeightedTerm]:
    affinity = pod.spec.affinity
    if affinity is not None:
        yield from _preferred(pod, affinity.pod_affinity, 1)
        yield from _preferred(pod, affinity.pod_anti_affinity, -1)


def _preferred(pod: Pod, rules: PodAffinity | None, sign: int) -> Iterator[WeightedTerm]:
    written = (rules.preferred_during_scheduling_ignored_during_execution if rules is not None else None) or ()
    for each in written:
        if (weight := _weight(each.weight)) and _is_readable(each.pod_affinity_term):
            yield WeightedTerm(sign * weight, pod_term(each.pod_affinity_term, pod.metadata.namespace))


def _required(pod: Pod, weight: int) -> Iterator[WeightedTerm]:
    if weight and pod.spec.affinity is not None:
        readable = (term for term in pod_rules.pod_affinity(pod) if _is_readable(term))
        yield from (WeightedTerm(weight, pod_term(term, pod.metadata.namespace)) for term in readable)


def _is_readable(term: PodAffinityTerm) -> bool:
    return can_be_read(term.label_selector) and can_be_read(term.namespace_selector)


def _node_terms(pod: Pod) -> Iterator[WeightedNodeTerm]:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    written = (affinity.preferred_during_scheduling_ignored_during_execution if affinity is not None else None) or ()
    for each in written:
        (term,) = constraints.terms(NodeSelector(node_selector_terms=[each.preference]))
        if (weight := _weight(each.weight)) and (term.labels or term.fields):
            yield WeightedNodeTerm(weight, term)


def _weight(written: int) -> int:
    return max(0, min(written, _MOST_WEIGHT))


def _soft_spread(pod: Pod) -> Iterator[Spread]:
    written = pod.spec.topology_spread_constraints or ()
    soft = (each for each in written if each.when_unsatisfiable == _SOFT and can_be_read(each.label_selector))
    return (pod_rules.spread_of(pod, each) for each in soft)


def _images(pod: Pod) -> tuple[str, ...]:
    named = [container.image for container in _containers(pod)]
    named += [volume.image.reference for volume in pod.spec.volumes or () if volume.image is not None]
    return tuple(sorted(map(image_name, filter(None, named[:MOST_PREFERENCES]))))


def _containers(pod: Pod) -> list[Container]:
    return [*(pod.spec.init_containers or ()), *pod.spec.containers]


def image_name(written: str) -> str:
    """An image as nodes list it: one without a tag means the latest."""
    return written if written.rfind(":") > written.rfind("/") else f"{written}:latest"


def _words(one: WeightedNodeTerm | WeightedTerm | Spread) -> int:
    if isinstance(one, WeightedNodeTerm):
        return _in((*one.term.labels, *one.term.fields))
    if isinstance(one, Spread):
        return _in(one.selector)
    return _in(one.term.selector) + _in(one.term.namespace_selector) + len(one.term.namespaces)


def _in(selector: Iterable[Requirement] | None) -> int:
    return sum(1 + len(requirement.values) for requirement in selector or ())
