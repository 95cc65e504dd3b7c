"""ResourceClaims that are not allocated: which devices are chosen for them on which node."""

from __future__ import annotations

import random
import time
from typing import Any

import msgspec
import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import Limits
from scheduler.core.decide.attempts import SEARCHED_ON_NS
from scheduler.core.decide.placer import Placer
from scheduler.core.model.plan import Bind, Explain, Gang, Plan, Prepare
from scheduler.core.model.verdict import Code, Verdict
from tests.scheduler.core.device_objects import DRIVER, ask, device, written_slice
from tests.scheduler.core.nodes.claiming import GPU, chosen, claimed, claiming, offered, reserve
from tests.scheduler.core.nodes.mounting import places, reasons
from tests.scheduler.core.objects import Fed, cluster, commit, feed, node, pod, pod_group, reservation
from verification.hostile import slow_selectors
from wire.resource import ResourceClaim

#: The effort of a node whose answer is kept: asking it, and one claim.
CHOOSING_ONE = 9
_NODES = (node("a", gpus=0), node("b", gpus=0))


def test_a_node_without_devices_is_out_and_says_so() -> None:
    made = cluster(*_NODES, GPU, offered("b"), claimed(), claiming("p", "c"))
    assert chosen(made.decide(0)) == {"p": ("b", {"c": "d0"})}
    without = cluster(*_NODES, GPU, claimed(), claiming("p", "c"))
    assert reasons(without) == {"claim-devices": 2}


def test_no_device_is_chosen_for_two_claims_of_one_decision_or_of_two() -> None:
    made = cluster(*_NODES, GPU, offered("a"), offered("b"), *(claimed(name) for name in "xyz"))
    feed(made, *(claiming(f"p{name}", name) for name in "xyz"))
    plan = made.decide(0)
    assert chosen(plan) == {"px": ("a", {"x": "d0"}), "py": ("b", {"y": "d0"})}
    commit(made, plan)
    assert reasons(made, "uid-pz") == {"claim-devices": 2}
    reserve(made, plan)
    assert reasons(made, "uid-pz") == {"claim-devices": 2}


def test_devices_of_claims_that_others_allocated_are_taken_until_they_give_them_back() -> None:
    made = cluster(*_NODES, GPU, offered("a"), claimed("theirs", on=("a", "d0")), claimed(), claiming("p", "c"))
    assert reasons(made) == {"claim-devices": 2}
    feed(made, claimed("theirs"))
    assert chosen(made.decide(0)) == {"p": ("a", {"c": "d0"})}


def test_all_claims_of_a_pod_are_served_on_one_node() -> None:
    made = cluster(*_NODES, GPU, offered("a"), offered("b", 3), claimed("x"), claimed("y", ask(count=2)))
    feed(made, claiming("p", "x", "y"))
    assert chosen(made.decide(0)) == {"p": ("b", {"x": "d0", "y": "d1,d2"})}


def test_a_claim_that_two_pods_use_is_chosen_for_once_and_both_go_where_it_is() -> None:
    made = cluster(*_NODES, GPU, offered("a"), offered("b"), claimed(), claiming("p", "c"), claiming("q", "c"))
    plan = made.decide(0)
    assert chosen(plan) == {"p": ("a", {"c": "d0"}), "q": ("a", {"c": "d0"})}
    commit(made, plan)
    feed(made, claiming("r", "c"))
    assert chosen(made.decide(0)) == {"r": ("a", {"c": "d0"})}


def test_a_pod_that_comes_to_use_a_claim_on_its_way_goes_where_it_is() -> None:
    made = cluster(*_NODES, GPU, offered("a"), offered("b", 3), claimed("big", ask(count=2)), claiming("p", "big"))
    commit(made, made.decide(0))
    feed(made, claiming("q", "big"), claimed("last"), claiming("r", "last"))
    assert chosen(made.decide(0)) == {"q": ("b", {"big": "d0,d1"}), "r": ("a", {"last": "d0"})}


def test_pods_whose_claims_are_reserved_are_bound_where_these_are() -> None:
    made = cluster(*_NODES, GPU, offered("b"), claimed(), claiming("p", "c"))
    reserve(made, made.decide(0))
    assert places(made.decide(0)) == {"p": "b"}


