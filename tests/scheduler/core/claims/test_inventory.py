"""What nodes reach follows slices as they come and go, and what a view has shown stays as it was."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest

from scheduler.core.claims import pools
from scheduler.core.claims.allocation import allocate
from scheduler.core.claims.devices_in_use import Taken
from scheduler.core.claims.inventory import Inventory, InventoryView, KeptAnswers, Needs, drop_for, uuid_of
from scheduler.core.claims.pools import Pool, make_pool
from scheduler.core.claims.selectors import Asked
from scheduler.core.model.device_requests import DeviceAsk, DeviceNeed, DeviceRequest
from scheduler.core.model.devices import ClaimAllocation, DeviceId, DeviceRefusal, PoolId, RefusalCode, SliceRecord
from scheduler.core.model.records import NodeRecord
from tests.scheduler.core.claims.expressions import Compiler, model
from tests.scheduler.core.claims.world import N1, has, inventory, taken
from tests.scheduler.core.device_objects import DRIVER, ask, device, device_class, devices, need, node, taint_rule

_RACK = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}]}
_NODES = [node("n1", rack="r1"), node("n2", rack="r2"), node("n3")]


def _shown(view: InventoryView, at: NodeRecord) -> list[tuple[str, str, list[str]]]:
    return [(each.pool.id[1], each.wrong, [d.name for d in each.devices]) for each in view.pools_on(at)]


def test_a_view_stays_as_it_was() -> None:
    made = inventory(devices("n1", device("a")))
    before = made.view()
    assert made.view() is before
    made.slices.put(devices("n1", device("b"), generation=2))
    assert [_shown(view, _NODES[0]) for view in (before, made.view(), before)] == [
        [("n1", "", ["a"])],
        [("n1", "", ["b"])],
        [("n1", "", ["a"])],
    ]
    assert before.missing([need(ask(cls="tpu"))]) == "tpu"
    made.classes.put(device_class("tpu"))
    assert (before.missing([need(ask(cls="tpu"))]), made.view().missing([need(ask(cls="tpu"))])) == ("tpu", None)


def test_a_node_whose_labels_change_reaches_other_devices() -> None:
    made = inventory(devices("fabric", device("a"), nodeSelector=_RACK))
    assert _shown(made.view(), node("n1", rack="r1")) == [("fabric", "", ["a"])]
    assert _shown(made.view(), node("n1", rack="r2")) == []
    assert _shown(made.view(), node("n1", rack="r1")) == [("fabric", "", ["a"])]


def test_a_name_twice_closes_the_pool_where_a_node_reaches_both() -> None:
    made = inventory(
        devices("s1", device("a"), pool="p", count=2, nodeName="n1"),
        devices("s2", device("a"), device("b"), pool="p", count=2, nodeSelector=_RACK),
    )
    assert _shown(made.view(), node("n1")) == [("p", "", ["a"])]
    assert _shown(made.view(), node("n2", rack="r1")) == [("p", "", ["a", "b"])]
    assert _shown(made.view(), node("n1", rack="r1")) == [("p", "several devices have the name a", ["a", "a", "b"])]


def _broken(made: Inventory) -> dict[PoolId, str]:
    """Pools that give nothing, and why."""
    view = made.view()
    pools = (view.pool(each.pool_id) for each in made.slices.all())
    return {pool.id: pool.wrong for pool in pools if pool is not None and pool.wrong}


def test_broken_pools_are_named() -> None:
    made = inventory(devices("n1", device("a"), count=2), devices("n2", device("a")))
    assert _broken(made) == {(DRIVER, "n1"): "1 of 2 slices are there"}
    made.slices.put(devices("n1-more", pool="n1", count=2, nodeName="n1"))
    assert _broken(made) == {}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (devices("n1", device("a")), {"n1"}),
        (devices("n1", device("a"), device("b", nodeName="n2"), perDeviceNodeSelection=True), {"n2"}),
        (devices("everywhere", device("a"), allNodes=True), None),
        (devices("fabric", device("a"), nodeSelector=_RACK), None),
        (devices("none", nodeName="n1"), set()),
        # The slice that was missing: now the other one's node has devices, too.
        (devices("second", device("x"), pool="half", count=2, nodeName="n2"), {"n2", "n9"}),
        (device_class("tpu"), None),
    ],
)
def test_a_change_says_for_which_nodes_it_is(change: object, told: set[str] | None) -> None:
    heard: list[frozenset[str] | None] = []
    made = Inventory(heard.append, read_changed=lambda: None, compiler=Compiler())
    made.slices.put(devices("half", device("y"), count=2, nodeName="n9"))
    heard.clear()
    if isinstance(change, SliceRecord):
        made.slices.put(change)
    else:
        made.classes.put(device_class("tpu"))
    assert heard == [told]
    if isinstance(change, SliceRecord):
        made.slices.drop(change)
        assert heard == [told] * 2


def test_a_slice_of_a_large_pool_is_told_as_one_of_all_nodes() -> None:
    heard: list[frozenset[str] | None] = []
    made = Inventory(heard.append, read_changed=lambda: None, compiler=Compiler())
    for number in range(17):
        made.slices.put(devices(f"s{number}", device("a"), pool="p", count=17))
    assert heard[15] == frozenset(f"s{number}" for number in range(16))
    assert heard[16] is None


def test_selectors_are_asked_once_for_a_node_until_its_pool_changes() -> None:
    compiler = Compiler()
    made = inventory(devices("n1", device("a", attributes={"model": "x"})), compiler=compiler)
    (pool,) = made.view().pools_on(_NODES[0])
    assert pool.takes(Asked(), 0)
    assert pool.takes(Asked((model("x"),)), 0)
    made.slices.put(devices("n2", device("a")))
    assert made.view().pools_on(_NODES[0]) == (pool,)
    for number in range(70):
        pool.takes(Asked((model(f"m{number}"),)), 0)
    assert pool.takes(Asked((model("x"),)), 0)
    assert compiler.evaluated[model("x")] == 1


@pytest.mark.parametrize("seed", range(30))
def test_after_any_changes_it_shows_what_a_new_one_shows(seed: int) -> None:
    chance = random.Random(seed)
    made = inventory()
    known: dict[str, SliceRecord] = {}
    for _ in range(60):
        name = f"s{chance.randrange(8)}"
        if name in known and chance.random() < 0.3:
            made.slices.drop(known.pop(name))
        else:
            known[name] = _any_slice(chance, name)
            made.slices.put(known[name])
        if chance.random() < 0.2:
            made.forget_node(chance.choice(_NODES).name)
        if chance.random() < 0.5:
            fresh = inventory(*known.values())
            assert [_shown(made.view(), at) for at in _NODES] == [_shown(fresh.view(), at) for at in _NODES]
            assert _broken(made) == _broken(fresh)
    assert known


def _any_slice(chance: random.Random, name: str) -> SliceRecord:
    places: list[dict[str, Any]] = [
        {"nodeName": f"n{chance.randint(1, 3)}"},
        {"allNodes": True},
        {"nodeSelector": _RACK},
    ]
    listed = [device(f"{name}-{number}", nodeName="n2") for number in range(chance.randint(0, 2))]
    where = chance.choice([*places, {"perDeviceNodeSelection": True}])
    return devices(
        name,
        *listed,
        pool=f"p{chance.randrange(3)}",
        generation=chance.randint(1, 2),
        count=chance.randint(1, 3),
        **where,
    )


@pytest.mark.parametrize(
    ("attributes", "uuid"),
    [({"uuid": "GPU-0"}, "GPU-0"), ({f"{DRIVER}/uuid": "GPU-1"}, "GPU-1"), ({"uuid": 3}, ""), ({}, "")],
)
def test_the_uuid_of_a_device_is_what_its_driver_says(attributes: dict[str, Any], uuid: str) -> None:
    (record,) = devices("a", device("d0", attributes=attributes)).devices
    assert uuid_of(record.kind) == uuid


# --- what is kept, and for whom --------------------------------------------------------------------------------------
def _needs(name: str, namespace: str) -> Needs:
    return (DeviceNeed(requests=(DeviceRequest((DeviceAsk(name=name, device_class="gpu"),)),), namespace=namespace),)


def test_answers_for_nodes_are_those_that_were_kept_last() -> None:
    kept = KeptAnswers()
    kept.put("a", _needs("r", "ns"), "first", 100)
    kept.put("b", _needs("r", "ns"), "other", 100)
    before = kept.size_bytes
    kept.put("a", _needs("r", "ns"), "second", 300)
    assert (kept.get("a", _needs("r", "ns")), kept.get("b", _needs("r", "ns"))) == ("second", "other")
    assert kept.get("a", _needs("r", "else")) is None
    assert kept.size_bytes == before + 200
    kept.forget_node("a")
    assert (kept.get("a", _needs("r", "ns")), kept.size_bytes) == (None, before - 100)
    kept.forget_node("b")
    assert kept.size_bytes == 0


def test_what_was_asked_counts_once_for_all_nodes() -> None:
    long = "x" * 50_000
    kept = KeptAnswers()
    tracemalloc.start()
    for at in range(20):
        for number in range(20):
            kept.put(f"n{at}", _needs(f"{number}{long}", "ns"), None, 700)
    occupied, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert occupied / 2 < kept.size_bytes < 2 * occupied
    assert kept.size_bytes < 2_000_000


def test_long_questions_are_dropped_with_their_answers() -> None:
    kept = KeptAnswers(most_bytes=1_000_000)
    tracemalloc.start()
    for number in range(100):
        kept.put("n1", _needs(f"{number}{'x' * 50_000}", "ns"), None, 700)
        assert kept.size_bytes <= 1_000_000
    occupied, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert occupied < 2_000_000


def test_of_the_namespace_with_most_answers_the_oldest_are_dropped() -> None:
    kept, quiet = KeptAnswers(most_bytes=10_000), _needs("r", "quiet")
    kept.put("a", quiet, "kept", 700)
    for number in range(100):
        kept.put("a", _needs(f"r{number}", "flood"), number, 700)
        assert kept.size_bytes <= 10_000
    assert kept.get("a", quiet) == "kept"
    flood = [kept.get("a", _needs(f"r{number}", "flood")) for number in range(100)]
    least = next(number for number in range(100) if flood[number] is not None)
    assert 80 < least < 95
    assert flood == [None] * least + [*range(least, 100)]


def test_an_answer_that_alone_is_too_large_is_not_kept() -> None:
    kept = KeptAnswers(most_bytes=1_000)
    kept.put("a", _needs("r", "ns"), "large", 5_000)
    assert (kept.get("a", _needs("r", "ns")), kept.size_bytes) == (None, 0)


def test_answers_for_supposed_nodes_are_kept_apart_and_others_together() -> None:
    base, asked = KeptAnswers(), _needs("r", "ns")
    base.put("a", asked, "old", 100)
    supposed = KeptAnswers(base=base)
    supposed.put("new", asked, "supposed", 100)
    supposed.put("a", asked, "newer", 100)
    assert (supposed.get("a", asked), supposed.get("new", asked)) == ("newer", "supposed")
    assert (base.get("a", asked), base.get("new", asked)) == ("newer", None)


def test_a_namespace_that_asks_for_much_of_a_pool_drops_only_its_own_answers() -> None:
    compiler = Compiler()
    made = inventory(devices("n1", device("a", attributes={"model": "x"})), compiler=compiler)
    (pool,) = made.view().pools_on(_NODES[0])
    quiet = Asked(own=(model("x"),), namespace="quiet")
    assert pool.takes(quiet, 0)
    asked = [Asked(own=(model(f"m{number}"),), namespace="flood") for number in range(200)]
    assert not any(pool.takes(each, 0) for each in asked)
    assert pool.takes(quiet, 0)
    assert compiler.evaluated[model("x")] == 1
    kept: dict[Asked, list[bool | str | None]] = {quiet: [True]}
    kept |= {each: [False] for each in asked[:3]}
    drop_for(kept, 4)
    assert [each.namespace for each in kept] == ["quiet", "flood", "flood"]


# Pools are as good as the slices of their newest generation.


def _pool(*slices: SliceRecord) -> Pool:
    return make_pool((DRIVER, "p"), slices)


def _names(pool: Pool, at: str = "n1", **labels: str) -> list[str]:
    return [each.name for _, run in pool.reached(node(at, **labels)) for each in run]


def _drawing(name: str, counter_set: str = "card", counter: str = "slices") -> dict[str, Any]:
    return device(name, consumesCounters=[{"counterSet": counter_set, "counters": {counter: {"value": "1"}}}])


_COUNTERS = [{"name": "card", "counters": {"slices": {"value": "7"}}}]


def test_older_generations_are_left_out_although_they_have_more_slices() -> None:
    pool = _pool(
        devices("old-1", device("a"), generation=1, count=2),
        devices("old-2", device("b"), generation=1, count=2),
        devices("new", device("c"), generation=2, nodeName="n1"),
    )
    assert (_names(pool), pool.wrong) == (["c"], "")


@pytest.mark.parametrize(
    ("slices", "wrong", "is_incomplete"),
    [
        ([devices("a", count=1)], "", False),
        ([devices("a", count=2)], "1 of 2 slices are there", True),
        ([devices("a", count=1), devices("b", count=1)], "2 of 1 slices are there", True),
        ([devices("a", count=2), devices("b", count=3)], "2 of 2 or 3 slices are there", True),
        (
            [devices("a", count=2), devices("b", count=2, nodeSelector={"nodeSelectorTerms": [{}, {}]})],
            "slice b: nodeSelector: has several terms",
            False,
        ),
        (
            [devices("a", sharedCounters=_COUNTERS, count=2), devices("b", sharedCounters=_COUNTERS, count=2)],
            "counter set card is there 2 times",
            False,
        ),
        ([devices("a", sharedCounters=_COUNTERS, count=2), devices("b", _drawing("x"), count=2)], "", False),
        (
            [devices("a", sharedCounters=_COUNTERS, count=2), devices("b", _drawing("x", "other"), count=2)],
            "device x draws from a counter of other that is not there",
            False,
        ),
        (
            [devices("a", sharedCounters=_COUNTERS, count=2), devices("b", _drawing("x", counter="mem"), count=2)],
            "device x draws from a counter of card that is not there",
            False,
        ),
    ],
)
def test_a_pool_says_what_is_wrong_with_it(slices: list[SliceRecord], wrong: str, *, is_incomplete: bool) -> None:
    pool = _pool(*slices)
    assert (pool.wrong, pool.is_incomplete) == (wrong, is_incomplete)


def test_a_node_reaches_its_own_devices_and_those_for_its_labels_in_order() -> None:
    rack = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "Exists"}]}]}
    own = [
        device("a", nodeName="n1"),
        device("b", nodeSelector=rack),
        device("c", nodeName="n1"),
        device("d", nodeName="n2"),
    ]
    pool = _pool(
        devices("s1", *own, perDeviceNodeSelection=True, count=3),
        devices("s2", device("e"), allNodes=True, count=3),
        devices("s3", device("f"), allNodes=False, count=3),
    )
    assert _names(pool, "n1", rack="r1") == ["a", "b", "c", "e"]
    assert _names(pool, "n1") == ["a", "c", "e"]
    assert _names(pool, "n2") == ["d", "e"]
    assert _names(pool, "n3") == ["e"]


def test_names_that_several_devices_have_are_known() -> None:
    pool = _pool(devices("s1", device("a"), device("b"), count=2), devices("s2", device("a"), count=2))
    assert pool.repeated == {"a"}


# A node that is like another one has its devices, in pools of its own, free, and under other UUIDs.

NEW = node("new", rack="r1")
RACK = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}]}


def supposed(made: Inventory) -> InventoryView:
    """What there is with a node ``new`` that is like ``n1``."""
    return made.view_with(pools.like(made.published_for("n1"), "n1", "new"))


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
