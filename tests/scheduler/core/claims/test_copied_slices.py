"""A node that is like another one has its devices, in pools of its own, free, and under other UUIDs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from scheduler.core.claims import copied_slices
from scheduler.core.claims.allocation import allocate
from scheduler.core.claims.devices_in_use import Taken
from scheduler.core.claims.inventory import Inventory, InventoryView
from scheduler.core.model.devices import ClaimAllocation, DeviceId, DeviceRefusal, RefusalCode, SliceRecord
from scheduler.core.model.records import NodeRecord
from tests.scheduler.core.claims.world import N1, has, inventory, taken
from tests.scheduler.core.device_objects import DRIVER, ask, device, devices, need, node, taint_rule

NEW = node("new", rack="r1")
RACK = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}]}


def supposed(made: Inventory) -> InventoryView:
    """What there is with a node ``new`` that is like ``n1``."""
    return made.view_with(copied_slices.like(made.published_for("n1"), "n1", "new"))


def shown(view: InventoryView) -> list[str]:
    """The devices of the new node, by pool, and why a pool gives nothing."""
    return [f"{pool.pool.id[1]}: {pool.wrong or [d.name for d in pool.devices]}" for pool in view.pools_on(NEW)]


def _allocated(
    view: InventoryView, at: NodeRecord, used: Taken, *, count: int = 1, cel: Sequence[str] = ()
) -> list[DeviceId] | DeviceRefusal:
    """What a claim for this number of devices gets on a node."""
    found = allocate([need(ask(count=count, cel=cel))], at, view, used)
    return found if isinstance(found, DeviceRefusal) else [each.id for each in found[0].results]


def _given(found: Sequence[ClaimAllocation] | DeviceRefusal) -> Sequence[ClaimAllocation]:
    assert not isinstance(found, DeviceRefusal)
    return found


ON_N1: dict[str, Any] = {"nodeName": "n1"}
BY_DEVICE: dict[str, Any] = {"perDeviceNodeSelection": True}


@pytest.mark.parametrize(
    ("slices", "found"),
    [
        ([devices("n1", device("a"), device("b"))], ["new: ['a', 'b']"]),
        ([devices("n1", device("a"), pool="gpus")], ["new/gpus: ['a']"]),
        ([devices("n1", device("a")), devices("s", device("b"), **ON_N1)], ["new: ['a']", "new/s: ['b']"]),
        ([devices("n1", device("a")), devices("s", device("o"), pool="n1", generation=0, **ON_N1)], ["new: ['a']"]),
        ([devices("n1", device("a"), count=2)], ["new: 1 of 2 slices are there"]),
        ([devices("n1", device("a", **ON_N1), device("b", **ON_N1), **BY_DEVICE)], ["new: ['a', 'b']"]),
        # Of several nodes: a part of it would have counters and devices that other nodes draw on.
        ([devices("n1", device("a", **ON_N1), device("b", nodeName="n2"), **BY_DEVICE)], []),
        # All that match reach these, the new node as well.
        ([devices("fabric", device("a"), nodeSelector=RACK)], ["fabric: ['a']"]),
        ([devices("n2", device("a"))], []),
    ],
)
def test_pools_that_one_node_alone_reaches_are_copied(slices: list[SliceRecord], found: list[str]) -> None:
    assert shown(supposed(inventory(*slices))) == found


def test_copies_are_free_where_the_devices_are_taken() -> None:
    made, used = inventory(devices("n1", device("a"), device("b"))), taken(c=has("a", "b"))
    found = supposed(made)
    assert isinstance(_allocated(found, N1, used), DeviceRefusal)
    assert _allocated(found, NEW, used) == [(DRIVER, "new", "a")]


def test_counters_are_those_of_the_other_pool() -> None:
    sets = [{"name": "set", "counters": {"memory": {"value": "2"}}}]
    draws: dict[str, Any] = {"consumesCounters": [{"counterSet": "set", "counters": {"memory": {"value": "1"}}}]}
    made = inventory(
        devices("counters", pool="n1", count=2, sharedCounters=sets, nodeName="n1"),
        devices("n1", *(device(name, **draws) for name in "abc"), count=2),
    )
    found = supposed(made)
    assert isinstance(_allocated(found, NEW, Taken(), count=3), DeviceRefusal)
    assert _allocated(found, NEW, Taken(), count=2) == [(DRIVER, "new", "a"), (DRIVER, "new", "b")]


@pytest.mark.parametrize(
    ("attribute", "is_taken"),
    [
        ("uuid", False),
        (f"{DRIVER}/uuid", False),
        ("parentUUID", False),
        ("boardGuid", False),
        ("serialNumber", False),
        ("model", True),
        ("pciBusID", True),
    ],
)
def test_a_selector_that_names_a_device_by_what_it_alone_has_takes_no_copy(attribute: str, is_taken: bool) -> None:
    made = inventory(devices("n1", device("a", attributes={attribute: "GPU-1"})))
    selector = f'device.attributes["{DRIVER}"].{attribute.rpartition("/")[2]} == "GPU-1"'
    assert _allocated(made.view(), N1, Taken(), cel=[selector]) == [(DRIVER, "n1", "a")]
    assert isinstance(_allocated(supposed(made), NEW, Taken(), cel=[selector]), DeviceRefusal) is not is_taken


@pytest.mark.parametrize(("uuid", "is_taken"), [("GPU-1", False), ("", True)])
def test_a_uuid_is_another_one_wherever_slices_of_the_node_repeat_it(uuid: str, is_taken: bool) -> None:
    card = device("card", attributes={"uuid": uuid, "partOf": "n1"})
    part = device("part", attributes={"parentUUID": uuid, "partOf": uuid})
    made = inventory(devices("n1", card), devices("n1-parts", part, nodeName="n1"))
    selector = f'device.attributes["{DRIVER}"].partOf == "{uuid}"'
    assert _allocated(made.view(), N1, Taken(), cel=[selector]) == [(DRIVER, "n1-parts", "part")]
    found = _allocated(supposed(made), NEW, Taken(), cel=[selector])
    assert found == ([(DRIVER, "new/n1-parts", "part")] if is_taken else DeviceRefusal(RefusalCode.NO_DEVICES))


def test_copies_agree_on_what_the_devices_agree_on() -> None:
    parts = [device(f"m{number}", attributes={"parentUUID": f"GPU-{number % 2}"}) for number in range(3)]
    rule = {"requests": ["r"], "matchAttribute": f"{DRIVER}/parentUUID"}
    found = supposed(inventory(devices("n1", *parts)))
    (chosen,) = _given(allocate([need(ask(count=2), rules=[rule])], NEW, found, Taken()))
    assert [each.device for each in chosen.results] == ["m0", "m2"]


@pytest.mark.parametrize(
    ("selector", "is_tainted"),
    [({}, True), ({"driver": DRIVER}, True), ({"device": "a"}, True), ({"pool": "n1"}, False), ({"pool": "new"}, True)],
)
def test_rules_taint_copies_by_what_they_select(selector: dict[str, str], is_tainted: bool) -> None:
    made = inventory(devices("n1", device("a")))
    made.rules.put(taint_rule("ill", **selector))
    assert isinstance(_allocated(supposed(made), NEW, Taken()), DeviceRefusal) is is_tainted


def test_the_view_of_what_there_is_stays_as_it_was() -> None:
    made = inventory(devices("n1", device("a")))
    before = made.view()
    known = before.pools_on(N1)
    found = supposed(made)
    assert shown(found) == ["new: ['a']"]
    assert made.view() is before
    assert shown(before) == []
    # What was known of another node is not looked for again.
    assert found.pools_on(N1) is known