@pytest.mark.parametrize(("devices", "is_started"), [(3, True), (2, False)])
def test_a_gang_is_prepared_as_a_whole_or_not_at_all(devices: int, is_started: bool) -> None:
    members = [claiming(name, f"c{name}", group="g") for name in "xyz"]
    made = cluster(*_NODES, GPU, offered("a", devices), *(claimed(f"c{name}") for name in "xyz"), pod_group("g", 3))
    feed(made, *members)
    plan = made.decide(0)
    assert sorted(chosen(plan)) == (["x", "y", "z"] if is_started else [])
    assert sum(isinstance(entry, Prepare) for entry in plan.entries) == is_started
    if not is_started:
        return
    reserve(made, plan)
    (gang,) = (entry for entry in made.decide(0).entries if not isinstance(entry, Explain))
    assert isinstance(gang, Gang)


@pytest.mark.parametrize(("minimum", "expected"), [(2, []), (1, ["x"])])
@pytest.mark.parametrize("is_allocated", [True, False])
def test_no_more_members_start_than_may_use_a_claim(minimum: int, expected: list[str], is_allocated: bool) -> None:
    others = tuple(f"other-{number}" for number in range(255))
    shared = claimed(on=("a", "d0") if is_allocated else None, by=others)
    made = cluster(*_NODES, GPU, offered("a"), shared, pod_group("g", minimum))
    feed(made, *(claiming(name, "c", group="g") for name in "xy"))
    plan = made.decide(0)
    assert list(chosen(plan)) == expected
    told = [entry.verdict for entry in plan.entries if isinstance(entry, Explain)]
    refused = [] if expected else [(Code.RESOURCE_CLAIM_IN_USE, "c")]
    assert [(verdict.code, verdict.detail) for verdict in told] == refused


@pytest.mark.parametrize(("gpus", "expected"), [((1, 2), {"b"}), ((1, 1), set()), ((2, 3), {"a"})])
def test_a_gang_that_shares_a_claim_starts_where_all_fit(gpus: tuple[int, int], expected: set[str]) -> None:
    made = cluster(
        *(node(name, count) for name, count in zip("ab", gpus, strict=True)), GPU, offered("a"), offered("b")
    )
    feed(made, claimed(), pod_group("g", 2), *(claiming(name, "c", group="g", gpus=1) for name in "xy"))
    assert {where for where, _ in chosen(made.decide(0)).values()} == expected


def test_a_pod_for_which_a_claim_has_no_place_gets_it_when_the_pod_before_it_fails() -> None:
    shared = claimed(on=("a", "d0"), by=tuple(f"other-{number}" for number in range(255)))
    made = cluster(*_NODES, GPU, offered("a"), shared, *(claiming(name, "c") for name in "xy"))
    plan = made.decide(0)
    assert list(chosen(plan)) == ["x"]
    commit(made, plan)
    made.decide(0)
    (placed,) = (placement for entry in plan.entries if isinstance(entry, Prepare) for placement in entry.placements)
    made.commits.failed(placed.pod_uid, "", "Refused: it is", now_ns=0)
    made.commits.release(placed.pod_uid, attempt=placed.number)
    assert list(chosen(made.decide(0))) == ["y"]


def test_what_a_gang_that_fits_nowhere_had_taken_is_there_for_the_next_pod() -> None:
    made = cluster(*_NODES, GPU, offered("a", 2), *(claimed(f"c{name}") for name in "xyz"), pod_group("g", 3))
    feed(made, *(claiming(name, f"c{name}", group="g") for name in "xyz"), claimed("late", ask(count=2)))
    feed(made, claiming("alone", "late", created="2026-01-02T00:00:00Z"))
    assert chosen(made.decide(0)) == {"alone": ("a", {"late": "d0,d1"})}


def test_devices_that_all_nodes_reach_are_given_once() -> None:
    made = cluster(*_NODES, GPU, offered("net", allNodes=True), claimed("x"), claimed("y"))
    feed(made, claiming("p", "x"), claiming("q", "y"))
    assert list(chosen(made.decide(0))) == ["p"]
    assert reasons(made, "uid-q") == {"claim-devices": 2}


