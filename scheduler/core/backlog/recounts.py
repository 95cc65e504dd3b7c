"""Whose counts are brought up to date, and when: verdicts count nodes, and nodes change without helping anybody.

So once a second a few classes and gangs, those that were counted longest ago, are judged again though nothing may help
them; and a few of those that their queues hold back, or that are kept off nodes for others, as what they were told
changes as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from scheduler.core.backlog.backlog import Backlog
from scheduler.core.backlog.sayings import Key
from scheduler.core.backlog.shape import ShapeKey
from scheduler.core.model.pod_class import PodClass

_PERIOD_NS: Final = 1_000_000_000
_NONE: Final[Mapping[PodClass, None]] = {}


class Recounts(NamedTuple):
    """What one decision judges again."""

    classes: Mapping[PodClass, None] = _NONE
    gangs: tuple[Key, ...] = ()
    held_back: tuple[ShapeKey | Key, ...] = ()


NOTHING: Final = Recounts()


def due(backlog: Backlog, now_ns: int, most: int) -> Recounts:
    """What is judged again now, up to ``most`` classes and gangs, as many of both that queues hold back, or kept off.

    Those gangs and all that is held back or kept off are awake from here on.
    """
    if now_ns < backlog.recount_ns:
        return NOTHING
    found = _stale(backlog, most)
    if any(found):
        backlog.recount_ns = now_ns + _PERIOD_NS
    for key in found.gangs:
        backlog.decide_again(key)
    backlog.wake_held_back(found.held_back)
    return found


def next_ns(backlog: Backlog, now_ns: int, most: int) -> int | None:
    """When there is something to judge again; None if all counts are of today."""
    if not any(_stale(backlog, most)):
        return None
    if backlog.recount_ns <= now_ns:
        backlog.recount_ns = now_ns + _PERIOD_NS
    return backlog.recount_ns


def _stale(backlog: Backlog, most: int) -> Recounts:
    """Classes and gangs whose counts may have changed, the oldest."""
    gangs = backlog.stale_gangs(most)
    classes = dict.fromkeys(cls for gang in gangs for cls in gang.classes)
    for cls in backlog.asleep.oldest(most):
        if backlog.waits_for_room(cls):
            classes[cls] = None
        elif backlog.has_shapes(cls):
            backlog.asleep.wakes(cls)  # their queues hold all of them back: they are judged again when these don't
        elif cls not in classes:
            backlog.asleep.wakes(cls)  # nobody waits with it: the next pod must not get an old verdict on nodes
    held_back = (*backlog.quota_sleepers.outdated(most), *backlog.kept_off.outdated(most))
    return Recounts(classes, tuple(gang.key for gang in gangs), held_back)
