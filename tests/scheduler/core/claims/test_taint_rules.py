"""Which devices taint rules taint, and that claims keep off them as from devices that their driver tainted."""

from __future__ import annotations

import random
from typing import Any

import pytest

from scheduler.core.claims.allocation import RulesOfClaim, attribute
from scheduler.core.claims.inventory import Inventory, TaintRules, keep_off
from scheduler.core.model.device_requests import AttributeRule, DeviceToleration
from scheduler.core.model.devices import DeviceKind, DeviceRefusal, DeviceTaint, RefusalCode, TaintRuleRecord, Value
from scheduler.core.model.records import NodeRecord
from tests.scheduler.core.claims.expressions import Compiler
from tests.scheduler.core.claims.world import N1, allocated, inventory
from tests.scheduler.core.device_objects import DRIVER, ask, device, devices, need, node, taint_rule

_NONE = DeviceRefusal(RefusalCode.NO_DEVICES)
_TOLERATING = [{"key": "ill", "operator": "Exists"}]


def _two() -> Inventory:
    return inventory(devices("n1", device("a"), device("b")), devices("n2", device("a")))


@pytest.mark.parametrize(
    ("selector", "tainted"),
    [
        ({}, {"n1/a", "n1/b", "n2/a"}),
        ({"driver": DRIVER}, {"n1/a", "n1/b", "n2/a"}),
        ({"driver": "other"}, set()),
        ({"pool": "n1"}, {"n1/a", "n1/b"}),
        ({"device": "a"}, {"n1/a", "n2/a"}),
        ({"driver": DRIVER, "pool": "n1", "device": "b"}, {"n1/b"}),
        ({"driver": "other", "pool": "n1", "device": "b"}, set()),
        ({"driver": DRIVER, "pool": "n2", "device": "b"}, set()),
    ],
)
def test_a_rule_taints_what_all_of_its_selector_takes(selector: dict[str, str], tainted: set[str]) -> None:
    made = _two()
    made.rules.put(taint_rule("r", **selector))
    assert _tainted(made) == {each: {"ill"} for each in tainted}


def _tainted(made: Inventory) -> dict[str, set[str]]:
    """Keys of taints by pool and device."""
    pools = [pool for at in (node("n1"), node("n2")) for pool in made.view().pools_on(at)]
    listed = {f"{pool.pool.id[1]}/{each.name}": {t.key for t in each.taints} for pool in pools for each in pool.devices}
    return {name: keys for name, keys in listed.items() if keys}


@pytest.mark.parametrize(
    ("effect", "tolerations", "expected"),
    [
        ("NoSchedule", [], [["r=b"]]),
        ("NoExecute", [], [["r=b"]]),
        ("None", [], [["r=a"]]),
        ("NoSchedule", _TOLERATING, [["r=a"]]),
    ],
)
def test_a_claim_keeps_off_a_device_that_a_rule_taints_unless_it_tolerates_that(
    effect: str, tolerations: list[dict[str, str]], expected: Any
) -> None:
    made = _two()
    made.rules.put(taint_rule("r", effect=effect, pool="n1", device="a"))
    assert allocated([need(ask(tolerations=tolerations))], made) == expected


def test_a_rule_counts_from_when_it_comes_until_it_goes() -> None:
    made = _two()
    both = need(ask(count=2))
    assert allocated([both], made) == [["r=a", "r=b"]]
    rule = taint_rule("r", device="b")
    made.rules.put(rule)
    assert allocated([both], made) == _NONE
    made.rules.put(taint_rule("r", device="other"))
    assert allocated([both], made) == [["r=a", "r=b"]]
    made.rules.put(rule)
    made.rules.drop(rule)
    assert allocated([both], made) == [["r=a", "r=b"]]


def test_a_rule_taints_devices_that_are_published_later() -> None:
    made = inventory()
    made.rules.put(taint_rule("r", pool="n1"))
    made.slices.put(devices("n1", device("a")))
    assert allocated([need(ask())], made, at=N1) == _NONE


