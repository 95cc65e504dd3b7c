"""Devices of a claim agree on an attribute, or differ in it."""

from __future__ import annotations

import pytest

from scheduler.core.claims.allocation import RulesOfClaim, attribute
from scheduler.core.model.device_requests import AttributeRule
from scheduler.core.model.devices import DeviceKind, Value
from tests.scheduler.core.device_objects import DRIVER, device, devices

_NUMA = f"{DRIVER}/numa"


def _kind(**attributes: object) -> DeviceKind:
    return devices("n1", device("a", attributes=attributes)).devices[0].kind


@pytest.mark.parametrize(
    ("written", "name", "found"),
    [
        ({"numa": 1}, _NUMA, Value("int", 1)),
        ({_NUMA: 1}, _NUMA, Value("int", 1)),
        ({"other.io/numa": 1}, _NUMA, None),
        ({"other.io/numa": 1}, "other.io/numa", Value("int", 1)),
        ({"numa": 1}, "other.io/numa", None),
        # As written comes first.
        ({_NUMA: 2, "numa": 1}, _NUMA, Value("int", 2)),
    ],
)
def test_an_attribute_is_found_by_its_full_name(written: dict[str, object], name: str, found: Value | None) -> None:
    assert attribute(_kind(**written), name) == found


@pytest.mark.parametrize(
    ("is_distinct", "values", "taken"),
    [
        (False, [1, 1, 1], [True, True, True]),
        (False, [1, 2, 1], [True, False, True]),
        (False, [1, True, "1"], [True, False, False]),
        (False, ["v1.0.0", "1.0.0"], [True, False]),
        (True, [1, 2, 1, 3], [True, True, False, True]),
        (True, [1, True], [True, True]),
    ],
)
def test_values_agree_or_differ_by_kind_and_value(
    values: list[object], taken: list[bool], *, is_distinct: bool
) -> None:
    rules = RulesOfClaim([AttributeRule(_NUMA, is_distinct=is_distinct)])
    assert [rules.add("r", _kind(numa=each)) for each in values] == taken


def test_a_device_without_the_attribute_neither_agrees_nor_differs() -> None:
    unreadable = devices("n1", {"name": "a", "attributes": {"numa": {"ints": [1]}}}).devices[0].kind
    for is_distinct in (False, True):
        rules = RulesOfClaim([AttributeRule(_NUMA, is_distinct=is_distinct)])
        assert not rules.add("r", _kind())
        assert not rules.add("r", unreadable)


def test_a_device_that_is_taken_back_counts_no_longer_and_one_that_fails_never_did() -> None:
    rules = RulesOfClaim([AttributeRule(_NUMA), AttributeRule(f"{DRIVER}/card", is_distinct=True)])
    assert rules.add("r", _kind(numa=1, card=1))
    assert not rules.add("r", _kind(numa=1, card=1))
    assert rules.add("r", _kind(numa=1, card=2))
    rules.take_back("r")
    rules.take_back("r")
    assert rules.add("r", _kind(numa=2, card=1))


def test_a_rule_of_a_request_is_one_of_its_ways() -> None:
    rules = RulesOfClaim([AttributeRule(_NUMA, ("a", "b/small"))])
    assert rules.add("a/big", _kind(numa=1))
    assert rules.add("b/big", _kind(numa=2))
    assert rules.add("c", _kind())
    assert not rules.add("b/small", _kind(numa=2))
    rules.take_back("c")
    rules.take_back("b/big")
    assert not rules.add("a", _kind(numa=2))
