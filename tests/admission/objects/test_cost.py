"""What a review costs grows with the bytes of the object and the number of queues, not faster."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from admission.objects.queue import Others
from admission.objects.review import ObjectAdmission
from tests.admission.objects.queues import Raw, beside, gpus, group_review, queue, queue_review, raw, raw_group
from tests.admission.test_every_cost import STEEP
from tests.calls import calls

TIMES, MORE = 100, 4


def _labels(times: int) -> tuple[Raw, Others]:
    made = raw("a")
    made["metadata"]["labels"] = {f"l{number}": "x" for number in range(times)}
    return made, beside()


def _children(times: int) -> tuple[Raw, Others]:
    return raw("a", resources=gpus(1)), beside(*(queue(f"c{n}", "a", resources=gpus(2)) for n in range(times)))


def _siblings(times: int) -> tuple[Raw, Others]:
    siblings = (queue(f"c{n}", "top", resources=gpus(0.1)) for n in range(times))
    return raw("a", "top", resources=gpus(1)), beside(queue("top", resources=gpus(5)), *siblings)


def _deep(times: int) -> tuple[Raw, Others]:
    return raw("a", "q0"), beside(*(queue(f"q{n}", f"q{n + 1}") for n in range(times)))


def _ring_above(times: int) -> tuple[Raw, Others]:
    return raw("a", "q0"), beside(*(queue(f"q{n}", f"q{(n + 1) % times}") for n in range(times)))


GROWN = (_labels, _children, _siblings, _deep, _ring_above)


@pytest.mark.parametrize("grown", GROWN, ids=lambda each: each.__name__)
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
def test_reviews_of_queues_cost_no_more_than_in_proportion(
    grown: Callable[[int], tuple[Raw, Others]], operation: str
) -> None:
    small, large = (_cost(*grown(times), operation) for times in (TIMES, TIMES * MORE))
    assert large <= STEEP * small


def test_a_queue_of_the_wrong_types_costs_no_more_than_in_proportion() -> None:
    small, large = (
        _cost(raw("a", resources={"gpu": ["x"] * times}), beside(), "CREATE") for times in (TIMES, TIMES * MORE)
    )
    assert large <= STEEP * small


def _cost(made: Raw, others: Others, operation: str) -> int:
    new, old = (None if operation == "DELETE" else made), (None if operation == "CREATE" else made)
    review, admission = queue_review(new, operation=operation, old=old), ObjectAdmission()
    return calls(lambda: admission.of_queue(review, others))


def _leaves(times: int) -> Raw:
    return raw_group(*({"name": f"l{number}"} for number in range(times)))


def _chain(times: int) -> Raw:
    named = ({"name": f"l{number}", "parent": f"l{number + 1}"} for number in range(times))
    return raw_group(*named, {"name": f"l{times}"})


def _ring(times: int) -> Raw:
    return raw_group(*({"name": f"l{number}", "parent": f"l{(number + 1) % times}"} for number in range(times)))


def _one_parent(times: int) -> Raw:
    return raw_group({"name": "top"}, *({"name": f"l{n}", "parent": "top", "minMember": 1} for n in range(times)))


@pytest.mark.parametrize("grown", [_leaves, _chain, _ring, _one_parent], ids=lambda each: each.__name__)
def test_reviews_of_groups_cost_no_more_than_in_proportion(grown: Callable[[int], Raw]) -> None:
    admission = ObjectAdmission()
    small, large = (group_review(grown(times)) for times in (TIMES, TIMES * MORE))
    assert calls(lambda: admission.of_group(large)) <= STEEP * calls(lambda: admission.of_group(small))