def test_a_claim_beside_whole_gpus_needs_a_node_with_both() -> None:
    made = cluster(node("a", gpus=1), node("b", gpus=0), GPU, offered("b"), claimed(), claiming("p", "c", gpus=1))
    assert reasons(made) == {"claim-devices": 1, "insufficient": 1}
    feed(made, offered("a"))
    assert chosen(made.decide(0)) == {"p": ("a", {"c": "d0"})}
    assert not any(isinstance(entry, Bind) for entry in made.decide(0).entries)


def test_searching_for_devices_of_many_classes_leaves_a_turn_to_other_namespaces() -> None:
    names = [f"n{number}" for number in range(50)]
    made = cluster(node("free"), *(node(name, gpus=0) for name in names), GPU, *map(offered, names))
    for number in range(40):
        feed(made, claimed(f"c{number}", ask(f"r{number}", count=2)), claiming(f"p{number}", f"c{number}"))
    feed(made, pod("late", gpus=1, namespace="other", created="2026-02-01T00:00:00Z"))
    plan = made.decide(0, Limits(most=10_000, retold=0))
    assert [entry.placement.name for entry in plan.entries if isinstance(entry, Bind)] == ["late"]
    told = {uid for entry in plan.entries if isinstance(entry, Explain) for uid in entry.pods}
    assert 0 < len(told) < 40
    assert plan.wake_at_ns == 0


def _searching_long() -> Cluster:
    """A pod whose claim has place on the last of nine nodes, and no end of ways that lead nowhere on the others."""
    crowded = [device(f"d{number}", attributes={"number": number}) for number in range(16)]
    names = [f"n{number}" for number in range(8)]
    made = cluster(*(node(name, gpus=0) for name in (*names, "z")), GPU)
    feed(made, *(written_slice(name, *crowded) for name in names))
    large = [device(f"d{number}", attributes={"number": number}, capacity={"m": {"value": "1"}}) for number in range(9)]
    feed(made, written_slice("z", *large))
    asked = claimed("c", ask("many", count=8), ask("large", capacity={"requests": {"m": "1"}}))
    written = msgspec.to_builtins(asked)
    written["spec"]["devices"]["constraints"] = [{"distinctAttribute": f"{DRIVER}/number"}]
    feed(made, msgspec.convert(written, ResourceClaim))
    return made


def test_a_decision_searches_long_on_a_few_nodes_and_the_next_ones_on_further_nodes() -> None:
    made, turns = _searching_long(), 0
    feed(made, claiming("p", "c"))
    while not chosen(made.decide(0)):
        turns += 1
        assert reasons(made) == {"claim-search": 9}
        assert turns < 5
        feed(made, pod(f"other-{turns}", gpus=9))
    assert turns > 1
    assert chosen(made.decide(0))["p"][0] == "z"


@pytest.mark.parametrize("is_gang", [False, True])
def test_a_search_that_was_cut_short_goes_on_though_nothing_happens(is_gang: bool) -> None:
    made, now_ns, turns = _searching_long(), 0, 0
    feed(made, *([pod_group("g", 1)] if is_gang else []), claiming("p", "c", group="g" if is_gang else ""))
    while not chosen(plan := made.decide(now_ns)):
        turns += 1
        assert turns < 8
        assert plan.wake_at_ns is not None
        now_ns = plan.wake_at_ns
    assert turns > 1
    assert chosen(made.decide(now_ns))["p"][0] == "z"


@pytest.mark.parametrize("is_gang", [False, True])
def test_a_search_that_was_cut_short_leaves_the_next_decision_to_others_of_the_namespace(is_gang: bool) -> None:
    made = _searching_long()
    feed(made, *([pod_group("g", 1)] if is_gang else []), claiming("p", "c", group="g" if is_gang else ""))
    feed(made, node("free", gpus=1), pod("late", gpus=1, created="2026-02-01T00:00:00Z"))
    made.decide(0)
    plan = made.decide(1)
    assert [entry.placement.name for entry in plan.entries if isinstance(entry, Bind)] == ["late"]
    assert plan.wake_at_ns == SEARCHED_ON_NS


