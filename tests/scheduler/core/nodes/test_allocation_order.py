"""Of two claims it is known which was allocated first, or neither is taken for the first."""

from __future__ import annotations

import pytest

from scheduler.core.convert.resource_claims import resource_claim_record
from scheduler.core.nodes.resource_claims import AllocationOrder
from tests.scheduler.core.nodes.claiming import claimed


def _put(order: AllocationOrder, name: str, device: str = "d0", rv: str = "1") -> None:
    record = resource_claim_record(claimed(name, on=("a", device) if device else None, rv=rv))
    order.put(record, record.allocation.results if record.allocation is not None else ())


def _later(order: AllocationOrder) -> tuple[bool, bool]:
    """Whether x is surely later than y, and y later than x."""
    return order.is_later("uid-x", "uid-y"), order.is_later("uid-y", "uid-x")


def test_a_watch_shows_the_order_of_writes_and_later_writes_of_a_claim_change_nothing() -> None:
    order = AllocationOrder()
    for name, device, rv in (("x", "", "1"), ("y", "", "2"), ("x", "d0", "3"), ("y", "d0", "4"), ("x", "d0", "9")):
        _put(order, name, device, rv)
    assert _later(order) == (False, True)


def test_of_listed_claims_none_is_surely_later() -> None:
    order = AllocationOrder()
    with order.listing():
        _put(order, "x", rv="3")
        _put(order, "y", rv="4")
    assert _later(order) == (False, False)


def test_what_a_watch_shows_is_later_than_what_was_listed() -> None:
    order = AllocationOrder()
    with order.listing():
        _put(order, "x", rv="3")
        _put(order, "y", "", rv="3")
    _put(order, "y", rv="4")
    assert _later(order) == (False, True)


def test_a_claim_that_comes_with_an_allocation_may_have_had_it_for_long() -> None:
    order = AllocationOrder()
    with order.listing():
        _put(order, "x", rv="3")
    _put(order, "y", rv="4")
    assert _later(order) == (False, False)


def test_other_devices_are_another_allocation() -> None:
    order = AllocationOrder()
    for name, device, rv in (("x", "", "1"), ("y", "", "2"), ("x", "d0", "3"), ("y", "d0", "4"), ("x", "d1", "9")):
        _put(order, name, device, rv)
    assert _later(order) == (True, False)


@pytest.mark.parametrize("is_forgotten", [True, False])
def test_a_claim_that_is_gone_or_has_given_back_has_no_place_in_the_order(is_forgotten: bool) -> None:
    order = AllocationOrder()
    for name, device, rv in (("x", "", "1"), ("y", "", "2"), ("x", "d0", "3"), ("y", "d0", "4")):
        _put(order, name, device, rv)
    if is_forgotten:
        order.forget("uid-y")
    else:
        _put(order, "y", "", "5")
    assert _later(order) == (False, False)


def test_versions_that_are_no_numbers_have_no_order() -> None:
    order = AllocationOrder()
    for name, device, rv in (("x", "", "a"), ("y", "", "b"), ("x", "d0", "c"), ("y", "d0", "d")):
        _put(order, name, device, rv)
    assert _later(order) == (False, False)
