"""Explanations take a tenth of the time, over long, and no two slices follow each other at once."""

from __future__ import annotations

import anyio
import pytest

from tests.conftest import AnyioBackend
from ui.explain.turns import Budget


@pytest.fixture(scope="module")
def anyio_backend(virtual_anyio_backend: AnyioBackend) -> AnyioBackend:
    return virtual_anyio_backend


class Work:
    """A clock of CPU time that moves when work is done."""

    def __init__(self) -> None:
        self.done_s = 0.0

    def __call__(self) -> float:
        return self.done_s


async def spent(budget: Budget, work: Work, slice_s: float, until_s: float) -> float:
    """Do as much as may be done until then."""
    began, until = work.done_s, anyio.current_time() + until_s
    while True:
        await anyio.sleep_until(min(until, budget.begins_at()))
        if anyio.current_time() >= until:
            return work.done_s - began
        with budget.slice():
            work.done_s += slice_s


async def test_after_a_slice_as_much_time_passes_as_it_took() -> None:
    work = Work()
    assert await spent(Budget(worked_s=work), work, 0.1, 1.0) == pytest.approx(1.0, abs=0.11)
    budget, began = Budget(worked_s=work), anyio.current_time()
    with budget.slice():
        work.done_s += 0.25
    assert budget.begins_at() == pytest.approx(began + 0.25)


async def test_over_long_it_is_a_tenth_of_the_time_and_what_was_saved() -> None:
    work = Work()
    budget = Budget(worked_s=work)
    assert await spent(budget, work, 0.02, 1_000.0) == pytest.approx(100 + 2, abs=0.1)


async def test_what_is_saved_has_a_bound() -> None:
    work = Work()
    budget = Budget(worked_s=work)
    await spent(budget, work, 0.02, 100.0)
    await anyio.sleep(10_000)
    assert await spent(budget, work, 0.02, 100.0) == pytest.approx(10 + 2, abs=0.1)
