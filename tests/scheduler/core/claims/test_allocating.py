"""Which devices the claims of a pod get on a node. That a way is found wherever there is one: test_brute_force.py."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.request import FractionAsk, MemoryAsk, SharedAsk
from gpu.share import NANO_PER_DEVICE
from scheduler.core.claims.allocation import allocate, terms_of
from scheduler.core.claims.devices_in_use import Taken
from scheduler.core.claims.requests import claimed_share, is_sharable, part_of, share_of
from scheduler.core.model.devices import Awaited, DeviceKind, DevicePlace, DeviceRefusal, RefusalCode
from scheduler.core.model.pod_class import Requirement, Term
from tests.scheduler.core.claims.expressions import attribute_is, model
from tests.scheduler.core.claims.world import N1, allocated, has, inventory, taken
from tests.scheduler.core.device_objects import DRIVER, ask, device, device_class, devices, need, node, ways
from wire.quantity import NANO

_NONE = DeviceRefusal(RefusalCode.NO_DEVICES)
_ILL = [{"key": "ill", "value": "xid", "effect": "NoSchedule"}]


def _cards(**more: Any) -> list[dict[str, Any]]:
    """Four devices: two models, on two NUMA nodes."""
    listed = [("a", "h100", 0), ("b", "h100", 1), ("c", "a100", 0), ("d", "a100", 1)]
    return [device(name, attributes={"model": kind, "numa": numa}, **more) for name, kind, numa in listed]


def _rule(kind: str, name: str, *requests: str) -> dict[str, Any]:
    return {f"{kind}Attribute": f"{DRIVER}/{name}", "requests": list(requests)}


@pytest.mark.parametrize(
    ("requests", "rules", "used", "expected"),
    [
        # An exact number, in the order of the pool, of those that are free.
        ([ask()], [], [], ["r=a"]),
        ([ask(count=2)], [], ["a"], ["r=b", "r=c"]),
        ([ask(count=4)], [], [], ["r=a", "r=b", "r=c", "r=d"]),
        ([ask(count=4)], [], ["d"], None),
        ([ask(count=5)], [], [], None),
        # All that match, or none.
        ([ask(count=None)], [], [], ["r=a", "r=b", "r=c", "r=d"]),
        ([ask(count=None)], [], ["c"], None),
        ([ask(count=None, cel=[model("a100")])], [], ["a"], ["r=c", "r=d"]),
        ([ask(count=None, cel=[model("none")])], [], [], None),
        # Selectors of a request, all of them.
        ([ask(cel=[model("a100")])], [], [], ["r=c"]),
        ([ask(cel=[model("a100"), attribute_is("numa", "1")])], [], [], ["r=d"]),
        # The first choice is given up where it leads nowhere.
        ([ask("x"), ask("y", cel=[attribute_is("model", '"h100"')], count=2)], [], [], ["x=c", "y=a", "y=b"]),
        # Devices that agree, and devices that differ.
        ([ask(count=2)], [_rule("match", "numa")], [], ["r=a", "r=c"]),
        ([ask(count=3)], [_rule("match", "numa")], [], None),
        ([ask("x"), ask("y"), ask("z")], [_rule("match", "model", "x", "z")], [], ["x=a", "y=c", "z=b"]),
        ([ask(count=2)], [_rule("distinct", "model")], [], ["r=a", "r=c"]),
        ([ask(count=3)], [_rule("distinct", "model")], [], None),
        ([ask(count=2)], [_rule("match", "model"), _rule("distinct", "numa")], [], ["r=a", "r=b"]),
        ([ask()], [_rule("match", "missing")], [], None),
        # The first way that can be satisfied.
        ([ways("w", ask("two", count=2, cel=[model("h100")]), ask("one"))], [], [], ["w/two=a", "w/two=b"]),
        ([ways("w", ask("two", count=2, cel=[model("h100")]), ask("one"))], [], ["b"], ["w/one=a"]),
        ([ways("w", ask("all", count=None, cel=[model("none")]), ask("one"))], [], [], ["w/one=a"]),
        # A way is given up for a later request.
        ([ways("w", ask("four", count=4), ask("one")), ask("x")], [], [], ["w/one=a", "x=b"]),
        # A constraint on a request is one on all of its ways; on a way, on that alone.
        (
            [ways("w", ask("no", cel=[model("none")]), ask("two", count=2))],
            [_rule("distinct", "model", "w")],
            [],
            ["w/two=a", "w/two=c"],
        ),
        (
            [ways("w", ask("no", cel=[model("none")]), ask("two", count=2))],
            [_rule("distinct", "model", "w/no")],
            [],
            ["w/two=a", "w/two=b"],
        ),
        # Admin access: devices in use will do, but each once in a claim.
        ([ask(count=4, adminAccess=True)], [], ["a", "b"], ["r=a", "r=b", "r=c", "r=d"]),
        ([ask(count=None, adminAccess=True)], [], ["a", "b"], ["r=a", "r=b", "r=c", "r=d"]),
        ([ask("x", count=4), ask("y", adminAccess=True)], [], [], None),
    ],
)
def test_a_claim_gets_devices(
    requests: list[Any], rules: list[Any], used: list[str], expected: list[str] | None
) -> None:
    made = inventory(devices("n1", *_cards()))
    found = allocated([need(*requests, rules=rules)], made, taken(other=has(*used)))
    assert found == (_NONE if expected is None else [expected])


def test_claims_of_a_pod_have_no_device_in_common() -> None:
    made = inventory(devices("n1", *_cards()))
    assert allocated([need(ask(count=2)), need(ask(count=2))], made) == [["r=a", "r=b"], ["r=c", "r=d"]]
    assert allocated([need(ask(count=2)), need(ask(count=3))], made) == _NONE
    # An administrator's claim looks at what the other one has.
    assert allocated([need(ask()), need(ask(count=4, adminAccess=True))], made) is not _NONE
    assert allocated([], made) == []


@pytest.mark.parametrize(
    ("effect", "toleration", "is_taken"),
    [
        ("NoSchedule", None, False),
        ("NoExecute", None, False),
        ("None", None, True),
        ("NoSchedule", {"operator": "Exists"}, True),
        ("NoSchedule", {"key": "ill", "value": "xid", "effect": "NoExecute"}, False),
    ],
)
def test_a_taint_keeps_requests_off_that_do_not_tolerate_it(
    effect: str, toleration: dict[str, Any] | None, is_taken: bool
) -> None:
    made = inventory(devices("n1", device("a", taints=[{**_ILL[0], "effect": effect}])))
    found = allocated([need(ask(tolerations=[toleration] if toleration else []))], made)
    assert found == ([["r=a"]] if is_taken else _NONE)


def test_all_devices_means_tainted_ones_too() -> None:
    made = inventory(devices("n1", device("a"), device("b", taints=_ILL)))
    assert allocated([need(ask(count=None))], made) == _NONE
    assert allocated([need(ask())], made) == [["r=a"]]


def _cut_card(*parts: tuple[str, str], has_slices: str = "4") -> Any:
    """A card of so many slices, and parts that draw from it."""
    draws = [
        device(name, consumesCounters=[{"counterSet": "card", "counters": {"slices": {"value": count}}}])
        for name, count in parts
    ]
    counters = [{"name": "card", "counters": {"slices": {"value": has_slices}}}]
    return inventory(
        devices("n1-counters", pool="n1", count=2, sharedCounters=counters), devices("n1", *draws, pool="n1", count=2)
    )


@pytest.mark.parametrize(
    ("used", "count", "expected"),
    [
        ([], 1, ["r=whole"]),
        ([], 2, ["r=half-0", "r=half-1"]),
        (["half-0"], 1, ["r=half-1"]),
        (["whole"], 1, None),
        (["quarter"], 1, ["r=half-0"]),
        (["quarter"], 2, None),
    ],
)
def test_parts_of_a_card_draw_from_what_it_has(used: list[str], count: int, expected: list[str] | None) -> None:
    made = _cut_card(("whole", "4"), ("half-0", "2"), ("half-1", "2"), ("quarter", "1"))
    found = allocated([need(ask(count=count))], made, taken(other=has(*used)))
    assert found == (_NONE if expected is None else [expected])


def _shared(*names: str, memory: str = "80Gi", policy: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    capacity = {"memory": {"value": memory, **({"requestPolicy": policy} if policy else {})}}
    return [device(name, allowMultipleAllocations=True, capacity=capacity) for name in names]


def _memory(amount: str) -> dict[str, Any]:
    return {"requests": {"memory": amount}}


def test_several_claims_share_a_device_until_its_capacity_is_used_up() -> None:
    made = inventory(devices("n1", *_shared("a", "b")))
    used = Taken()
    got = []
    for number in range(5):
        found = allocate([need(ask(capacity=_memory("30Gi")))], N1, made.view(), used)
        if isinstance(found, DeviceRefusal):
            got.append(found.code.name)
            continue
        used.put(f"c{number}", found[0].results)
        got.append(found[0].results[0].device)
    assert got == ["a", "a", "b", "b", "NO_DEVICES"]
    used.drop("c0")
    assert allocated([need(ask(capacity=_memory("50Gi")))], made, used) == [["r=a"]]
    # What asks nothing takes all.
    assert allocated([need(ask())], made, used) == _NONE


def test_parts_for_one_pod_count_together() -> None:
    made = inventory(devices("n1", *_shared("a")))
    assert allocated([need(ask(capacity=_memory("40Gi")))] * 2, made) == [["r=a"], ["r=a"]]
    assert allocated([need(ask(capacity=_memory("40Gi")))] * 3, made) == _NONE


def test_a_capacity_that_a_device_lacks_rules_it_out() -> None:
    small, large = (
        device("small", capacity={"memory": {"value": "40Gi"}}),
        device("b", capacity={"memory": {"value": "80Gi"}}),
    )
    made = inventory(devices("n1", device("none"), small, large))
    assert allocated([need(ask(capacity=_memory("60Gi")))], made) == [["r=b"]]


def test_where_all_devices_are_of_one_node_the_claim_stays_there() -> None:
    made = inventory(devices("n1", device("a")), devices("anywhere", device("b"), allNodes=True))
    (found,) = _found(made, need(ask(count=2)))
    assert found.terms == (Term((), (Requirement("metadata.name", "In", ("n1",)),)),)
    assert found.ways == (0,)
    (elsewhere,) = _found(made, need(ask()), at="n2")
    assert elsewhere.terms is None


def test_a_device_that_binds_to_a_node_holds_its_claim_to_the_node_that_it_was_allocated_for() -> None:
    made = inventory(devices("s", device("a", bindsToNode=True), device("b"), allNodes=True))
    first, second = (_found(made, need(ask(count=count))) for count in (1, 2))
    for found in (first, second):
        (term,) = found[0].terms
        assert [(each.key, each.values) for each in term.fields] == [("metadata.name", ("n1",))]


def test_devices_for_which_nobody_has_to_wait_come_first() -> None:
    slow = device("a", bindingConditions=["up"], bindingFailureConditions=["bad"])
    made = inventory(devices("a", slow, nodeName="n1"), devices("b", device("b"), nodeName="n1"))
    ((one,),) = ([each.results for each in _found(made, need(ask()))],)
    assert [(each.device, each.awaited) for each in one] == [("b", None)]
    (both,) = (each.results for each in _found(made, need(ask(count=2))))
    assert [(each.device, each.awaited) for each in both] == [("b", None), ("a", Awaited(("up",), ("bad",)))]


def test_devices_of_a_rack_are_for_its_nodes() -> None:
    term = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}]}
    made = inventory(devices("fabric", device("a"), nodeSelector=term))
    (found,) = _found(made, need(ask()))
    assert found.terms == (Term((Requirement("rack", "In", ("r1",)),), ()),)
    assert allocated([need(ask())], made, at=node("n2", rack="r2")) == _NONE


def _found(made: Any, *needs: Any, at: str = "n1") -> Any:
    found = allocate(needs, node(at, rack="r1"), made.view(), Taken())
    assert not isinstance(found, DeviceRefusal)
    return found


@pytest.mark.parametrize(
    ("records", "asked", "code", "detail"),
    [
        ([], ask(cls="tpu"), RefusalCode.NO_CLASS, "tpu"),
        ([devices("n1", device("a"), count=2)], ask(), RefusalCode.NO_DEVICES, ""),
        (
            [devices("n1", device("a"), count=2)],
            ask(count=None),
            RefusalCode.INCOMPLETE_POOL,
            f"{DRIVER}/n1: 1 of 2 slices",
        ),
        ([devices("n1", device("a"), device("a"))], ask(), RefusalCode.INVALID_POOL, f"{DRIVER}/n1: several devices"),
        ([devices("n1", device("a"), device("a"))], ask(count=None), RefusalCode.INVALID_POOL, f"{DRIVER}/n1: several"),
        ([devices("n1", device("a"))], ask(cel=["nonsense"]), RefusalCode.SELECTOR_FAILED, "nonsense: can't be read"),
        ([devices("n1", device("a"))], ask(cel=[model("h100")]), RefusalCode.SELECTOR_FAILED, "no such key: "),
        (
            [devices("n1", *(device(f"d{n}") for n in range(33)))],
            ask(count=None),
            RefusalCode.TOO_MANY_RESULTS,
            "33 devices",
        ),
        ([], ask(count=33), RefusalCode.TOO_MANY_RESULTS, "33 devices"),
        ([devices("n1", device("a", nodeAllocatableResourceMappings={"cpu": {}}))], ask(), RefusalCode.NO_DEVICES, ""),
    ],
)
def test_a_refusal_says_why(records: list[Any], asked: dict[str, Any], code: RefusalCode, detail: str) -> None:
    found = allocated([need(asked)], inventory(*records))
    assert isinstance(found, DeviceRefusal)
    assert found.code is code
    assert found.detail.startswith(detail)


def test_a_class_with_a_selector_that_is_not_read_serves_nobody() -> None:
    wrong = device_class("gpu", *["x"] * 33)
    found = allocated([need(ask())], inventory(devices("n1", device("a")), wrong))
    assert found == DeviceRefusal(RefusalCode.UNSUPPORTED, "DeviceClass gpu: spec.selectors: 33, at most 32 are read")


def test_a_pool_that_is_broken_does_not_stand_in_the_way_of_others() -> None:
    made = inventory(devices("n1", device("a")), devices("half", device("b"), count=2, nodeName="n1"))
    assert allocated([need(ask())], made) == [["r=a"]]


def test_a_way_that_needs_too_many_devices_is_passed_over() -> None:
    made = inventory(devices("n1", *(device(f"d{n:02}") for n in range(40))))
    many = ways("w", ask("all", count=None), ask("few", count=2))
    assert allocated([need(many)], made) == [["w/few=d00", "w/few=d01"]]
    found = allocated([need(ask("x", count=30), many)], made)
    assert not isinstance(found, DeviceRefusal)
    assert found[0][-2:] == ["w/few=d30", "w/few=d31"]


def test_devices_of_all_requests_of_a_claim_count_towards_what_it_can_have() -> None:
    made = inventory(devices("n1", *(device(f"d{n:02}") for n in range(40))))
    found = allocated([need(ask("x", count=31), ways("w", ask("two", count=2), ask("one")))], made)
    assert not isinstance(found, DeviceRefusal)
    assert (len(found[0]), found[0][-1]) == (32, "w/one=d31")


_SOME = {"operator": "Exists"}


@pytest.mark.parametrize(
    ("listed", "used", "requests", "expected"),
    [
        # The second request can't have what the first one would have taken, and the other device is alike but for that.
        ([device("a"), device("b", taints=_ILL)], [], [ask("x", tolerations=[_SOME]), ask("y")], ["x=b", "y=a"]),
        (
            [device("a", capacity={"memory": {"value": "80Gi"}}), device("b", capacity={"memory": {"value": "40Gi"}})],
            [],
            [ask("x"), ask("y", capacity={"requests": {"memory": "60Gi"}})],
            ["x=b", "y=a"],
        ),
        (
            [device("a", attributes={"model": "h100"}), device("b", attributes={"model": "a100"})],
            [],
            [ask("x"), ask("y", cel=[model("h100")])],
            ["x=b", "y=a"],
        ),
        ([device("a"), device("b")], has("b"), [ask("x", adminAccess=True), ask("y")], ["x=b", "y=a"]),
    ],
)
def test_devices_that_differ_for_a_later_request_are_both_tried(
    listed: list[Any], used: list[Any], requests: list[Any], expected: list[str]
) -> None:
    assert allocated([need(*requests)], inventory(devices("n1", *listed)), taken(other=used)) == [expected]


def test_shared_devices_that_differ_in_what_is_left_are_both_tried() -> None:
    made = inventory(devices("n1", *_shared("a", "b")))
    half = msgspec.structs.replace(has("b")[0], consumed=(("memory", 40 * 2**30 * NANO),))
    requests = [ask("x", capacity=_memory("10Gi")), ask("y", capacity=_memory("80Gi"))]
    assert allocated([need(*requests)], made, taken(other=[half])) == [["x=b", "y=a"]]


def test_devices_that_nothing_tells_apart_are_tried_once() -> None:
    alike = [device(f"d{n:02}", attributes={"uuid": f"u{n}", "model": "h100", "numa": n % 2}) for n in range(60)]
    made = inventory(devices("n1", *alike))
    # 30 devices of each NUMA node: no 31 agree. Without the short cut there are 60! / 29! ways to try.
    assert allocated([need(ask(count=31), rules=[_rule("match", "numa")])], made) == _NONE


def test_a_search_without_end_is_cut() -> None:
    different = [device(f"d{n:02}", attributes={"x": n, "y": n}) for n in range(40)]
    made = inventory(devices("n1", *different, device("last", attributes={"x": 99, "y": 0})))
    # All differ in x, and the last request wants what does not exist: each choice of ten leads there.
    hopeless = need(ask(count=10), ask("no", cel=[attribute_is("y", "-1")]), rules=[_rule("distinct", "x")])
    assert allocated([hopeless], made) == DeviceRefusal(RefusalCode.SEARCH_CUT)


def test_many_requests_for_all_devices_are_not_looked_up_without_end() -> None:
    made = inventory(devices("n1", *(device(f"d{n:03}", attributes={"x": n}) for n in range(120))))
    few = [
        ways(f"r{n}", *(ask(f"w{m}", count=None, cel=[attribute_is("x", "0")]) for m in range(8))) for n in range(20)
    ]
    assert allocated([need(*few)], made) == _NONE
    assert allocated([need(*few, *few[:2])], made) == DeviceRefusal(RefusalCode.SEARCH_CUT)


def test_two_kinds_of_broken_constraint_of_all_devices_leave_other_ways_open() -> None:
    made = inventory(devices("n1", *_cards()))
    either = ways("w", ask("all", count=None), ask("one"))
    assert allocated([need(either, rules=[_rule("match", "model", "w/all")])], made) == [["w/one=a"]]


def test_ten_thousand_devices_of_a_node_are_looked_at_in_linear_time() -> None:
    slices = [
        devices(
            f"s{n:03}",
            *(device(f"d{n}-{m}", attributes={"uuid": f"{n}-{m}"}) for m in range(100)),
            pool="n1",
            count=100,
            nodeName="n1",
        )
        for n in range(100)
    ]
    made = inventory(*slices)
    everything = taken(other=has(*(f"d{n}-{m}" for n in range(100) for m in range(100) if (n, m) != (99, 99))))
    assert allocated([need(ask())], made, everything) == [["r=d99-99"]]
    assert allocated([need(ask(count=2))], made, everything) == _NONE


def test_a_device_of_which_others_have_parts_is_not_given_as_a_whole() -> None:
    """Its driver published it as a shared one, and now as one for a single claim."""
    before, now = inventory(devices("n1", *_shared("a"))), inventory(devices("n1", device("a"), device("b")))
    (part,) = _found(before, need(ask(capacity=_memory("30Gi"))))
    used = taken(c0=part.results)
    assert allocated([need(ask())], now, used) == [["r=b"]]
    assert allocated([need(ask(count=2))], now, used) == _NONE
    assert allocated([need(ask(count=None))], now, used) == _NONE


# Nodes of an allocation are those that reach all of its devices.

_R1 = Requirement("rack", "In", ("r1",))
_ZONE = Requirement("zone", "Exists", ())
_NAME = Requirement("metadata.name", "In", ("n1",))


def _open(*labels: Requirement) -> DevicePlace:
    return DevicePlace(terms=(Term(labels, ()),))


@pytest.mark.parametrize(
    ("places", "terms"),
    [
        ([], None),
        ([DevicePlace(is_everywhere=True)], None),
        ([DevicePlace(node="n1")], (Term((), (_NAME,)),)),
        ([_open(_R1), DevicePlace(node="n1")], (Term((), (_NAME,)),)),
        ([_open(_R1), _open(_R1, _ZONE), DevicePlace(is_everywhere=True)], (Term((_R1, _ZONE), ()),)),
        ([DevicePlace(terms=(Term((), (_NAME,)),)), _open(_R1)], (Term((_R1,), (_NAME,)),)),
    ],
)
def test_places_of_devices_are_joined(places: list[DevicePlace], terms: tuple[Term, ...] | None) -> None:
    assert terms_of(places) == terms


# What a request takes of a device that several claims may have (dynamic-resource-allocation, consumable capacity).


def _kind(policy: dict[str, Any] | None, value: str = "10") -> DeviceKind:
    capacity = {"memory": {"value": value, **({"requestPolicy": policy} if policy else {})}}
    return devices("n1", device("a", capacity=capacity)).devices[0].kind


_STEPS = {"default": "2", "validRange": {"min": "2", "max": "8", "step": "3"}}
_VALUES = {"default": "1", "validValues": ["1", "4", "8"]}


@pytest.mark.parametrize(
    ("policy", "asked", "taken"),
    [
        # Without a policy: what is asked, and all of it if nothing is.
        (None, 3, 3),
        (None, None, 10),
        (None, 11, None),
        # In steps from the least amount.
        (_STEPS, None, 2),
        (_STEPS, 1, 2),
        (_STEPS, 2, 2),
        (_STEPS, 3, 5),
        (_STEPS, 6, 8),
        (_STEPS, 9, None),
        ({"default": "2", "validRange": {"min": "2"}}, 7, 7),
        ({"default": "2", "validRange": {"min": "2", "max": "6"}}, 7, None),
        # The next of these values.
        (_VALUES, None, 1),
        (_VALUES, 2, 4),
        (_VALUES, 8, 8),
        (_VALUES, 9, None),
        # The default is allowed although it is none of them.
        ({"default": "3", "validValues": ["1", "4"]}, None, 3),
        ({"default": "3", "validValues": ["1"]}, 3, 3),
        ({"default": "3", "validValues": ["1"]}, 2, None),
        ({"default": "3"}, 5, 5),
    ],
)
def test_what_is_asked_is_rounded_up_to_what_is_offered(
    policy: dict[str, Any] | None, asked: int | None, taken: int | None
) -> None:
    part = part_of(_kind(policy), {} if asked is None else {"memory": asked * NANO})
    assert part == (None if taken is None else {"memory": taken * NANO})


def test_steps_are_whole_units() -> None:
    assert part_of(_kind(_STEPS), {"memory": 2 * NANO + 1}) == {"memory": 5 * NANO}


def test_a_capacity_that_is_not_there_can_not_be_had() -> None:
    assert part_of(_kind(None), {"links": NANO}) is None
    assert part_of(devices("n1", device("a")).devices[0].kind, {}) == {}


# What a share asks of a device that several claims may have at once, and what it gets.

_GIB = 2**30


def _shares_kind(name: str = "memory", value: str = "80Gi", **more: Any) -> DeviceKind:
    made: dict[str, Any] = {"allowMultipleAllocations": True, **more}
    (record,) = devices("a", device("d0", capacity={name: {"value": value}}, **made)).devices
    return record.kind


@pytest.mark.parametrize(
    ("kind", "ask", "asked"),
    [
        (_shares_kind(), FractionAsk(NANO_PER_DEVICE // 4), {"memory": 20 * _GIB}),
        (_shares_kind(), FractionAsk(NANO_PER_DEVICE), {"memory": 80 * _GIB}),
        (_shares_kind(), MemoryAsk(1), {"memory": 2**20}),
        (_shares_kind(), MemoryAsk(100 * 1024), {"memory": 100 * _GIB}),
        (_shares_kind(value="1Mi"), FractionAsk(1), {"memory": 1}),
        (_shares_kind(f"{DRIVER}/memory"), FractionAsk(NANO_PER_DEVICE // 2), {f"{DRIVER}/memory": 40 * _GIB}),
        (_shares_kind("other.example.com/memory"), MemoryAsk(1), None),
        (_shares_kind("cores"), MemoryAsk(1), None),
        (_shares_kind(value="1023Ki"), MemoryAsk(1), None),
        (_shares_kind(allowMultipleAllocations=False), MemoryAsk(1), None),
    ],
)
def test_a_share_asks_for_memory_by_the_name_of_the_driver(
    kind: DeviceKind, ask: SharedAsk, asked: dict[str, int] | None
) -> None:
    wanted = None if asked is None else {name: amount * NANO for name, amount in asked.items()}
    assert share_of(kind, ask) == wanted
    assert is_sharable(kind) is (asked is not None)


@given(st.lists(st.integers(1, NANO_PER_DEVICE), min_size=1, max_size=20), st.integers(24 * _GIB, 200 * _GIB))
def test_fractions_fit_a_device_exactly_if_their_sum_is_no_more_than_one(parts: list[int], memory: int) -> None:
    kind = _shares_kind(value=str(memory))
    used = sum((share_of(kind, FractionAsk(nano)) or {})["memory"] for nano in parts)
    assert (used <= memory * NANO) is (sum(parts) <= NANO_PER_DEVICE)


@pytest.mark.parametrize(
    ("name", "ask", "nano"),
    [
        ("shared", FractionAsk(NANO_PER_DEVICE // 4), NANO_PER_DEVICE // 4),
        ("shared", MemoryAsk(20 * 1024), NANO_PER_DEVICE // 4),
        ("shared", MemoryAsk(81 * 1024), None),
        ("plain", FractionAsk(NANO_PER_DEVICE // 4), None),
        ("gone", FractionAsk(NANO_PER_DEVICE // 4), None),
    ],
)
def test_a_share_gets_a_part_of_a_device_that_is_there_and_has_the_memory(
    name: str, ask: SharedAsk, nano: int | None
) -> None:
    shared = device("shared", allowMultipleAllocations=True, capacity={"memory": {"value": "80Gi"}})
    view = inventory(devices("n1", shared, device("plain"), pool="n1")).view()
    found = claimed_share(has(name)[0], ask, view)
    assert (None if found is None else (found.device, found.nano, found.mem_mib)) == (
        None if nano is None else (name, nano, 80 * 1024)
    )
