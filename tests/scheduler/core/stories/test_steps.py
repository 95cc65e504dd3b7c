"""A decision in steps is the decision at once, whatever is decided or given up between two of them."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.cluster import Cluster
from scheduler.core.decide.decide import Decision, decide, deciding, filed
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.plan import Nominate
from scheduler.core.model.settings import Settings
from tests.scheduler.core.footprint import footprint
from tests.scheduler.core.objects import cluster, feed, node, pod, pod_group, queue
from tests.scheduler.core.preemption.scenes import NOON_S, Scene, running, waiting


def _world(seed: int) -> Cluster:
    """A full cluster in which several wait, of which some may have others evicted."""
    scene, rng = Scene(seed), random.Random(seed)
    made = cluster(*scene.objects, settings=Settings())
    for number in range(rng.choice([0, 1, 3])):
        feed(made, waiting(f"w{number}", rng.choice(scene.leaves), gpus=rng.choice([1, 1, 2]), priority=75))
    return made


def _new(made: Cluster) -> Snapshot:
    """What is decided on, with a scheduling queue of its own in which all are awake."""
    return filed(made.snapshot(), now_ns=0)


def _in_steps(made: Cluster, rng: random.Random) -> Decision:
    """Decide in steps; between them the cluster decides, or another decision is begun and given up."""
    steps = deciding(_new(made), 0, wall_s=NOON_S)
    while True:
        try:
            assert next(steps) >= 0
        except StopIteration as done:
            found: Decision = done.value
            return found
        if rng.random() < 0.3:
            decide(_new(made), 0, wall_s=NOON_S)
        if rng.random() < 0.3:
            other = deciding(_new(made), 0, wall_s=NOON_S)
            for _ in range(rng.randrange(1, 9)):
                next(other, None)
            other.close()


@given(st.integers(0, 1 << 32))
def test_a_decision_in_steps_is_the_decision_at_once(seed: int) -> None:
    made = _world(seed)
    at_once = decide(_new(made), 0, wall_s=NOON_S)
    before = footprint(made)
    found = _in_steps(made, random.Random(seed))
    assert (found.entries, found.has_put_off) == (at_once.entries, at_once.has_put_off)
    assert footprint(made) == before


def test_these_decisions_search_for_room() -> None:
    """Otherwise the test above would show less than it says."""
    made = [decide(_new(_world(seed)), 0, wall_s=NOON_S) for seed in range(40)]
    assert sum(any(isinstance(entry, Nominate) for entry in each.entries) for each in made) >= 5


def test_there_are_steps_between_turns_and_in_a_search_for_room() -> None:
    few, many = (
        sum(1 for _ in deciding(_new(_full(nodes)), 0, wall_s=NOON_S))  # the result is not what is counted
        for nodes in (2, 12)
    )
    assert many >= few + 10


def _full(nodes: int) -> Cluster:
    """A gang that may have others evicted, each on a node of its own."""
    made = Cluster(Settings())
    feed(made, *(node(f"n{number}", 1) for number in range(nodes)))
    feed(made, queue("q"), pod_group("mine", nodes, queue="q"))
    feed(made, *(running(f"r{number}", "q", f"n{number}", gpus=1, priority=50) for number in range(nodes)))
    feed(made, *(pod(f"m{number}", gpus=1, group="mine", priority=75) for number in range(nodes)))
    return made
