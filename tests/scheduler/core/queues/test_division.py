"""Steps on record are those that made the shares: their sums, and nothing else, are the result."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.quota import UNLIMITED, QueueRecord, Resources
from scheduler.core.queues.fair_share import (
    TOP,
    DivisionRecord,
    Divisions,
    Records,
    Sibling,
    Step,
    StepKind,
    allocatable,
    divide,
    fair_shares,
    use_by_number,
)
from scheduler.core.queues.tree import Tree
from scheduler.core.queues.use_over_time import NOT_COUNTED, UseOverTime
from tests.scheduler.core.queues import reference
from tests.scheduler.core.queues.reference import Asker
from tests.whole import seeds

NANO = 10**9
MILLION = 10**6


def sibling(
    name: str, asked: float, *, quota: float = 0, limit: float = -1, weight: float = 1, priority: int = 100
) -> Sibling:
    """A queue that asks for GPUs."""
    return Sibling(
        quota=UNLIMITED if quota < 0 else round(quota * NANO),
        limit=UNLIMITED if limit < 0 else round(limit * NANO),
        weight=round(weight * MILLION),
        priority=priority,
        asked=round(asked * NANO),
        age=("", name),
    )


def shares(gpus: int, *siblings: Sibling) -> dict[str, float]:
    """What each gets, in GPUs; "left": what nobody gets."""
    left = divide(gpus * NANO, siblings, unit=NANO)
    return {each.age[1]: each.fair / NANO for each in siblings} | {"left": left / NANO}


@pytest.mark.parametrize(
    ("gpus", "siblings", "expected"),
    [
        (8, [sibling("a", 9), sibling("b", 9, weight=3)], {"a": 2, "b": 6, "left": 0}),
        (9, [sibling("a", 9, quota=3), sibling("b", 2, quota=4)], {"a": 7, "b": 2, "left": 0}),
        (8, [sibling("a", 3), sibling("b", 3)], {"a": 3, "b": 3, "left": 2}),
        (4, [sibling("a", 9, quota=4), sibling("b", 9, quota=4)], {"a": 4, "b": 4, "left": 0}),
        (8, [sibling("a", 9, limit=2), sibling("b", 9)], {"a": 2, "b": 6, "left": 0}),
        (8, [sibling("a", 9, weight=0), sibling("b", 3)], {"a": 0, "b": 3, "left": 5}),
        (8, [sibling("a", 9, quota=1, weight=0), sibling("b", 9)], {"a": 1, "b": 7, "left": 0}),
        (8, [sibling("a", 9, quota=-1), sibling("b", 9, quota=2)], {"a": 8, "b": 2, "left": 0}),
        (5, [sibling("a", 9), sibling("b", 9)], {"a": 3, "b": 2, "left": 0}),
        (5, [sibling("b", 9), sibling("a", 9)], {"a": 3, "b": 2, "left": 0}),
        (6, [sibling("low", 9, weight=9), sibling("high", 4, priority=200)], {"low": 2, "high": 4, "left": 0}),
        (2, [sibling("a", 1.3), sibling("b", 0.7)], {"a": 1.3, "b": 0.7, "left": 0}),
        (3, [sibling("a", 1.3), sibling("b", 9)], {"a": 1.3, "b": 1.7, "left": 0}),
    ],
    ids=[
        "by weight",
        "quota first, the rest to who asks",
        "nobody gets more than it asks",
        "quotas above the total are given in full",
        "no more than the limit",
        "weight 0 gets nothing that is left",
        "weight 0 gets its quota",
        "a quota without end is the total",
        "the odd one goes to the older",
        "whatever their order",
        "priority before weight",
        "parts of a device are given where they are asked",
        "a remainder is given as far as there is any",
    ],
)
def test_siblings_divide(gpus: int, siblings: list[Sibling], expected: dict[str, float]) -> None:
    assert shares(gpus, *siblings) == expected


def test_who_lacks_a_part_of_a_device_is_not_given_a_whole_one() -> None:
    # KAI gives b a device for the 0.3 that it lacks, and a goes without.
    found = shares(2, sibling("a", 9, weight=4), sibling("b", 0.3, weight=0.1), sibling("c", 0.3, weight=0.1))
    assert found["b"] <= 0.3
    assert found["c"] <= 0.3
    assert sum(found.values()) == pytest.approx(2)


def test_what_was_used_over_time_counts_against_the_weight() -> None:
    busy, idle = sibling("busy", 9), sibling("idle", 9)
    busy.used_ppb = 500_000_000
    divide(8 * NANO, [busy, idle], unit=NANO)
    assert (busy.fair, idle.fair) == (3 * NANO, 5 * NANO)


def test_who_used_more_than_twice_its_weight_gets_nothing_that_is_left() -> None:
    busy, idle = sibling("busy", 9), sibling("idle", 2)
    busy.used_ppb = 1_000_000_000
    assert divide(8 * NANO, [busy, idle], unit=NANO) == 0
    assert (busy.fair, idle.fair) == (6 * NANO, 2 * NANO)


def random_siblings(rng: random.Random) -> list[tuple[Sibling, Asker]]:
    """The same queues in the product's form and in the reference's."""
    found = []
    for age in range(rng.randint(1, 8)):
        quota = rng.choice([None, 0, rng.randint(0, 6 * NANO), rng.randint(0, 6) * NANO])
        limit = rng.choice([None, None, rng.randint(0, 12) * NANO])
        weight = rng.choice([0, 1, 1, 2, 3, 7, rng.randint(1, 10**7) / MILLION])
        asked = rng.choice([0, rng.randint(0, 12) * NANO, rng.randint(0, 12 * NANO)])
        used = rng.choice([0, 0, rng.randint(0, 10**9)])
        priority = rng.choice([100, 100, 50, 200])
        micro = round(weight * MILLION)
        one = Sibling(
            quota=UNLIMITED if quota is None else quota,
            limit=UNLIMITED if limit is None else limit,
            weight=micro,
            priority=priority,
            asked=asked,
            age=("", f"{age:03}"),
            used_ppb=used,
        )
        found.append((one, Asker(quota, limit, Fraction(micro, MILLION), priority, asked, age, Fraction(used, 10**9))))
    return found


def compare(seed: int) -> None:
    rng = random.Random(seed)
    both, unit = random_siblings(rng), rng.choice([1, NANO])
    total, weight_milli = rng.randint(0, 20) * NANO, rng.choice([0, 500, 1000, 2000])
    expected = reference.shares(total, [asker for _, asker in both], unit=unit, k=Fraction(weight_milli, 1000))
    left = divide(total, [one for one, _ in both], unit=unit, weight_milli=weight_milli)
    assert [one.fair for one, _ in both] == expected, f"seed {seed}"
    assert left == max(0, total - sum(expected)), f"seed {seed}"


def test_it_equals_the_rounds_in_fractions() -> None:
    for seed in range(1_500):
        compare(seed)


@pytest.mark.thorough
def test_it_equals_the_rounds_in_fractions_on_many_trees() -> None:
    for seed in range(1_500, 20_000):
        compare(seed)


@given(st.integers(0, 10**9), st.randoms(use_true_random=False))
def test_the_order_of_the_queues_does_not_matter(seed: int, rng: random.Random) -> None:
    first = [one for one, _ in random_siblings(random.Random(seed))]
    second = [one for one, _ in random_siblings(random.Random(seed))]
    rng.shuffle(second)
    divide(20 * NANO, first, unit=NANO)
    divide(20 * NANO, second, unit=NANO)
    assert {one.age: one.fair for one in first} == {one.age: one.fair for one in second}


@given(st.integers(0, 10**9), st.integers(0, 30))
def test_nobody_gets_more_than_its_limit_or_its_request_and_nothing_is_lost(seed: int, gpus: int) -> None:
    siblings = [one for one, _ in random_siblings(random.Random(seed))]
    left = divide(gpus * NANO, siblings, unit=NANO)
    quotas = sum(min(gpus * NANO if one.quota >= UNLIMITED else one.quota, one.most) for one in siblings)
    assert all(one.fair <= min(one.limit, one.asked) for one in siblings)
    assert sum(one.fair for one in siblings) + left == max(gpus * NANO, quotas)


UNIT = 10**9
NO_END = 1 << 60


def division_record_sibling(
    name: str, asked: float, *, quota: int = 0, weight: int = 1, priority: int = 100
) -> Sibling:
    return Sibling(
        quota=quota * UNIT,
        limit=NO_END,
        weight=weight * 10**6,
        priority=priority,
        asked=round(asked * UNIT),
        age=("", name),
    )


def recorded(total: int, *siblings: Sibling) -> DivisionRecord:
    record = DivisionRecord()
    divide(total * UNIT, siblings, unit=UNIT, record=record)
    return record


def in_units(record: DivisionRecord) -> list[tuple[StepKind, int | None, int, tuple[int, ...]]]:
    return [
        (step.kind, step.priority, step.offered // UNIT, tuple(each // UNIT for each in step.given))
        for step in record.steps
    ]


def test_quotas_come_first_then_rounds_by_priority_then_what_they_cut_off() -> None:
    record = recorded(
        10,
        division_record_sibling("a", 2, quota=2),
        division_record_sibling("b", 9, quota=1),
        division_record_sibling("c", 9, weight=2),
        division_record_sibling("late", 9, priority=50),
    )
    assert in_units(record) == [
        (StepKind.QUOTA, None, 10, (2, 1, 0, 0)),
        (StepKind.ROUND, 100, 7, (0, 2, 4, 0)),
        (StepKind.ROUND, 50, 1, (0, 0, 0, 1)),
    ]
    assert (record.total, record.left) == (10 * UNIT, 0)


def test_a_unit_that_a_round_cuts_off_goes_to_the_largest_remainder() -> None:
    record = recorded(
        4, division_record_sibling("a", 9), division_record_sibling("b", 9), division_record_sibling("c", 9)
    )
    assert in_units(record) == [
        (StepKind.QUOTA, None, 4, (0, 0, 0)),
        (StepKind.ROUND, 100, 4, (1, 1, 1)),
        (StepKind.LEFTOVER, 100, 1, (1, 0, 0)),
    ]


@pytest.mark.parametrize(("total", "left"), [(9, 7), (1, 0)], ids=["nobody wants it", "quotas exceed it"])
def test_what_nobody_gets_is_on_record(total: int, left: int) -> None:
    record = recorded(total, division_record_sibling("a", 2, quota=2))
    assert (record.left, [step.given for step in record.steps]) == (left * UNIT, [(2 * UNIT,)])


def test_a_record_is_of_the_last_division_alone() -> None:
    record = DivisionRecord()
    for total in (4, 2):
        divide(total * UNIT, [division_record_sibling("a", 9)], unit=UNIT, record=record)
    assert record.steps == [
        Step(StepKind.QUOTA, None, 2 * UNIT, (0,)),
        Step(StepKind.ROUND, 100, 2 * UNIT, (2 * UNIT,)),
    ]


@pytest.mark.parametrize("seed", seeds(200))
def test_steps_add_up_to_the_shares_and_change_none(seed: int) -> None:
    rng = random.Random(seed)
    siblings = [
        division_record_sibling(
            f"q{at}",
            rng.choice([0, rng.randrange(20), rng.random() * 9]),
            quota=rng.randrange(5),
            weight=rng.randrange(4),
            priority=rng.choice([50, 100, 200]),
        )
        for at in range(rng.randrange(1, 9))
    ]
    total, record = rng.randrange(40) * UNIT, DivisionRecord()
    plain = [replace(each) for each in siblings]
    left = divide(total, plain, unit=UNIT)
    assert divide(total, siblings, unit=UNIT, record=record) == left == record.left
    assert siblings == plain
    sums = [sum(amounts) for amounts in zip(*(step.given for step in record.steps), strict=True)]
    assert sums == [each.fair for each in siblings]
    offered = total
    for step in record.steps:
        assert step.offered == max(0, offered)
        offered -= sum(step.given)


GPU = 10**9
EVEN = Resources(10**6, 10**6, 10**6)


def gpus(count: float) -> Resources:
    return Resources(gpu_nano=round(count * GPU))


def test_children_divide_what_their_parent_gets() -> None:
    tree = Tree(
        [
            QueueRecord(name="left", weight=EVEN),
            QueueRecord(name="right", weight=EVEN),
            QueueRecord(name="a", parent="left", weight=EVEN),
            QueueRecord(name="b", parent="left", weight=EVEN),
        ]
    )
    asked = {"left": gpus(12), "right": gpus(12), "a": gpus(6), "b": gpus(6)}
    fair = fair_shares(tree, gpus(8), [asked[queue.name] for queue in tree.queues])
    assert {queue.name: fair[queue.number].gpu_nano // GPU for queue in tree.queues} == {
        "left": 4,
        "right": 4,
        "a": 2,
        "b": 2,
    }


def test_what_queues_used_counts_for_all_above_them() -> None:
    tree = Tree([QueueRecord(name="top"), *(QueueRecord(name=name, parent="top") for name in "abc")])
    used = UseOverTime(of={"a": (1, 2, 4), "b": (6, 12, 24), "gone": (9, 9, 9)})
    found = dict(zip((queue.name for queue in tree.queues), use_by_number(tree, used), strict=True))
    assert found == {"top": (7, 14, 28), "a": (1, 2, 4), "b": (6, 12, 24), "c": (0, 0, 0)}


def test_each_dimension_is_divided_by_itself() -> None:
    tree = Tree([QueueRecord(name="a", weight=EVEN), QueueRecord(name="b", weight=EVEN)])
    asked = [Resources(1000, 0, 9 * GPU), Resources(9000, 70, 0)]
    assert fair_shares(tree, Resources(4000, 100, 8 * GPU), asked) == [
        Resources(1000, 0, 8 * GPU),
        Resources(3000, 70, 0),
    ]


def test_allocatable_is_the_share_or_the_quota_within_the_limit() -> None:
    record = QueueRecord(name="a", quota=Resources(10, 50, UNLIMITED), limit=Resources(100, 40, 7))
    queue = Tree([record]).queues[0]
    assert allocatable(queue, Resources(20, 0, 3)) == Resources(20, 40, 7)


def test_each_level_is_on_record_with_the_share_that_it_divides() -> None:
    tree = Tree(
        [
            QueueRecord(name="left", weight=EVEN),
            QueueRecord(name="right", weight=EVEN),
            QueueRecord(name="a", parent="left", weight=EVEN),
        ]
    )
    asked = {"left": gpus(3), "right": gpus(9), "a": gpus(3)}
    records = Records()
    fair_shares(tree, gpus(8), [asked[queue.name] for queue in tree.queues], records=records)
    left = tree.find("left")
    assert left is not None
    totals = {parent: [record.total for record in noted] for parent, noted in records.of.items()}
    assert totals == {TOP: [0, 0, 8 * GPU], left.number: [0, 0, 3 * GPU]}


@given(st.data())
def test_divisions_that_are_taken_over_equal_those_that_are_made_again(data: st.DataObject) -> None:
    few, many = st.integers(0, 4), st.integers(0, 100)
    names = ["top", "other", "a", "b", "c"]
    tree = Tree(
        QueueRecord(
            name=name,
            parent="top" if len(name) == 1 else "",
            quota=gpus(data.draw(few)),
            weight=Resources(gpu_nano=data.draw(st.integers(1, 4))),
        )
        for name in names
    )
    known, asked, total, used = Divisions(), [gpus(50)] * len(names), gpus(40), NOT_COUNTED
    for _ in range(6):
        match data.draw(st.sampled_from(["asked", "total", "used", "k"])):
            case "asked":
                asked[data.draw(st.integers(0, 4))] = gpus(data.draw(many))
            case "total":
                total = gpus(data.draw(many))
            case "used":
                name = data.draw(st.sampled_from(names))
                used = UseOverTime(of={name: (0, 0, data.draw(many) * 10**7)}, weight_milli=used.weight_milli)
            case _:
                used = UseOverTime(of=used.of, weight_milli=data.draw(many) * 100)
        fresh = fair_shares(tree, total, asked, used=used)
        assert fair_shares(tree, total, asked, used=used, known=known) == fresh
