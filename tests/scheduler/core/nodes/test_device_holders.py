"""Of two claims with one device it is known which had it first, or neither is taken for the first."""

from __future__ import annotations

import msgspec
import pytest

from scheduler.core.convert.resource_claims import resource_claim_record
from scheduler.core.model.device_allocation import ResourceClaimRecord
from scheduler.core.nodes.device_holders import DeviceHolders
from tests.scheduler.core.nodes.claiming import claimed


def _put(holders: DeviceHolders, name: str, device: str = "d0", rv: str = "1") -> ResourceClaimRecord:
    record = resource_claim_record(claimed(name, on=("a", device) if device else None, rv=rv))
    holders.put(record, record.allocation.results if record.allocation is not None else ())
    return record


def test_a_watch_shows_the_order_of_writes_and_later_writes_of_a_claim_change_nothing() -> None:
    holders = DeviceHolders()
    _put(holders, "x", "", "1"), _put(holders, "y", "", "2")
    _put(holders, "x", rv="3")
    later = _put(holders, "y", rv="4")
    earlier = _put(holders, "x", rv="9")
    assert (holders.has_earlier(earlier), holders.has_earlier(later)) == (False, True)


def test_of_listed_claims_none_is_the_first() -> None:
    holders = DeviceHolders()
    with holders.listing():
        x, y = _put(holders, "x", rv="3"), _put(holders, "y", rv="4")
    assert (holders.has_earlier(x), holders.has_earlier(y)) == (True, True)


def test_what_a_watch_shows_is_later_than_what_was_listed() -> None:
    holders = DeviceHolders()
    with holders.listing():
        listed = _put(holders, "x", rv="3")
        _put(holders, "y", "", rv="3")
    watched = _put(holders, "y", rv="4")
    assert (holders.has_earlier(listed), holders.has_earlier(watched)) == (False, True)


def test_a_claim_that_comes_with_an_allocation_may_have_had_it_for_long() -> None:
    holders = DeviceHolders()
    with holders.listing():
        listed = _put(holders, "x", rv="3")
    new = _put(holders, "y", rv="4")
    assert (holders.has_earlier(listed), holders.has_earlier(new)) == (True, True)


@pytest.mark.parametrize("is_forgotten", [True, False])
def test_a_claim_that_is_gone_or_has_given_back_is_in_nobody_s_way(is_forgotten: bool) -> None:
    holders = DeviceHolders()
    x, y = _put(holders, "x"), _put(holders, "y")
    assert holders.has_earlier(y)
    if is_forgotten:
        holders.forget(x.uid)
    else:
        _put(holders, "x", "")
    assert not holders.has_earlier(y)


def test_other_devices_and_admin_access_are_in_nobody_s_way() -> None:
    holders = DeviceHolders()
    x = _put(holders, "x")
    assert x.allocation is not None
    y = _put(holders, "y", "d1")
    admin = msgspec.structs.replace(x.allocation.results[0], is_admin=True)
    holders.put(resource_claim_record(claimed("z")), [admin])
    assert (holders.has_earlier(x), holders.has_earlier(y)) == (False, False)


def test_parts_of_one_device_go_together_and_the_whole_of_it_with_none() -> None:
    holders = DeviceHolders()
    x = resource_claim_record(claimed("x", on=("a", "d0")))
    assert x.allocation is not None
    (whole,) = x.allocation.results
    part = msgspec.structs.replace(whole, consumed=(("memory", 1),))
    holders.put(x, [part])
    y = resource_claim_record(claimed("y"))
    holders.put(y, [part])
    assert not holders.has_earlier(y)
    z = resource_claim_record(claimed("z"))
    holders.put(z, [whole])
    assert holders.has_earlier(z)
