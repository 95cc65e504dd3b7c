"""Work in steps has the result that it has at once."""

from __future__ import annotations

from scheduler.core.model.steps import Steps, ended


def _sum(numbers: list[int], done: list[int]) -> Steps[int]:
    for number in numbers:
        done.append(number)
        yield number
    return sum(numbers)


def test_all_steps_are_done_and_the_result_is_returned() -> None:
    done: list[int] = []
    assert ended(_sum([3, 4], done)) == 7
    assert done == [3, 4]


def test_work_that_is_given_up_goes_no_further() -> None:
    done: list[int] = []
    steps = _sum([3, 4], done)
    assert next(steps) == 3
    steps.close()
    assert done == [3]
