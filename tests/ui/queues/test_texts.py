from __future__ import annotations

import pytest

from scheduler.core.report.queue_view import Amounts
from ui.queues.tables import GPU, amount, named, requested, weight

CPU, MEMORY = 0, 1


@pytest.mark.parametrize(
    ("at", "value", "down", "up"),
    [
        (CPU, 1500, "1.5", "1.5"),
        (MEMORY, 549_755_813_888, "549.75", "549.76"),
        (GPU, 333_333_333, "0.33", "0.34"),
        (GPU, 2 * 10**9, "2", "2"),
        (GPU, -1, "unlimited", "unlimited"),
    ],
)
def test_amounts_are_told_to_two_places(at: int, value: int, down: str, up: str) -> None:
    assert (amount(at, value), amount(at, value, up=True)) == (down, up)


def test_one_is_no_plural() -> None:
    assert [named(GPU, count * 10**9) for count in (1, 2)] == ["1 GPU", "2 GPUs"]
    assert weight(2_500_000) == "2.5"


@pytest.mark.parametrize(
    ("asks", "expected"),
    [
        (Amounts(4000, 10**9, 10**9), "1 GPU"),
        (Amounts(4000, 10**9, 0), "4 cores, 1 GB of memory"),
        (Amounts(), "nothing"),
    ],
)
def test_a_workload_is_told_by_its_gpus(asks: Amounts, expected: str) -> None:
    assert requested(asks) == expected
