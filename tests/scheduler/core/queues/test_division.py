from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.quota import UNLIMITED
from scheduler.core.queues.fair_share import Sibling, divide
from tests.scheduler.core.queues import reference
from tests.scheduler.core.queues.reference import Asker

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
    total, k_milli = rng.randint(0, 20) * NANO, rng.choice([0, 500, 1000, 2000])
    expected = reference.shares(total, [asker for _, asker in both], unit=unit, k=Fraction(k_milli, 1000))
    left = divide(total, [one for one, _ in both], unit=unit, k_milli=k_milli)
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
