"""Sums of what stands below a queue, whether the judged queue is among the stored ones or not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from admission.objects.queue import NOTHING, Amount, Others, amount, quota
from tests.admission.objects.queues import gpus, queue
from wire.crds.queue import Queue

_NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
_QUOTAS = st.sampled_from([0.0, 0.1, 0.2, 1.5, -1.0, -7.0])
_QUEUES = st.lists(
    st.builds(
        lambda name, parent, held, is_leaving: queue(name, parent, resources=gpus(held), is_leaving=is_leaving),
        _NAMES,
        st.one_of(st.just(""), _NAMES),
        _QUOTAS,
        st.booleans(),
    ),
    unique_by=lambda each: each.metadata.name,
)


@given(_QUEUES, _NAMES, _NAMES)
def test_a_sum_is_that_of_the_children_without_the_one_that_is_left_out(
    queues: list[Queue], parent: str, besides: str
) -> None:
    expected = NOTHING
    for each in queues:
        is_child = each.spec.parent_queue == parent and not each.metadata.deletion_timestamp
        if is_child and each.metadata.name != besides:
            expected += quota(each, "gpu")
    others = Others(queues)
    assert others.quota_below(parent, "gpu", besides=besides) == expected
    assert others.quota_below(parent, "gpu", besides=besides) == expected, "asked again"


def test_children_are_told_by_name_without_those_that_are_being_deleted() -> None:
    others = Others([queue("c", "top"), queue("b", "top", is_leaving=True), queue("a", "top"), queue("top", "top")])
    assert [each.metadata.name for each in others.below("top")] == ["a", "c"]
    assert others.below("a") == others.below("") == []


def test_amounts_are_the_decimals_that_they_print_as() -> None:
    assert not (amount(0.1) + amount(0.2)).exceeds(amount(0.3))
    assert amount(0.30000001).exceeds(amount(0.3))
    assert [amount(value).text() for value in (None, 8.0, 0.25, 1e30, -1.0, -2.0)] == [
        "0",
        "8",
        "0.25",
        "1" + "0" * 30,
        "unlimited",
        "0",
    ]


def test_nothing_exceeds_what_is_unlimited_and_it_exceeds_all_else() -> None:
    unlimited = amount(-1)
    assert not unlimited.exceeds(unlimited)
    assert not amount(1e300).exceeds(unlimited)
    assert unlimited.exceeds(amount(1e300))
    assert (unlimited + amount(1) - unlimited) == Amount(amount(1).finite)
