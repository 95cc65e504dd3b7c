"""Searches for room in random small clusters: whether one is possible, and that nothing but the cluster decides.

``tests/scheduler/core/preemption/test_search.py`` holds what a found set has to be, and that no order of events
matters.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.cluster import Cluster
from scheduler.core.model.preemption import Action, Found, NoVictims
from scheduler.core.preemption.search import find_victims
from tests.scheduler.core.objects import cluster, feed, next_rv, node, pod_group, queue
from tests.scheduler.core.preemption.reference import Reference
from tests.scheduler.core.preemption.scenes import NOON_S, Scene, need_of, running, trial_of, waiting
from tests.whole import IS_WHOLE
from wire.core import Node, Pod
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue

_NS = 1_000_000_000
_SEEDS = 150 if IS_WHOLE else 50


@pytest.mark.parametrize("action", [Action.RECLAIM, Action.PREEMPT])
def test_room_is_found_where_a_set_of_victims_makes_room_and_only_there(action: Action) -> None:
    """All sets of up to 12 units. A search may miss one (docs/design/preemption.md), and misses none of these."""
    answers = {Found: 0, NoVictims: 0}
    for seed in range(_SEEDS):
        trial = trial_of(Scene(seed, most_units=12).cluster())
        reference = Reference(trial, need_of(trial, "mine"), action)
        if reference.claim(frozenset()) is not None:
            continue  # it fits as it is
        answer = find_victims(reference.need, trial, (action,))
        answers[type(answer)] += 1
        if isinstance(answer, NoVictims):
            assert next(reference.solutions(), None) is None, seed
            continue
        rows = {unit.unit: at for at, unit in enumerate(reference.units)}
        found = frozenset(rows[unit] for unit in answer.units)
        closed = [found, *(found - {unit} for unit in found)]
        solved = [_is_solution(reference, each) for each in closed]
        assert solved == [True, *[False] * len(found)], seed
    assert answers[Found] >= _SEEDS // 15
    assert answers[NoVictims] >= _SEEDS // 3


def _is_solution(reference: Reference, found: frozenset[int]) -> bool:
    """Whether a set is closed, permitted and enough."""
    units = reference.units
    claim = reference.claim(found)
    is_closed = all(units.index(other) in found for at in found for other in units[at].chain)
    return is_closed and claim is not None and reference.is_solution(found, claim)


# --- what was remembered -------------------------------------------------------------------------------------------
def _newer(obj: Any) -> Any:
    """The same object at a later version."""
    meta = msgspec.structs.replace(obj.metadata, resource_version=next_rv())
    return msgspec.structs.replace(obj, metadata=meta)


def _disturb(made: Cluster, rng: random.Random, objects: list[Any]) -> None:
    """Something happens that does not last, or that is told twice; decisions and searches are made meanwhile."""
    match rng.randrange(6):
        case 0:
            feed(made, running("passing", rng.choice("xy"), "n0", gpus=1, priority=rng.choice([50, 100])))
        case 1:
            made.remove_pod("uid-passing")
        case 2:
            feed(made, node("passing", rng.choice([1, 4])))
        case 3:
            made.remove_node("passing")
        case 4:
            feed(made, _newer(rng.choice(objects)))
        case _:
            name = f"hopeless-{next_rv()}"
            feed(made, waiting(name, "x", gpus=99, priority=rng.choice([50, 100])))
            trial = trial_of(made)
            find_victims(need_of(trial, name), trial)
            made.decide(rng.randrange(10) * _NS, wall_s=NOON_S)
            made.remove_pod(f"uid-{name}")


def _lived(objects: list[Any], rng: random.Random) -> Cluster:
    """A cluster that came to be the one of these objects, in some order and after all sorts of events."""
    queues = [each for each in objects if isinstance(each, Queue)]
    others = [each for each in objects if not isinstance(each, Queue)]
    mine = [each for each in others if isinstance(each, Pod) and not each.spec.node_name]
    rest = [each for each in others if each not in mine]
    rng.shuffle(rest)
    made, known = cluster(*queues), list[Any]()
    for each in rest:
        if isinstance(each, Pod) and rng.random() < 0.3:  # it had another priority, or was on no node yet
            feed(made, msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, priority=70)))
        if isinstance(each, PodGroup) and rng.random() < 0.3:
            feed(made, pod_group(each.metadata.name, 1, queue=queues[0].metadata.name))
        if isinstance(each, Node) and rng.random() < 0.3:
            feed(made, node(each.metadata.name, 1))
        feed(made, _newer(each))
        known.append(each)
        if rng.random() < 0.6:
            _disturb(made, rng, known)
    made.remove_pod("uid-passing")
    made.remove_node("passing")
    feed(made, *map(_newer, mine))
    return made


@given(st.integers(0, 1 << 32))
def test_the_same_is_found_whatever_the_scheduler_lived_through(seed: int) -> None:
    scene, extra = Scene(seed, most_units=8), [queue("x"), queue("y", gpu=(1, 1, -1))]
    objects = [*extra, *scene.objects]
    fresh, lived = trial_of(cluster(*objects)), trial_of(_lived(objects, random.Random(seed)))
    expected = find_victims(need_of(fresh, "mine"), fresh)
    assert find_victims(need_of(lived, "mine"), lived) == expected


@given(st.integers(0, 1 << 32))
def test_the_same_is_found_again_and_after_searches_for_others(seed: int) -> None:
    made = Scene(seed, most_units=8).cluster()
    feed(made, waiting("other", "t0", gpus=1, priority=100), waiting("half", "t1", fraction="0.5", priority=75))
    trial = trial_of(made)
    need = need_of(trial, "mine")
    first = find_victims(need, trial)
    find_victims(need_of(trial, "other"), trial)
    find_victims(need_of(trial, "half"), trial, (Action.PREEMPT,))
    assert find_victims(need, trial) == first
