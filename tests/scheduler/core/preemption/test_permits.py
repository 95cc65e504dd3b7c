"""Units are judged once, after those that were judged before."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from scheduler.core.model.preemption import Action, Budget, Respect, RoomSettings
from scheduler.core.model.quota import Resources
from scheduler.core.preemption.candidates import by_budgets
from scheduler.core.preemption.reclaim import NOBODY, Permits, Rules
from scheduler.core.queues.accounts import Use
from scheduler.core.queues.tree import TreeQueue
from tests.scheduler.core.objects import NANO, cluster, node, queue
from tests.scheduler.core.preemption.scenes import running, trial_of, waiting


def _permits(allowed: int, **settings: Any) -> tuple[Permits, list[int]]:
    """Five pods of a queue that has two more GPUs than its share, all under one budget."""
    pods = [running(f"p{at}", "b", "n1", gpus=1) for at in range(5)]
    made = cluster(
        node("n1", 6), queue("a", gpu=(3, 1, -1)), queue("b", gpu=(3, 1, -1)), *pods, waiting("m", "a", gpus=2)
    )
    labels = {f"uid-{pod.metadata.name}": {"x": "y"} for pod in pods}
    trial = trial_of(made, budgets=(Budget(namespace="ns", name="b", selector=(), allowed=allowed),), labels=labels)
    trial.residents.refresh(trial)
    leaf = trial.accounts.tree.leaf("a")
    assert isinstance(leaf, TreeQueue)
    use = Use("a", Resources(0, 0, 2 * NANO), False)
    rules = Rules(Action.RECLAIM, trial.accounts, leaf, use, 50, RoomSettings(**settings))
    return Permits(trial.residents, rules, trial.counted), [trial.residents.row_of[f"uid-p{at}"] for at in range(5)]


@pytest.mark.parametrize(("allowed", "go"), [(9, 2), (1, 1), (0, 0)], ids=["by its queue", "by the budget", "none"])
def test_as_many_go_one_by_one_as_all_at_once(allowed: int, go: int) -> None:
    permits, rows = _permits(allowed)
    for count in range(5):
        at_once = permits.go(rows[:count])
        assert (at_once is not None) is (count <= go)
        for first in range(count):
            before = permits.go(rows[:first])
            assert before is None or permits.go(rows[first:count], before) == at_once


@pytest.mark.parametrize(
    ("settings", "go"),
    [
        ({}, 0),
        ({"budgets": Respect.WITHIN_QUOTA}, 2),  # three of five are within the quota
        ({"budgets": Respect.SHARE, "budgets_percent": 80}, 1),
        ({"budgets": Respect.SHARE, "budgets_percent": 100}, 0),
        ({"budgets": Respect.SHARE, "budgets_percent": 0}, 2),  # its share bounds what may go
    ],
)
def test_budgets_protect_so_much_of_a_queue_as_the_administrator_says(settings: dict[str, Any], go: int) -> None:
    permits, rows = _permits(0, **settings)
    assert [permits.go(rows[:count]) is not None for count in range(4)] == [count <= go for count in range(4)]
    assert permits.go(rows[go : go + 1], permits.go(rows[:go]) or NOBODY) is None
    chosen = by_budgets(permits.table, np.array(rows), permits.budgets, permits.rules)
    assert len(chosen) == go or settings.get("budgets_percent") == 0


def test_who_stays_gives_nothing_back_of_a_budget_that_did_not_count() -> None:
    permits, rows = _permits(1, budgets=Respect.WITHIN_QUOTA)
    gone = permits.go(rows[:2])
    assert gone is not None
    assert permits.back(rows[0], gone).taken == Counter()


def test_what_goes_takes_of_queues_and_budgets() -> None:
    permits, rows = _permits(9)
    gone = permits.go(rows[:2])
    assert gone is not None
    assert gone.taken == Counter({0: 2})
    assert {lost.gpu_nano for lost in gone.lost.values()} == {2 * NANO}


def test_who_stays_after_all_leaves_what_the_others_take() -> None:
    permits, rows = _permits(9)
    gone = permits.go(rows[:2])
    assert gone is not None
    left, alone = permits.back(rows[0], gone), permits.go(rows[1:2])
    assert alone is not None
    assert (left.lost, +left.taken) == (alone.lost, alone.taken)
