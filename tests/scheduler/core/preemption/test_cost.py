"""What victims cost."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.model.quota import NOTHING, Resources
from scheduler.core.preemption.victim_units import Cost, Pricing, Resident, residents
from tests.scheduler.core.objects import NANO, cluster, node, queue
from tests.scheduler.core.preemption.scenes import NOON_S, running, trial_of

_TOTAL = Resources(64_000, 512, 8 * NANO)


@pytest.mark.parametrize(
    ("amounts", "total", "weight"),
    [
        (Resources(0, 0, NANO), _TOTAL, NANO),
        (Resources(32_000, 0, NANO), _TOTAL, 4 * NANO),
        (Resources(0, 128, NANO // 2), _TOTAL, 2 * NANO),
        (Resources(16_000, 0, 0), Resources(64_000, 512, 0), NANO // 4),
        (Resources(1, 1, 0), NOTHING, 0),
    ],
    ids=["gpu", "cpu", "memory", "no gpus", "nothing to divide"],
)
def test_a_pod_weighs_as_much_as_the_largest_part_it_has_of_anything(
    amounts: Resources, total: Resources, weight: int
) -> None:
    assert Pricing(total, NOON_S).weight_nano(amounts) == weight


def _residents(*objects: Any) -> list[Resident]:
    return residents(trial_of(cluster(node("n1", 8), queue("a", gpu=(-1, 1, -1)), *objects))).units


def test_what_is_lost_is_weight_times_time() -> None:
    units = _residents(running("p", "a", "n1", gpus=2, age_s=100, priority=7), running("q", "a", "n1", gpus=1, age_s=5))
    pricing = Pricing(_TOTAL, NOON_S)
    assert [pricing.loss(unit) for unit in units] == [200 * NANO, 5 * NANO]
    assert pricing.cost(units) == Cost(7, 205 * NANO, 2, ("uid-p", "uid-q"))
    assert pricing.cost([]) < pricing.cost(units[1:])


@pytest.mark.parametrize("before_s", [100, 1_000], ids=["just begun", "a clock that went back"])
def test_work_costs_a_second_at_least_and_is_never_a_gain(before_s: int) -> None:
    (unit,) = _residents(running("p", "a", "n1", gpus=2, age_s=100))
    assert Pricing(_TOTAL, NOON_S - before_s).loss(unit) == 2 * NANO


def test_a_higher_priority_is_dearer_than_any_loss() -> None:
    high, low = _residents(
        running("p", "a", "n1", gpus=1, age_s=0, priority=8), running("q", "a", "n1", gpus=4, age_s=9_000, priority=7)
    )
    pricing = Pricing(_TOTAL, NOON_S)
    assert pricing.cost([low]) < pricing.cost([high])
