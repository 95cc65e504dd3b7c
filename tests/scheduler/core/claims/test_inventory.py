"""What nodes reach follows slices as they come and go, and what a view has shown stays as it was."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest

from scheduler.core.claims.inventory import Inventory, InventoryView, KeptAnswers, Needs, drop_for, uuid_of
from scheduler.core.claims.selectors import Asked
from scheduler.core.model.device_requests import DeviceAsk, DeviceNeed, DeviceRequest
from scheduler.core.model.devices import PoolId, SliceRecord
from scheduler.core.model.records import NodeRecord
from tests.scheduler.core.claims.expressions import Compiler, model
from tests.scheduler.core.claims.world import inventory
from tests.scheduler.core.device_objects import DRIVER, ask, device, device_class, devices, need, node

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