def test_a_search_that_was_cut_short_has_nobody_else_searched_for_again() -> None:
    made = _searching_long()
    large = claimed("too-large", ask(capacity={"requests": {"m": "1Ti"}}))
    feed(made, large, claiming("p", "c"), claiming("q", "too-large"), claiming("r", "c", "too-large"))
    snapshot = made.snapshot()
    placer = Placer(snapshot)
    asked = {name: snapshot.judged(snapshot.pods.records[f"uid-{name}"], 0) for name in "pqr"}
    for name in "pq":
        assert placer.place(asked[name]) is None
    cut = {name: placer.statement.allocating.is_cut_short(each.cls.devices) for name, each in asked.items()}
    assert cut == {"p": True, "q": False, "r": True}


@pytest.mark.parametrize("number", range(len(slow_selectors.known())))
def test_a_selector_that_would_take_long_keeps_its_pod_waiting_with_the_reason_and_nobody_else(number: int) -> None:
    made = cluster(*_NODES, node("free", gpus=1), GPU, offered("a"), offered("b"))
    for name in "xyz":
        slow = slow_selectors.known(ord(name))[number]
        feed(made, claimed(name, ask(cel=[slow])), claiming(f"p{name}", name))
    feed(made, pod("honest", gpus=1, namespace="other", created="2026-02-01T00:00:00Z"))
    before = time.thread_time()
    plan = made.decide(0)
    assert time.thread_time() - before < 1
    assert [entry.placement.name for entry in plan.entries if isinstance(entry, Bind)] == ["honest"]
    verdict = _verdict(plan, "uid-px")
    assert {each.kind: each.nodes for each in verdict.node_reasons} == {"claim-selector": 2, "claim-devices": 1}
    assert verdict.selector.startswith("selector ")
    assert verdict.selector.endswith(": it may take more than 5,000 microseconds for a device")


def _verdict(plan: Plan, uid: str) -> Verdict:
    return next(entry.verdict for entry in plan.entries if isinstance(entry, Explain) and uid in entry.pods)


def test_selectors_that_may_be_evaluated_are_for_a_while_and_later_decisions_get_further() -> None:
    """Each device takes 3 ms at most, and there are 200 in all: one decision judges some twenty."""
    ones = ", ".join(["1"] * 1_000)
    loop = f"device.attributes['{DRIVER}'].uuid == 'u199' && ![{ones}].exists(x, x > 1)"
    names = [f"n{number:02}" for number in range(20)]
    made = cluster(*(node(name, gpus=0) for name in names), node("free", gpus=1), GPU)
    for at, name in enumerate(names):
        listed = [device(f"d{n}", attributes={"uuid": f"u{at * 10 + n}"}) for n in range(10)]
        feed(made, written_slice(name, *listed))
    feed(made, claimed("c", ask(cel=[loop])), claiming("p", "c"))
    feed(made, pod("honest", gpus=1, namespace="other", created="2026-02-01T00:00:00Z"))
    plan, spent, now_ns, turns = made.decide(0), made.claims.inventory.view().effort_spent, 0, 1
    assert [entry.placement.name for entry in plan.entries if isinstance(entry, Bind)] == ["honest"]
    commit(made, plan)
    while not chosen(plan):
        assert 0 < spent < 100_000
        turns += 1
        assert turns < 30
        assert plan.wake_at_ns is not None
        now_ns, before = plan.wake_at_ns, made.claims.inventory.view().effort_spent
        plan = made.decide(now_ns)
        spent = made.claims.inventory.view().effort_spent - before
    assert turns > 3
    assert chosen(plan) == {"p": ("n19", {"c": "d9"})}


def test_decisions_of_a_cluster_that_has_seen_much_are_those_of_one_that_sees_the_same_at_once() -> None:
    dice = random.Random(5)
    placed = 0
    for _ in range(20):
        seen: dict[str, Fed] = {"gpu": GPU, **{f"node {each.metadata.name}": each for each in _NODES}}
        made = cluster(*seen.values())
        for step in range(30):
            key, obj = _anything(dice, step)
            seen[key] = obj
            feed(made, obj)
            found = chosen(made.decide(0))
            placed += len(found)
            assert found == chosen(cluster(*seen.values()).decide(0)), (step, key)
    assert placed > 200


