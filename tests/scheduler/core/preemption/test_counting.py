"""How many pods nodes hold once units are gone: as the statement counts them."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any
from weakref import ref

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.request import Ask, ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest, WholeAsk
from gpu.translation import Translation
from scheduler.core.model.preemption import Bound, NoVictims
from scheduler.core.model.quota import Resources
from scheduler.core.nodes.table import GPUS
from scheduler.core.preemption.candidates import least, reach, reaches_without
from scheduler.core.preemption.capacity import AS_MANY, Counting, KeptSlots, slots
from scheduler.core.preemption.search import find_victims
from scheduler.core.preemption.trial import Trial
from scheduler.core.preemption.victim_table import tenants
from tests.scheduler.core.objects import NANO, bound, cluster, node, pod, pod_group, queue, recorded, reservation
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
    assert find_victims(need_of(trial, "mine"), trial) == NoVictims(bound=Bound.NODES)


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


# No, and proven.


def _gang(minimum: int, *gpus: int, **group: Any) -> list[Any]:
    members = [waiting(f"w{at}", "a", gpus=count, group="mine") for at, count in enumerate(gpus)]
    return [queue("a"), pod_group("mine", minimum, queue="a", **group), *members]


@pytest.mark.parametrize(
    ("minimum", "gpus", "pods", "claim"),
    [
        (2, (1, 1, 1), {1: 2}, 2),
        (3, (1, 1, 2), {1: 2, 2: 1}, 4),
        (2, (1, 1, 2), {1: 1}, 2),
        (1, (1, 2, 3), {}, 1),
        (2, (4, 4, 4, 1), {4: 1}, 5),
    ],
)
def test_a_need_takes_no_less_however_its_members_are_chosen(
    minimum: int, gpus: tuple[int, ...], pods: dict[int, int], claim: int
) -> None:
    trial = trial_of(cluster(node("n1"), *_gang(minimum, *gpus)))
    found = least(need_of(trial, "mine"), trial)
    assert {cls.demand.gpus: count for cls, count in found.pods.items()} == pods
    assert found.claim == Resources(0, 0, claim * NANO)


@pytest.mark.parametrize(
    ("minimum", "gpus", "nodes", "reached"),
    [
        (2, (2, 2), (2, 2), True),
        (2, (2, 2), (3, 1), False),
        (2, (3, 1), (3, 1), True),
        (2, (3, 2), (3, 1), False),
        (3, (1, 1, 1), (1, 1), False),
    ],
)
def test_a_need_is_out_of_reach_where_nodes_have_too_few_slots_or_too_little_in_all(
    minimum: int, gpus: tuple[int, ...], nodes: tuple[int, ...], reached: bool
) -> None:
    there = [node(f"n{at}", count) for at, count in enumerate(nodes)]
    trial = trial_of(cluster(*there, *_gang(minimum, *gpus)))
    assert reach(trial, least(need_of(trial, "mine"), trial)) is reached


@pytest.mark.parametrize(
    ("shared", "tenants_of", "gpus", "reached"),
    [
        pytest.param(device("d", "n1"), 0, (3, 1), True, id="idle"),
        pytest.param(device("d", "n1"), 0, (3, 2), False, id="idle, and counted once"),
        pytest.param(reservation("d", "n1", uuid="GPU-d", deleting=True), 0, (3, 2), False, id="on its way back"),
        pytest.param(device("d", "n1", s=NANO // 2), 1, (3, 1), True, id="comes back with its tenant"),
        pytest.param(device("d", "n1", s=NANO // 2), 1, (3, 2), False, id="and no more than that"),
    ],
)
def test_a_shared_gpu_counts_once_without_all_that_may_go(
    shared: Pod, tenants_of: int, gpus: tuple[int, int], reached: bool
) -> None:
    there: list[Any] = [node("n1", 4), running("x", "a", "n1", gpus=3), shared]
    there += [sharing("s", "a", "n1", "d", NANO // 2)] * tenants_of
    trial = trial_of(cluster(*there, *_gang(2, *gpus)))
    trial.residents.refresh(trial)
    wanted = least(need_of(trial, "mine"), trial)
    gone = trial.residents.is_filled()
    assert reaches_without(trial, wanted, gone, tenants(trial, trial.residents)) is reached


def test_the_statement_is_left_as_it_was() -> None:
    trial = trial_of(cluster(node("n1", 2), running("x", "a", "n1", gpus=2), *_gang(2, 1, 1)))
    wanted, before = least(need_of(trial, "mine"), trial), trial.statement.table.free.tolist()
    assert not reach(trial, wanted)
    trial.residents.refresh(trial)
    assert reaches_without(trial, wanted, trial.residents.is_filled(), tenants(trial, trial.residents))
    assert trial.statement.table.free.tolist() == before


# How many pods a node holds at most.


def _slots(*objects: Any) -> list[int]:
    trial = trial_of(cluster(queue("a"), *objects))
    found: list[int] = slots(trial.statement, need_of(trial, "mine").pods[0].cls).tolist()
    return found


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"gpus": 2}, [3, 0]),
        ({"gpus": 2, "cpu": "30"}, [2, 0]),
        ({"cpu": "32"}, [2, 1]),
        ({"fraction": "0.3"}, [21, 0]),
        ({"fraction": "0.6", "devices": 2}, [3, 0]),
        ({"gpus": 1, "extended": {"example.com/none": "1"}}, [0, 0]),
        ({"gpus": 1, "spec": {"nodeSelector": {"zone": "x"}}}, [0, 0]),
    ],
    ids=["gpus", "cpu is short", "cpu", "parts", "two devices", "nobody has it", "elsewhere"],
)
def test_of_what_is_free_the_scarcest_counts(asked: dict[str, Any], found: list[int]) -> None:
    assert _slots(node("n1", 7), node("n2", 0, cpu="40"), waiting("mine", "a", **asked)) == found


def test_parts_of_devices_in_use_count_each_by_itself() -> None:
    shares = [device("g", "n1", x=NANO // 2), sharing("x", "a", "n1", "g", NANO // 2)]
    assert _slots(node("n1", 2), *shares, waiting("mine", "a", fraction="0.3")) == [4]


def test_gpus_that_idle_reservations_hold_count_as_free() -> None:
    assert _slots(node("n1", 2), reservation("g", "n1", book={}), waiting("mine", "a", gpus=2)) == [1]


def test_a_node_where_attempts_failed_is_out() -> None:
    trial = trial_of(cluster(queue("a"), node("n1", 1), node("n2", 1), pod("mine", gpus=1)))
    cls = need_of(trial, "mine").pods[0].cls
    out = msgspec.structs.replace(cls, excluded=frozenset({"n2"}))
    assert (slots(trial.statement, cls).tolist(), slots(trial.statement, out).tolist()) == ([1, 1], [1, 0])


@given(st.integers(0, 1 << 32))
def test_no_node_is_ever_given_more_pods_than_it_has_slots(seed: int) -> None:
    trial = trial_of(Scene(seed).cluster())
    need = need_of(trial, "mine")
    trial.statement.evict(
        *(record for record in trial.pods.records.values() if record.node and not record.is_reservation)
    )
    most = {cls: slots(trial.statement, cls).tolist() for cls in {pod.cls for pod in need.pods}}
    cls_of = {pod.uid: pod.cls for pod in need.pods}
    held = Counter((cls_of[place.pod_uid], place.node) for place in trial.paper.place(need) or ())
    for (cls, name), count in held.items():
        assert count <= most[cls][trial.statement.position_of[name]]


# What nodes hold of a class, kept while a statement changes: always what a new count says.

_NODES = 12


def _trial() -> Trial:
    pods = [running(f"p{at}-{gpu}", "a", f"n{at}", gpus=1, cpu="2") for at in range(_NODES) for gpu in range(at % 4)]
    shared = bound(pod("t", fraction="0.5"), "n0", ("g", NANO // 2), reservation="r-g", uuid="GPU-1")
    held = reservation("g", "n0", book={"uid-t": NANO // 2})
    asked = [waiting("whole", "a", gpus=2), waiting("part", "a", fraction="0.5"), waiting("cpu", "a", cpu="7")]
    return trial_of(cluster(*(node(f"n{at}", 4) for at in range(_NODES)), queue("a"), held, shared, *pods, *asked))


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_a_new_count_says_after_any_changes_that_stand_or_are_taken_back(seed: int) -> None:
    rng, trial = random.Random(seed), _trial()
    statement, kept = trial.statement, KeptSlots(trial.statement)
    classes = [trial.pods.records[f"uid-{name}"].cls for name in ("whole", "part", "cpu")]
    there = [each for each in trial.pods.records.values() if each.node]
    marks = [statement.checkpoint()]
    for _ in range(30):
        if rng.random() < 0.3:
            statement.rollback(marks.pop() if len(marks) > 1 else marks[0])
        elif there and rng.random() < 0.5:
            marks.append(statement.checkpoint())
            statement.evict(*rng.sample(there, 1 + (rng.random() < 0.2) * 5))
        else:
            fits = [at for at in range(_NODES) if statement.table.free[GPUS, at] > 0]
            if fits:
                filler = trial.pods.records["uid-whole"]
                demand = trial.pods.records["uid-p1-0"].cls.demand
                statement.place(rng.choice(fits), filler, demand)
        for cls in rng.sample(classes, 2):
            counted = slots(statement, cls)
            assert kept.of(cls).tolist() == counted.tolist()
            off = rng.sample(range(_NODES), 3)
            assert kept.besides(cls, off) == sum(n for at, n in enumerate(counted.tolist()) if at not in off)


def test_what_nobody_needs_is_summed_as_very_many() -> None:
    trial = trial_of(cluster(node("n0", 4), node("n1", 4), queue("a"), waiting("part", "a", fraction="0.0000001")))
    cls = trial.pods.records["uid-part"].cls
    assert KeptSlots(trial.statement).besides(cls, [0]) == min(AS_MANY, int(slots(trial.statement, cls)[1]))


def test_of_very_many_classes_those_are_kept_that_were_asked_for_last() -> None:
    asked = [waiting(f"w{number}", "a", cpu=f"{number + 1}m") for number in range(70)]
    trial = trial_of(cluster(node("n0", 4), node("n1", 4), queue("a"), *asked))
    kept, first, *others = KeptSlots(trial.statement), *(trial.pods.records[f"uid-w{at}"].cls for at in range(70))
    held, often = [ref(kept.of(cls)) for cls in others[:7]], kept.of(first)
    for cls in others[7:]:
        kept.of(cls)
        assert kept.of(first) is often
    assert [each() is None for each in held] == [True] * 6 + [False], "64 are kept"
    assert kept.of(others[0]).tolist() == slots(trial.statement, others[0]).tolist()
