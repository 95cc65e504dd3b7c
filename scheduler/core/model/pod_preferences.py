"""What a pod would rather have of its node and of the pods around it, and what each kind of preference weighs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from scheduler.core.model.pod_rules import Spread

if TYPE_CHECKING:
    from scheduler.core.model.pod_class import AntiTerm, Term


class Weights(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the score of each preference, 0 to 100, is multiplied by; 0: it does not count. Kubernetes' defaults.

    ``hard_pod_affinity``: what required affinity of other pods weighs in ``pod_affinity``, 0 to 100.
    ``ignores_others``: preferred terms of other pods count only for pods that have such terms themselves
    (kube-scheduler's ``ignorePreferredTermsOfExistingPods``).
    """

    prefer_no_schedule: int = 3
    node_affinity: int = 2
    pod_affinity: int = 2
    soft_spread: int = 2
    images: int = 0
    hard_pod_affinity: int = 1
    ignores_others: bool = False


class WeightedNodeTerm(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A term of preferred node affinity; ``weight`` from 1 to 100."""

    weight: int
    term: Term


class WeightedTerm(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A term about other pods that draws towards their domains, or away from them if ``weight`` is below 0."""

    weight: int
    term: AntiTerm


class PodPreferences(msgspec.Struct, frozen=True, gc=False, cache_hash=True, kw_only=True):
    """All that a pod prefers, a part of its class.

    ``spread``: constraints that need not hold. ``images``: of its containers and image volumes, one each, as nodes list
    them; ``containers``: how many it has.
    """

    namespace: str
    node_terms: tuple[WeightedNodeTerm, ...] = ()
    pod_terms: tuple[WeightedTerm, ...] = ()
    spread: tuple[Spread, ...] = ()
    images: tuple[str, ...] = ()
    containers: int = 0
