"""Units as arrays: as if all had been read again."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.cluster import Cluster
from scheduler.core.preemption.trial import Trial
from scheduler.core.preemption.victim_table import ResidentTable
from scheduler.core.preemption.victim_units import residents
from tests.scheduler.core.objects import changed, cluster, feed, node, pod_group, queue
from tests.scheduler.core.preemption.scenes import NOON_S, at, running, trial_of, waiting

#: What leads to other rows.
_ROWS = {"core", "first_pod", "next"}


def _image(trial: Trial) -> Any:
    """What a table says of each unit, whatever its row, and of what is kept."""
    table = trial.residents
    table.refresh(trial)
    units = {}
    positions = table.positions(trial)
    for row, unit in enumerate(table.residents):
        if unit is None:
            continue
        pods = np.flatnonzero(table.pods.of["unit"] == row)
        columns = {name: int(column[row]) for name, column in table.units.of.items() if name not in _ROWS}
        core = table.residents[table.units.of["core"][row]] if table.units.of["core"][row] >= 0 else None
        surplus = [table.residents[other] for other in table.surplus_of(row)]
        units[unit.unit] = (
            columns,
            core.unit if core else None,
            [other.unit for other in surplus if other],
            unit.leaf.name,
            sorted(positions[pods].tolist()),
            sorted(table.demands(trial, range(5))[:, pods].T.tolist()),
            row in table.owned_by({unit.owner}),
            row in table.movable,
        )
    kept = {key: (count, table.kept_nano[key]) for key, count in table.kept.items() if count}
    return units, kept, int(table.is_filled().sum())


def _again(made: Cluster, **given: Any) -> Any:
    """The same, read from nothing."""
    made.residents = ResidentTable()
    return _image(trial_of(made, **given))


def _change(made: Cluster, rng: random.Random, names: list[str]) -> dict[str, Any]:
    """Something happens; return what other nominations take and what may be counted on from now on."""
    name, of = rng.choice(names), rng.choice("ab")
    group = rng.choice(["", "g", "h"])
    where, asked = rng.choice(["n1", "n2"]), {"gpus": rng.choice([1, 2]), "priority": rng.choice([50, 60, 100])}
    match rng.randrange(8):
        case 0 | 1:
            owner = rng.choice([None, ("apps/v1", "ReplicaSet")])  # only with an owner it may be moved
            feed(made, running(name, of, where, group=group, age_s=rng.randrange(9_000), owner=owner, **asked))
        case 2:
            made.remove_pod(f"uid-{name}")
        case 3:
            feed(made, pod_group(rng.choice("gh"), rng.randrange(3), queue=of))
        case 4:
            made.remove_pod_group("ns", rng.choice("gh"))
        case 5:
            feed(made, queue(rng.choice("ab"), gpu=(rng.randrange(4), 1, -1)))
        case 6:
            feed(made, waiting(name, of, group=group, **asked))
        case _:
            feed(made, node("n3")) if rng.random() < 0.5 else made.remove_node("n3")
    chosen = {f"uid-{each}" for each in names if rng.random() < 0.2}
    return {"taken": chosen} if rng.random() < 0.5 else {"leaving": chosen}


@given(st.integers(0, 1 << 32))
def test_after_any_events_the_table_is_as_if_all_had_been_read_again(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"p{number}" for number in range(6)]
    made = cluster(node("n1", 64), node("n2", 64), queue("a"), queue("b"))
    for _ in range(12):
        given_now = _change(made, rng, names)
        kept, found = made.residents, _image(trial_of(made, **given_now))
        assert found == _again(made, **given_now)
        units = residents(trial_of(made, **given_now)).units
        assert len(found[0]) == len(units)
        assert {unit.unit for unit in kept.movable.values()} == {unit.unit for unit in units if unit.may_move}
        made.residents = kept


def test_since_when_a_pod_runs_is_read_though_it_is_no_news() -> None:
    made = cluster(node("n1"), queue("a"), placed := running("p", "a", "n1", age_s=100))
    _image(trial_of(made))
    later = msgspec.structs.replace(placed.status, start_time=at(43_190))
    feed(made, changed(msgspec.structs.replace(placed, status=later)))
    ((columns, *_),) = _image(trial_of(made))[0].values()
    assert columns["started_s"] == NOON_S - 10


def test_a_queue_is_read_again_for_its_place_and_not_for_its_amounts() -> None:
    made = cluster(node("n1"), queue("top"), queue("a"), running("p", "a", "n1"))
    _image(trial_of(made))
    (before,) = (unit for unit in made.residents.residents if unit)
    feed(made, queue("a", gpu=(3, 2, 5)))
    _image(trial_of(made))
    assert [unit for unit in made.residents.residents if unit] == [before]
    feed(made, queue("a", "top"))
    _image(trial_of(made))
    (after,) = (unit for unit in made.residents.residents if unit)
    assert [len(before.leaf.path), len(after.leaf.path)] == [1, 2]


def test_a_pod_alone_takes_less_than_half_a_kibibyte() -> None:
    made = cluster(node("n1"), queue("a"), *(running(f"p{number}", "a", "n1") for number in range(1_000)))
    trial = trial_of(made)
    tracemalloc.start()
    trial.residents.refresh(trial)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert int(trial.residents.is_filled().sum()) == 1_000
    assert held < 1_000 * 512


@pytest.mark.parametrize("count", [4, 60])
def test_what_is_gone_is_kept_no_longer_though_nobody_searches(count: int) -> None:
    made = cluster(node("n1"), queue("a"), *(running(f"p{number}", "a", "n1") for number in range(count)))
    made.residents.refresh(trial_of(made))
    table = made.residents
    assert len(table.row_of) == count
    for number in range(count):
        made.remove_pod(f"uid-p{number}")
    assert not any(table.residents)
    assert not table.row_of
    assert len(table.units.of["leaf"]) == 16
    assert _image(trial_of(made)) == _again(made)
