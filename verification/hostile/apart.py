"""Pods that keep apart, in a tenth of the runs: one of each kind on a node, by required anti-affinity.

Half of a kind name the rule, and the others only have its label, so that the rules of pods that run keep them off, too.
Drawn behind the workload and from a source of its own, so that runs without any stay what they were.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import msgspec

from verification.hostile.actions import APART, Action, CreatePod

#: Parts of the runs that have such pods, of the pods alone that are of a kind, and of these that name the rule.
_RUNS: Final = 0.1
_OF_A_KIND: Final = 0.6
_NAME_IT: Final = 0.5
_KINDS: Final = ("a", "a", "b")


def kept_apart(rng: random.Random, actions: Sequence[Action]) -> tuple[Action, ...]:
    """Have pods keep apart; in most runs none."""
    return spread_out(rng, actions) if rng.random() < _RUNS else tuple(actions)


def spread_out(rng: random.Random, actions: Sequence[Action]) -> tuple[Action, ...]:
    """Give pods alone a kind; pods of one name, that of the first."""
    kinds: dict[str, tuple[str, bool]] = {}
    return tuple(_of_kind(rng, action, kinds) if isinstance(action, CreatePod) else action for action in actions)


def _of_kind(rng: random.Random, pod: CreatePod, kinds: dict[str, tuple[str, bool]]) -> CreatePod:
    if pod.group:
        return pod
    if pod.name not in kinds:
        kinds[pod.name] = (rng.choice(_KINDS) if rng.random() < _OF_A_KIND else "", rng.random() < _NAME_IT)
    kind, names_it = kinds[pod.name]
    if not kind:
        return pod
    return msgspec.structs.replace(pod, labels={**pod.labels, APART: kind}, apart=kind if names_it else "")
