"""Long goodbyes: pods with grace periods of half a minute and more, whose ends are cut short, by force or by a word.

A container takes as long as its grace period allows, so what it holds is in use long after its pod was deleted.
Deleting it again with less grace cuts that short, on the machine too, where that hears of it; doing so by force (0)
takes the pod off the API server at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from verification.hostile.actions import Action, CreatePod, DeletePod

#: How long containers take to end in such runs, if their grace period allows.
STOPS_S: Final = (20.0, 30.0, 100.0)
_GRACES_S: Final = (None, 30, 30, 60, 120)
#: Graces of users that do not want to wait any longer.
_SHORT_S: Final = (0, 0, 1, 10)


def stretched(rng: random.Random, actions: Sequence[Action]) -> tuple[Action, ...]:
    """Give pods long graces where they have none of their own, and delete half of those that end a second time."""
    changed = [_with_grace(rng, action) for action in actions]
    return tuple(sorted((*changed, *_hurried(rng, actions)), key=lambda action: action.at_s))


def _with_grace(rng: random.Random, action: Action) -> Action:
    if isinstance(action, CreatePod) and action.grace_s is None:
        return msgspec.structs.replace(action, grace_s=rng.choice(_GRACES_S))
    return action


def _hurried(rng: random.Random, actions: Sequence[Action]) -> Iterator[DeletePod]:
    for action in actions:
        if isinstance(action, DeletePod) and action.grace_s is None and rng.random() < 0.5:
            at_s = round(action.at_s + rng.choice((0.1, 1.0, 10.0, 40.0)) * (1 + rng.random()), 3)
            yield msgspec.structs.replace(action, at_s=at_s, grace_s=rng.choice(_SHORT_S))