def test_taints_of_the_driver_stay_beside_those_of_rules() -> None:
    ill = [{"key": "ill", "effect": "NoSchedule"}, {"key": "hot", "effect": "NoSchedule"}]
    made = inventory(devices("n1", device("a", taints=ill)))
    made.rules.put(taint_rule("r", "ill"))
    made.rules.put(taint_rule("s", "old", pool="n1"))
    (pool,) = made.view().pools_on(N1)
    assert [taint.key for taint in pool.devices[0].taints] == ["ill", "hot", "old"]


def test_pools_that_no_changed_rule_selects_stay_the_same() -> None:
    made = _two()
    at: list[NodeRecord] = [node("n1"), node("n2")]
    before = [made.view().pools_on(each) for each in at]
    made.rules.put(taint_rule("r", pool="n1"))
    after = [made.view().pools_on(each) for each in at]
    assert after[1] is before[1]
    assert after[0] is not before[0]


def test_a_rule_without_an_effect_on_scheduling_is_not_told() -> None:
    heard: list[frozenset[str] | None] = []
    made = Inventory(heard.append, read_changed=lambda: None, compiler=Compiler())
    made.rules.put(taint_rule("r", effect="None"))
    assert heard == []
    made.rules.put(taint_rule("r"))
    made.rules.put(taint_rule("r", effect="None"))
    assert heard == [None, None]


@pytest.mark.parametrize("seed", range(20))
def test_after_any_changes_devices_are_tainted_as_a_plain_reading_of_the_rules_has_it(seed: int) -> None:
    chance = random.Random(seed)
    made = _two()
    rules: dict[str, TaintRuleRecord] = {}
    for _ in range(40):
        name = f"r{chance.randrange(5)}"
        if name in rules and chance.random() < 0.3:
            made.rules.drop(rules.pop(name))
        else:
            rules[name] = _any_rule(chance, name)
            made.rules.put(rules[name])
        assert _tainted(made) == _expected(rules)


def _any_rule(chance: random.Random, name: str) -> TaintRuleRecord:
    choices = {"driver": (DRIVER, "other", None), "pool": ("n1", "n2", None), "device": ("a", "b", None)}
    selector = {field: value for field, values in choices.items() if (value := chance.choice(values)) is not None}
    effect = chance.choice(("NoSchedule", "NoExecute", "None"))
    return taint_rule(name, f"k{chance.randrange(2)}", effect=effect, **selector)


def _expected(rules: dict[str, TaintRuleRecord]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for pool, name in (("n1", "a"), ("n1", "b"), ("n2", "a")):
        keys = {
            rule.taint.key
            for rule in rules.values()
            if rule.taint.effect != "None"
            and rule.driver in {None, DRIVER}
            and rule.pool in {None, pool}
            and rule.device in {None, name}
        }
        if keys:
            found[f"{pool}/{name}"] = keys
    return found


def test_slices_of_a_pool_that_no_rule_selects_are_not_copied() -> None:
    rules = TaintRules()
    rules.put("r", taint_rule("r", pool="n2"))
    published = [devices("n1", device("a"))]
    assert rules.tainted((DRIVER, "n1"), published) is published


# Which tolerations let a request have a tainted device.

_ILL = DeviceTaint("ill", "xid", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        (DeviceToleration("ill", "", "xid"), True),
        (DeviceToleration("ill", "Equal", "xid"), True),
        (DeviceToleration("ill", "Equal", "other"), False),
        (DeviceToleration("ill", "Exists"), True),
        (DeviceToleration("other", "Exists"), False),
        (DeviceToleration("", "Exists"), True),
        (DeviceToleration("", "Exists", "", "NoExecute"), False),
        (DeviceToleration("ill", "Exists", "", "NoSchedule"), True),
        (DeviceToleration("ill", "Unheard", "xid"), False),
    ],
)
def test_a_toleration_takes_key_value_and_effect(toleration: DeviceToleration, *, is_tolerated: bool) -> None:
    assert keep_off([_ILL], [toleration]) is not is_tolerated


def test_each_taint_needs_a_toleration() -> None:
    other = DeviceTaint("other", "", "NoExecute")
    one, both = DeviceToleration("ill", "Exists"), DeviceToleration("other", "Exists")
    assert keep_off([_ILL, other], [one])
    assert not keep_off([_ILL, other], [one, both])
    assert not keep_off([DeviceTaint("ill", "", "None"), DeviceTaint("ill", "", "Unheard")], [])


# Devices of a claim agree on an attribute, or differ in it.

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
