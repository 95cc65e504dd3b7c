"""How many pods nodes hold once units are gone: as the statement counts them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.room.counting import Counting
from scheduler.core.room.slots import slots
from scheduler.core.room.tenants import tenants
from scheduler.core.room.trial import Trial
from tests.scheduler.core.objects import NANO, cluster, node, queue
from tests.scheduler.core.room.scenes import Scene, device, need_of, running, sharing, trial_of, waiting


def _counting(trial: Trial) -> Counting:
    trial.residents.refresh(trial)
    (way,) = need_of(trial, "mine").pods[0].cls.ways()
    return Counting(trial, trial.residents, way, tenants(trial, trial.residents))


def _by_statement(trial: Trial, counting: Counting, rows: list[int]) -> list[int]:
    """What nodes hold with these units evicted."""
    mark = trial.statement.checkpoint()
    units = [trial.residents.residents[row] for row in rows]
    trial.statement.evict(*(pod for unit in units if unit for pod in unit.pods))
    found: list[int] = slots(trial.statement, counting.way).tolist()
    trial.statement.rollback(mark)
    return found


@given(st.integers(0, 1 << 32))
def test_each_node_is_counted_as_the_statement_counts_it(seed: int) -> None:
    trial, rng = trial_of(Scene(seed).cluster()), random.Random(seed)
    counting = _counting(trial)
    rows = [row for row, unit in enumerate(trial.residents.residents) if unit and rng.random() < 0.6]
    expected = _by_statement(trial, counting, rows)
    for position, count in enumerate(expected):
        assert counting.count(position, frozenset(rows)) == count
        lacks = counting.lacks(position, count + 1)
        if lacks is not None:
            for row in rows:
                held = counting.holds(row).get(position, [0] * len(lacks))
                lacks = [lack - amount for lack, amount in zip(lacks, held, strict=True)]
            assert max(lacks) > 0


@given(st.integers(0, 1 << 32))
def test_the_shortest_prefix_is_the_shortest_that_the_statement_counts(seed: int) -> None:
    trial, rng = trial_of(Scene(seed).cluster()), random.Random(seed)
    counting = _counting(trial)
    rows = [row for row, unit in enumerate(trial.residents.residents) if unit]
    rng.shuffle(rows)
    needed = sum(counting.here.tolist()) + rng.randint(1, 4)
    sums = [sum(_by_statement(trial, counting, rows[:length])) for length in range(1, len(rows) + 1)]
    expected = next((length for length, total in enumerate(sums, 1) if total >= needed), None)
    assert counting.prefix(np.array(rows, np.int64), needed) == expected


@given(st.integers(0, 1 << 32))
def test_all_nodes_at_once_are_counted_as_the_statement_counts_them(seed: int) -> None:
    trial, rng = trial_of(Scene(seed).cluster()), random.Random(seed)
    counting = _counting(trial)
    gone = trial.residents.is_filled() & np.array([rng.random() < 0.6 for _ in trial.residents.is_filled()])
    expected = _by_statement(trial, counting, np.flatnonzero(gone).tolist())
    before = trial.statement.table.free.tolist()
    assert counting.without(gone).tolist() == expected
    assert trial.statement.table.free.tolist() == before


@pytest.mark.parametrize(
    ("objects", "is_odd"),
    [
        ([running("x", "a", "n1", gpus=1)], False),
        ([device("g", "n1", x=NANO // 2), sharing("x", "a", "n1", "g", NANO // 2)], False),
        ([device("g", "n1"), sharing("x", "a", "n1", "g", NANO // 2)], True),
        ([device("g", "n1", x=NANO), sharing("x", "a", "n1", "g", NANO // 2)], False),
        ([sharing("x", "a", "n1", "g", NANO // 2)], True),
    ],
    ids=["whole", "shared", "not in the book", "more in the book", "no reservation"],
)
def test_what_a_book_does_not_say_is_counted_by_the_statement(objects: list[Any], is_odd: bool) -> None:
    trial = trial_of(cluster(node("n1", 1), queue("a"), *objects, waiting("mine", "a", gpus=1)))
    counting = _counting(trial)
    (row,) = (row for row, unit in enumerate(trial.residents.residents) if unit)
    assert counting.tenants.odd.tolist() == [is_odd]
    assert [counting.count(0, frozenset((row,)))] == _by_statement(trial, counting, [row])
    assert counting.without(trial.residents.is_filled()).tolist() == _by_statement(trial, counting, [row])
