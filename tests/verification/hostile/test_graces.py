"""Long goodbyes: who gets a long grace period, and whose end is cut short."""

from __future__ import annotations

import random
from collections import Counter

from simulator.nodes import shape
from verification.hostile import workload
from verification.hostile.actions import CreatePod, DeletePod
from verification.hostile.scenario import scenario_of
from verification.hostile.variations import STOPS_S, stretched

NODES = shape.parse(["2x2x40GiB"])


def drawn(seed: int, size: int = 60) -> tuple[list[CreatePod], list[DeletePod], list[DeletePod]]:
    """Pods, deletions as they were drawn, and those that came on top."""
    before = workload.draw(random.Random(seed), shapes=NODES, duration_s=60.0, size=size)
    after = stretched(random.Random(seed), before)
    assert list(after) == sorted(after, key=lambda action: action.at_s)
    ends = [action for action in after if isinstance(action, DeletePod)]
    known = Counter(action for action in before if isinstance(action, DeletePod))
    pods = [action for action in after if isinstance(action, CreatePod)]
    return pods, list(known.elements()), [end for end, count in (Counter(ends) - known).items() for _ in range(count)]


def test_half_of_all_pods_have_a_grace_of_half_a_minute_and_more() -> None:
    pods, _, _ = drawn(1)
    long = sum(pod.grace_s is not None and pod.grace_s >= 30 for pod in pods)
    assert 0.4 < long / len(pods) < 0.9


def test_those_that_are_deleted_are_deleted_again_with_less_grace() -> None:
    _, ends, again = drawn(1)
    patient = {end.name: end.at_s for end in ends if end.grace_s is None}
    assert 0.2 < len(again) / len(ends) < 0.7
    assert {end.grace_s for end in again} == {0, 1, 10}
    assert all(end.at_s > min(e.at_s for e in ends if e.name == end.name) for end in again)
    assert {end.name for end in again} <= patient.keys()


def test_a_tenth_of_the_runs_end_slowly() -> None:
    slow = [seed for seed in range(1, 301) if scenario_of(seed, ()).settings.stop_s in STOPS_S]
    assert 15 < len(slow) < 50
