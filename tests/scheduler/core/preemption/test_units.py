"""Bound pods as units: surplus one by one, then the core."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from typing import Any, NoReturn

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from scheduler.core.cluster import Cluster
from scheduler.core.groups.quorum import Surplus
from scheduler.core.model.preemption import Kept
from scheduler.core.preemption.trial import Trial
from scheduler.core.preemption.victim_table import ResidentTable
from scheduler.core.preemption.victim_units import Columns, residents
from tests.scheduler.core.objects import changed, cluster, ended, feed, node, pod, pod_group, queue, reservation
from tests.scheduler.core.preemption.scenes import NOON_S, at, running, trial_of, waiting
from wire import names

_QUEUES = (queue("top", gpu=(-1, 1, -1)), queue("a", "top", gpu=(-1, 1, -1)))


def _found(*objects: Any, **given: Any) -> Any:
    return residents(trial_of(cluster(node("n1", 64), *_QUEUES, *objects), **given))


def _units(*objects: Any, **given: Any) -> list[tuple[list[str], bool]]:
    found = _found(*objects, **given).units
    return [([uid.removeprefix("uid-") for uid in unit.unit.pods], unit.is_core) for unit in found]


def _gang(count: int, **asked: Any) -> list[Any]:
    return [running(f"m{at}", "a", "n1", age_s=600 - at, gpus=1, group="g", **asked) for at in range(count)]


@pytest.mark.parametrize(
    ("minimum", "units"),
    [
        (1, [(["m3"], False), (["m2"], False), (["m1"], False), (["m0"], True)]),
        (3, [(["m3"], False), (["m0", "m1", "m2"], True)]),
        (4, [(["m0", "m1", "m2", "m3"], True)]),
        (0, [(["m3"], False), (["m2"], False), (["m1"], False), (["m0"], False)]),
    ],
)
def test_above_the_minimum_pods_go_one_by_one_the_last_first_and_then_the_core(
    minimum: int, units: list[tuple[list[str], bool]]
) -> None:
    assert _units(pod_group("g", minimum, queue="a"), *_gang(4)) == units


class _NotRead(frozenset[str]):
    """A set that is only asked whether it has a pod: it may have thousands, and groups are read one by one."""

    @override
    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all of them were read")

    @override
    def __or__(self, other: object) -> NoReturn:
        raise AssertionError("all of them were read")


def test_for_one_group_not_all_pods_are_read_that_are_taken_or_leave() -> None:
    objects = [*_gang(2), running("p", "a", "n1", gpus=1), running("q", "a", "n1", gpus=1)]
    units = _units(*objects, taken=_NotRead({"uid-p", "uid-m0"}), leaving=_NotRead({"uid-q"}))
    assert units == [(["m1"], True)]


def test_of_a_gang_that_runs_below_its_minimum_all_is_core() -> None:
    assert _units(pod_group("g", 5, queue="a"), *_gang(3)) == [(["m0", "m1", "m2"], True)]


def test_a_pod_alone_is_a_core_and_so_is_one_whose_pod_group_is_not_there() -> None:
    alone = running("p", "a", "n1", gpus=1)
    assert _units(alone, *_gang(2)) == [(["p"], True), (["m0"], True), (["m1"], True)]


def test_of_subgroups_the_pod_goes_first_that_would_have_come_last() -> None:
    parts = [{"name": "x", "minMember": 1}, {"name": "y", "minMember": 2}]
    members = [
        running(f"{part}{at}", "a", "n1", age_s=600 - at, gpus=1, group="g", subgroup=part)
        for part in "xy"
        for at in range(3)
    ]
    units = _units(pod_group("g", queue="a", subGroups=parts), *members)
    assert units == [(["x2"], False), (["y2"], False), (["x1"], False), (["x0", "y0", "y1"], True)]


def test_a_subgroup_has_surplus_while_another_one_lacks_a_member() -> None:
    parts = [{"name": "head", "minMember": 1}, {"name": "workers", "minMember": 2}]
    members = _gang(4, subgroup="workers")
    for minimum, surplus in ((None, 2), (3, 2), (4, 1), (6, 0)):
        units = _units(pod_group("g", minimum, queue="a", subGroups=parts), *members)
        assert [len(pods) for pods, is_core in units if not is_core] == [1] * surplus


def test_a_whole_subgroup_is_surplus_where_the_gang_needs_fewer() -> None:
    parts = [{"name": part, "minMember": 1} for part in "xy"]
    members = [running(part, "a", "n1", gpus=1, group="g", subgroup=part) for part in "xy"]
    units = _units(pod_group("g", queue="a", subGroups=parts, minSubGroup=1), *members)
    assert units == [(["y"], False), (["x"], True)]


def test_members_that_have_succeeded_count_for_the_minimum() -> None:
    done = pod("done", group="g", labels={names.QUEUE_LABEL: "a"}, bound_to="n1")
    units = _units(pod_group("g", 3, queue="a"), *_gang(3), done, ended(done, at="2026-01-01T12:00:00Z"))
    assert units == [(["m2"], False), (["m0", "m1"], True)]


@pytest.mark.parametrize(
    ("kept", "objects"),
    [
        ([], [reservation("x", "n1", book={})]),
        ([], [pod("other", gpus=1, bound_to="n1", scheduler="default-scheduler")]),
        ([], [pod("waits", gpus=1, labels={names.QUEUE_LABEL: "a"})]),
        ([], [running("p", "gone", "n1", gpus=1)]),
        ([], [running("p", "top", "n1", gpus=1)]),
        ([Kept.BUSY], [running("p", "a", "n1", gpus=1, deleting=True)]),
        ([Kept.NOT_PREEMPTIBLE], [running("p", "a", "n1", gpus=1, priority=100)]),
        ([Kept.NOT_PREEMPTIBLE] * 2, [pod_group("g", 2, queue="a", preemptibility="non-preemptible"), *_gang(2)]),
    ],
    ids=["reservation", "of others", "waits", "no queue", "queue above", "terminating", "fixed", "fixed gang"],
)
def test_some_pods_are_no_units(kept: list[Kept], objects: list[Any]) -> None:
    found = _found(*objects)
    assert (found.units, [why for why, *_ in found.kept]) == ([], kept)


def test_a_gang_that_is_starting_is_left_alone() -> None:
    made = cluster(node("n1", 64), *_QUEUES, pod_group("g", 3, queue="a"), *_gang(2))
    plan = made.decide(0)
    assert not plan.entries
    late = pod("late", gpus=1, group="g", labels={names.QUEUE_LABEL: "a"})
    made.upsert_pod(late)
    for entry in made.decide(0).entries:
        if hasattr(entry, "placement"):
            made.commits.assume(entry.placement)
    found = residents(trial_of(made))
    assert (found.units, {why for why, *_ in found.kept}) == ([], {Kept.BUSY})


def test_pods_that_another_nomination_takes_are_as_good_as_gone() -> None:
    found = _found(pod_group("g", 1, queue="a"), *_gang(3), taken={"uid-m2"})
    assert [unit.unit.pods for unit in found.units] == [("uid-m1",), ("uid-m0",)]
    assert [(why, record.uid) for why, _, record, _ in found.kept] == [(Kept.BUSY, "uid-m2")]


@pytest.mark.parametrize("minimum", [1, 3])
def test_a_member_that_can_not_be_preempted_keeps_no_other_member(minimum: int) -> None:
    members = [*_gang(2), running("m9", "a", "n1", age_s=1, gpus=1, group="g", priority=100)]
    found = _found(pod_group("g", minimum, queue="a"), *members)
    assert [(unit.unit.pods, unit.is_core, unit.owner) for unit in found.units] == [
        (("uid-m0",), True, "pg-g"),
        (("uid-m1",), True, "pg-g"),
    ]
    assert [(why, record.uid) for why, _, record, _ in found.kept] == [(Kept.NOT_PREEMPTIBLE, "uid-m9")]


def test_a_gang_is_as_old_as_its_minimum() -> None:
    units = _found(pod_group("g", 2, queue="a"), *_gang(4)).units
    assert {unit.started_s for unit in units} == {NOON_S - 599}
    assert {(unit.owner, unit.unit.queue) for unit in units} == {("pg-g", "a")}


def test_a_core_names_its_surplus() -> None:
    *surplus, core = _found(pod_group("g", 1, queue="a"), *_gang(3)).units
    assert core.chain == tuple(surplus)
    assert all(not unit.chain for unit in surplus)


@given(st.lists(st.sampled_from("xyz"), min_size=1, max_size=8), st.integers(0, 6), st.integers(0, 2))
def test_without_its_surplus_a_gang_has_its_minimum_and_not_one_pod_more(
    parts: list[str], minimum: int, least: int
) -> None:
    subgroups = [{"name": part, "minMember": least} for part in "xy"]
    group = pod_group("g", minimum, queue="a", subGroups=subgroups)
    members = [
        running(f"m{at}", "a", "n1", gpus=1, group="g", subgroup=part if part in "xy" else "")
        for at, part in enumerate(parts)
    ]
    trial = trial_of(cluster(node("n1", 64), *_QUEUES, group, *members))
    record = trial.pod_groups["ns", "g"]
    found = residents(trial).units
    core = [pod for unit in found if unit.is_core for pod in unit.pods]
    counts = [sum(pod.subgroup == part for pod in core) for part in "xy"]
    there = [sum(part == name for part in parts) for name in "xy"]
    lacking = sum(max(0, least - count) for count in there)
    assert counts == [min(least, count) for count in there] or sum(counts) > sum(min(least, count) for count in there)
    assert len(core) == min(len(parts), max(minimum - lacking, sum(min(least, count) for count in there)))
    assert sum(len(unit.pods) for unit in found) == len(parts)
    assert isinstance(Surplus(record, {}, core), Surplus)


# Units as arrays: as if all had been read again.

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


# Arrays of equal length.


def test_rows_are_used_again_and_grow_as_needed() -> None:
    columns = Columns({"x": np.int64})
    rows = [columns.put(x=number) for number in range(200)]
    assert sorted(rows) == list(range(200))
    assert [int(columns.of["x"][row]) for row in rows] == list(range(200))
    columns.drop(rows[7])
    assert columns.put(x=5) == rows[7]
