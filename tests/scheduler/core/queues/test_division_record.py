"""Steps on record are those that made the shares: their sums, and nothing else, are the result."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from scheduler.core.queues.fair_share import DivisionRecord, Sibling, Step, StepKind, divide

UNIT = 10**9
NO_END = 1 << 60


def sibling(name: str, asked: float, *, quota: int = 0, weight: int = 1, priority: int = 100) -> Sibling:
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
        sibling("a", 2, quota=2),
        sibling("b", 9, quota=1),
        sibling("c", 9, weight=2),
        sibling("late", 9, priority=50),
    )
    assert in_units(record) == [
        (StepKind.QUOTA, None, 10, (2, 1, 0, 0)),
        (StepKind.ROUND, 100, 7, (0, 2, 4, 0)),
        (StepKind.ROUND, 50, 1, (0, 0, 0, 1)),
    ]
    assert (record.total, record.left) == (10 * UNIT, 0)


def test_a_unit_that_a_round_cuts_off_goes_to_the_largest_remainder() -> None:
    record = recorded(4, sibling("a", 9), sibling("b", 9), sibling("c", 9))
    assert in_units(record) == [
        (StepKind.QUOTA, None, 4, (0, 0, 0)),
        (StepKind.ROUND, 100, 4, (1, 1, 1)),
        (StepKind.LEFTOVER, 100, 1, (1, 0, 0)),
    ]


@pytest.mark.parametrize(("total", "left"), [(9, 7), (1, 0)], ids=["nobody wants it", "quotas exceed it"])
def test_what_nobody_gets_is_on_record(total: int, left: int) -> None:
    record = recorded(total, sibling("a", 2, quota=2))
    assert (record.left, [step.given for step in record.steps]) == (left * UNIT, [(2 * UNIT,)])


def test_a_record_is_of_the_last_division_alone() -> None:
    record = DivisionRecord()
    for total in (4, 2):
        divide(total * UNIT, [sibling("a", 9)], unit=UNIT, record=record)
    assert record.steps == [
        Step(StepKind.QUOTA, None, 2 * UNIT, (0,)),
        Step(StepKind.ROUND, 100, 2 * UNIT, (2 * UNIT,)),
    ]


@pytest.mark.parametrize("seed", range(200))
def test_steps_add_up_to_the_shares_and_change_none(seed: int) -> None:
    rng = random.Random(seed)
    siblings = [
        sibling(
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