def _anything(dice: random.Random, step: int) -> tuple[str, Fed]:
    number, at = dice.randrange(3), dice.choice("ab")
    match dice.randrange(5):
        case 0 | 1:
            held = dice.choice([None, None, (at, f"d{dice.randrange(3)}")])
            return f"claim {number}", claimed(f"c{number}", on=held, by=("other",) if held else ())
        case 2:
            return f"slice {at}", offered(at, dice.randrange(4))
        case 3:
            return f"pod {number}", claiming(f"p{number}", f"c{number}", cpu=str(1 + dice.randrange(2)))
        case _:
            cordoned = dice.random() < 0.3
            return f"node {at}", node(at, gpus=0, labels={"step": str(step)}, cordoned=cordoned)


def test_answers_are_kept_until_something_is_charged_or_given_back() -> None:
    made = cluster(*_NODES, GPU, offered("a"), claimed("x"), claimed("y"), claiming("p", "x"), claiming("q", "y"))
    snapshot = made.snapshot()
    statement = Placer(snapshot).statement
    p, q = sorted(made.waiting(), key=lambda each: each.name)
    allocating, needs = statement.allocating, p.cls.devices
    first = allocating.fits(needs, slice(None)).tolist()
    effort = allocating.take_effort()
    assert (first, allocating.fits(needs, slice(None)).tolist(), allocating.take_effort()) == (first, first, 0)
    assert sum(first) == 1 < effort
    at = first.index(True)
    found = allocating.choose(at, needs)
    assert isinstance(found, tuple)
    choices = allocating.choices(p, found)
    allocating.take(choices)
    assert not allocating.fits(q.cls.devices, slice(None)).any()
    allocating.give_back(at, choices)
    assert allocating.fits(needs, slice(None)).tolist() == first


def test_answers_outlive_a_decision_beside_devices_that_reservations_hold_until_those_change() -> None:
    """Each decision would search all nodes again on which shares run beside a driver that publishes the same GPUs."""
    uuids = [device(f"d{number}", attributes={"uuid": f"GPU-{number}"}) for number in range(2)]
    made = cluster(node("a", gpus=2), GPU, written_slice("a", *uuids), claimed("x"), claiming("p", "x"))
    feed(made, reservation("g", "a", uuid="GPU-0"))

    def answer() -> tuple[str, bool]:
        (pod_,) = made.waiting()
        allocating = Placer(made.snapshot()).statement.allocating
        found = allocating.choose(0, pod_.cls.devices)
        searched = allocating.take_effort() > CHOOSING_ONE
        return ("" if not isinstance(found, tuple) else found[0].results[0].device), searched

    assert [answer(), answer(), answer()] == [("d1", True), ("d1", False), ("d1", False)]
    feed(made, reservation("h", "a", uuid="GPU-1"))
    assert [answer(), answer()] == [("", True), ("", False)]
    made.remove_pod("r-g")
    assert [answer(), answer()] == [("d0", True), ("d0", False)]
    feed(made, claimed("theirs", on=("a", "d0")))
    assert [answer(), answer()] == [("", True), ("", False)]


_ON_B = {"p": ("b", {"x": "d0"})}


@pytest.mark.parametrize(
    ("place", "expected"),
    [({"nodeName": "b"}, _ON_B), ({"nodeName": "a"}, {}), ({"allNodes": True}, _ON_B)],
    ids=["another node's", "the node's own", "a pool of all nodes"],
)
def test_a_reservation_keeps_a_uuid_from_claims_on_its_own_node_only(
    place: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Emulated GPUs have the same UUIDs on each node. A driver that publishes a node's GPUs for others is wrong."""
    published = written_slice("s", device("d0", attributes={"uuid": "GPU-0"}), pool="pool", **place)
    made = cluster(node("a", gpus=1), node("b"), GPU, published, claimed("x"), claiming("p", "x"))
    feed(made, reservation("g", "a", uuid="GPU-0"))
    assert chosen(made.decide(0)) == expected
