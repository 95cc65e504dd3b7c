"""How many pods nodes hold once units are gone: as the statement counts them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.request import Ask, ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest, WholeAsk
from gpu.translation import Translation
from scheduler.core.model.preemption import Bound, NoRoom
from scheduler.core.preemption.capacity import Counting, slots
from scheduler.core.preemption.search import find_room
from scheduler.core.preemption.trial import Trial
from scheduler.core.preemption.victim_table import tenants
from tests.scheduler.core.objects import NANO, cluster, node, queue, recorded, reservation
from tests.scheduler.core.preemption.scenes import Scene, device, need_of, running, sharing, trial_of, waiting
from wire import names
from wire.core import Node, Pod


def _both(name: str, queue_name: str) -> Pod:
    """A pod that asks a whole GPU for one container and a part of another GPU for the other."""
    each = enumerate[tuple[Ask, ...]](((WholeAsk(),), (FractionAsk(NANO * 3 // 10),)))
    asking = (ContainerRequest(ContainerRef(ContainerKind.REGULAR, at, f"c{at}"), asks) for at, asks in each)
    asked = Translation(dialect="hami", request=GpuRequest(tuple(asking)))
    spec = {"containers": [{"name": "c0", "resources": {"limits": {names.GPU_RESOURCE: "1"}}}, {"name": "c1"}]}
    return recorded(asked, name, labels={names.QUEUE_LABEL: queue_name}, spec=spec)


_ASKED: tuple[dict[str, Any], ...] = (
    {"gpus": 1},
    {"gpus": 2},
    {"fraction": "0.5"},
    {"fraction": "0.3"},
    {"fraction": "0.7"},
    {"fraction": "0.4", "devices": 2},
    {"mem": 4096},
    {"cpu": "1"},
)


def _varied(seed: int) -> Trial:
    """A cluster with devices that are idle, or on their way back, as well; ``mine`` asks one of many things.

    Some nodes take no shares any more, as the device plugin now offers each GPU several times, or nothing at all.
    """
    scene, rng = Scene(seed), random.Random(seed)
    made = list[Any]()
    for each in scene.objects:
        if isinstance(each, Node):
            name, gpus = each.metadata.name, int((each.status.allocatable or {})[names.GPU_RESOURCE])
            idle, leaving = rng.choice([0, 0, 1, 2]), rng.choice([0, 0, 0, 1])
            labels = rng.choice([None, None, None, {names.NODE_GPU_REPLICAS: "2"}])
            made.append(node(name, gpus + idle + leaving, labels=labels, cordoned=rng.random() < 0.2))
            made += [device(f"idle-{name}-{at}", name) for at in range(idle)]
            made += [reservation(f"leaving-{name}-{at}", name, uuid="GPU-l", deleting=True) for at in range(leaving)]
        elif each.metadata.name != "mine" and (not isinstance(each, Pod) or each.spec.node_name):
            made.append(each)
    asked = rng.choice([*_ASKED, None])
    made.append(_both("mine", scene.leaves[0]) if asked is None else waiting("mine", scene.leaves[0], **asked))
    return trial_of(cluster(*made))


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
    trial, rng = _varied(seed), random.Random(seed)
    counting = _counting(trial)
    rows = [row for row, unit in enumerate(trial.residents.residents) if unit and rng.random() < 0.6]
    expected = _by_statement(trial, counting, rows)
    for position, count in enumerate(expected):
        assert counting.count(position, frozenset(rows)) == count
        for wanted in (count, count + 1) if counting.where[position] else ():
            lacks = counting.lacks(position, wanted)
            if lacks is not None:
                for row in rows:
                    held = counting.holds(row).get(position, [0] * len(lacks))
                    lacks = [lack - amount for lack, amount in zip(lacks, held, strict=True)]
                assert (max(lacks) <= 0) == (wanted == count)


@given(st.integers(0, 1 << 32))
def test_the_shortest_prefix_is_the_shortest_that_the_statement_counts(seed: int) -> None:
    trial, rng = _varied(seed), random.Random(seed)
    counting = _counting(trial)
    rows = [row for row, unit in enumerate(trial.residents.residents) if unit]
    rng.shuffle(rows)
    needed = sum(counting.here.tolist()) + rng.randint(1, 4)
    sums = [sum(_by_statement(trial, counting, rows[:length])) for length in range(1, len(rows) + 1)]
    expected = next((length for length, total in enumerate(sums, 1) if total >= needed), None)
    assert counting.prefix(np.array(rows, np.int64), needed) == expected


@given(st.integers(0, 1 << 32))
def test_all_nodes_at_once_are_counted_as_the_statement_counts_them(seed: int) -> None:
    trial, rng = _varied(seed), random.Random(seed)
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


@pytest.mark.parametrize(("asked", "count"), [({"fraction": "0.7"}, 2), ({"fraction": "0.5"}, 4), ({"gpus": 1}, 2)])
def test_a_gpu_of_an_idle_reservation_is_counted_once(asked: dict[str, Any], count: int) -> None:
    full = device("g", "n1", x=NANO), sharing("x", "a", "n1", "g", NANO)
    trial = trial_of(cluster(node("n1", 3), queue("a"), device("idle", "n1"), *full, waiting("mine", "a", **asked)))
    counting = _counting(trial)
    assert (counting.here.tolist(), counting.count(0, frozenset())) == ([count], count)


def test_where_no_node_is_left_the_pods_that_were_bound_to_them_hold_nothing() -> None:
    asked = queue("a", gpu=(1, 1, -1)), waiting("mine", "a", gpus=1, priority=75)
    trial = trial_of(cluster(*asked, running("x", "a", "gone", gpus=1, priority=50)))
    assert _counting(trial).without(trial.residents.is_filled()).tolist() == []
    assert find_room(need_of(trial, "mine"), trial) == NoRoom(bound=Bound.NODES)


def test_tenants_are_read_again_once_a_change_stands_that_did_not() -> None:
    half = NANO // 2
    shared = device("g", "n1", x=half, y=half), sharing("x", "a", "n1", "g", half), sharing("y", "a", "n1", "g", half)
    trial = trial_of(cluster(node("n1", 2), queue("a"), *shared, waiting("mine", "a", gpus=1)))
    trial.residents.refresh(trial)

    def free() -> list[int]:
        found = trial.tenants_read.of(trial, trial.residents)
        assert found.devices == tenants(trial, trial.residents).devices
        return [each.free_nano for each in found.devices]

    before, mark = trial.tenants_read.of(trial, trial.residents), trial.statement.checkpoint()
    assert free() == [0]
    trial.statement.evict(trial.pods.records["uid-x"])
    trial.statement.rollback(mark)
    assert trial.tenants_read.of(trial, trial.residents) is before
    trial.statement.evict(trial.pods.records["uid-x"])
    assert free() == [half]
    trial.statement.rollback(mark)
    assert free() == [0]
    trial.residents.mark(trial.pods.records["uid-y"])
    trial.residents.refresh(trial)
    assert trial.tenants_read.of(trial, trial.residents) is not before
    assert free() == [0]
