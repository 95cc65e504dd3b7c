"""What keeps pods from being taken, and how that is counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scheduler.core.model.preemption import Action, Budget, Evicted, Kept, KeptPods, RoomSettings
from scheduler.core.model.quota import Resources
from scheduler.core.preemption.budgets import Budgets
from scheduler.core.preemption.candidates import Sieve, Sifted
from scheduler.core.preemption.reclaim import Rules
from scheduler.core.queues.accounts import Use
from tests.scheduler.core.objects import NANO, cluster, node, pod_group, queue
from tests.scheduler.core.preemption.scenes import NOON_S, running, trial_of, waiting

_S = 10**9


def _sifted(*objects: Any, action: Action = Action.RECLAIM, **given: Any) -> tuple[Sifted, list[tuple[str, ...]]]:
    made = cluster(node("n1", 8), queue("a", gpu=(8, 0, -1)), waiting("mine", "a", gpus=8), *objects)
    trial = trial_of(made, **given)
    leaf = trial.accounts.tree.find("a")
    assert leaf is not None
    rules = Rules(action, trial.accounts, leaf, Use("a", Resources(0, 0, NANO)), 60, trial.settings)
    trial.residents.refresh(trial)
    sifted = Sieve(trial, rules, Budgets(trial.budgets, trial.labels), trial.residents).sift()
    able = [trial.residents.residents[row] for row in np.flatnonzero(sifted.able).tolist()]
    return sifted, [unit.unit.pods for unit in able if unit is not None]


_B = queue("b", gpu=(0, 0, -1))


@pytest.mark.parametrize(
    ("kept", "objects", "given"),
    [
        (None, [_B], {}),
        (KeptPods(Kept.IN_SHARE, 1, 2 * NANO), [queue("b", gpu=(2, 0, -1))], {}),
        (
            KeptPods(Kept.MIN_RUNTIME, 1, 2 * NANO, NOON_S + 10),
            [_B],
            {"settings": RoomSettings(reclaim_min_ns=3_610 * _S)},
        ),
        (KeptPods(Kept.PROTECTED, 1, 2 * NANO, NOON_S + 29), [_B], {"evicted": {"uid-x": Evicted(1, NOON_S - 1)}}),
        (
            KeptPods(Kept.BUDGET, 1, 2 * NANO),
            [_B],
            {"budgets": (Budget(namespace="ns", name="pdb", selector=(), allowed=0),), "labels": {"uid-x": {}}},
        ),
        (KeptPods(Kept.BUSY, 1, 2 * NANO), [_B], {"taken": {"uid-x"}}),
    ],
    ids=["nothing", "share", "min runtime", "evicted", "budget", "taken"],
)
def test_what_keeps_a_pod_of_another_queue_is_told(kept: KeptPods | None, objects: list[Any], given: Any) -> None:
    sifted, able = _sifted(*objects, running("x", "b", "n1", gpus=2), **given)
    assert list(sifted.kept.values()) == ([kept] if kept else [])
    assert len(able) == (kept is None)


def test_what_keeps_a_pod_of_the_same_queue_is_told() -> None:
    sifted, able = _sifted(
        running("x", "a", "n1", gpus=1, priority=60),
        running("y", "a", "n1", gpus=1, priority=59),
        running("z", "a", "n1", gpus=1, priority=100),
        action=Action.PREEMPT,
    )
    assert able == [("uid-y",)]
    assert set(sifted.kept.values()) == {
        KeptPods(Kept.NOT_PREEMPTIBLE, 1, NANO),
        KeptPods(Kept.PRIORITY, 1, NANO),
    }


def test_pods_are_added_up_and_the_first_time_counts() -> None:
    pods = [running(f"x{at}", "b", "n1", gpus=1, age_s=100 * at) for at in range(1, 4)]
    sifted, _ = _sifted(_B, *pods, settings=RoomSettings(reclaim_min_ns=1_000 * _S))
    assert sifted.kept == {Kept.MIN_RUNTIME: KeptPods(Kept.MIN_RUNTIME, 3, 3 * NANO, NOON_S + 700)}


def test_a_core_stays_with_surplus_that_a_budget_keeps() -> None:
    gang = [pod_group("g", 1, queue="b"), *(running(f"m{at}", "b", "n1", age_s=99 - at, group="g") for at in range(2))]
    budget = Budget(namespace="ns", name="pdb", selector=(), allowed=0)
    elsewhere = {"uid-m0": {}, "uid-m1": {"app": "x"}}
    sifted, able = _sifted(
        queue("b", gpu=(0, 0, -1)), *gang, running("p", "b", "n1", gpus=1), budgets=(budget,), labels=elsewhere
    )
    assert not able
    assert sifted.kept[Kept.BUDGET].pods == 3
