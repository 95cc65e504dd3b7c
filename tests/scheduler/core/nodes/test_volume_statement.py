"""Claims that wait for their first consumer: which volumes are chosen for them on which node."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import Limits
from scheduler.core.decide.placer import Placer
from scheduler.core.model.plan import Bind, Explain, Gang, Plan, Prepare
from scheduler.core.model.verdict import Code
from scheduler.core.nodes.volume_statement import Refusal
from tests.scheduler.core.nodes.mounting import mounting, places, reasons, told
from tests.scheduler.core.objects import (
    Fed,
    claim,
    cluster,
    commit,
    csi_capacity,
    csi_driver,
    feed,
    free_volume,
    node,
    pod,
    pod_group,
    storage_class,
    volume,
)
from tests.whole import seeds
from wire import names

_WAITS = "WaitForFirstConsumer"
_SLOW = storage_class("slow", _WAITS, provisioner=names.NO_PROVISIONER)
_FAST = storage_class("fast", _WAITS, provisioner="disk.csi.example")
_NODES = (
    node("a", labels={names.HOSTNAME_LABEL: "a", names.ZONE_LABEL: "z1"}),
    node("b", labels={names.HOSTNAME_LABEL: "b", names.ZONE_LABEL: "z2"}),
)


def _wants(name: str = "data", size: str = "1Gi", *, of: str = "slow", **asked: Any) -> Fed:
    return claim(name, storage_class=of, size=size, **asked)


def _chosen(plan: Plan) -> dict[str, tuple[str, dict[str, str]]]:
    """Node and volumes by claim, of each pod whose claims are to be bound."""
    return {
        placement.name: (placement.node, {choice.claim: choice.volume for choice in placement.volumes})
        for entry in plan.entries
        if isinstance(entry, Prepare)
        for placement in entry.placements
    }


def _zones(*zones: str) -> dict[str, Any]:
    return {"allowedTopologies": [{"matchLabelExpressions": [{"key": names.ZONE_LABEL, "values": list(zones)}]}]}


@pytest.mark.parametrize(
    ("volumes", "asked", "expected"),
    [
        ([free_volume("pv", node="b")], {}, ("b", "pv")),
        # The smallest that will do.
        (
            [free_volume("pv1", "3Gi"), free_volume("pv2", "2Gi"), free_volume("pv3", "1Gi")],
            {"size": "2Gi"},
            ("a", "pv2"),
        ),
        # Sizes are exact.
        ([free_volume("pv", "1023Mi")], {}, None),
        ([free_volume("pv", modes=["ReadWriteMany"])], {}, None),
        ([free_volume("pv", modes=["ReadWriteMany", "ReadWriteOnce"])], {}, ("a", "pv")),
        ([free_volume("pv", volumeMode="Block")], {}, None),
        ([free_volume("pv", volumeMode="Block")], {"volumeMode": "Block"}, ("a", "pv")),
        ([free_volume("pv", of="other")], {}, None),
        ([free_volume("pv", volumeAttributesClassName="gold")], {}, None),
        ([free_volume("pv", volumeAttributesClassName="gold")], {"volumeAttributesClassName": "gold"}, ("a", "pv")),
        ([free_volume("pv", phase="Released")], {}, None),
        ([free_volume("pv", phase="Pending")], {}, None),
        (
            [free_volume("pv1"), free_volume("pv2", "9Gi", labels={"disk": "ssd"})],
            {"selector": {"matchLabels": {"disk": "ssd"}}},
            ("a", "pv2"),
        ),
        # One that names the claim comes first, with any labels and modes; one that names another is no choice.
        (
            [free_volume("pv1"), free_volume("pv2", node="b", modes=[], claim_ref={"namespace": "ns", "name": "data"})],
            {"selector": {"matchLabels": {"disk": "ssd"}}},
            ("b", "pv2"),
        ),
        ([free_volume("pv", claim_ref={"namespace": "ns", "name": "other"})], {}, None),
        ([free_volume("pv", claim_ref={"namespace": "ns", "name": "data", "uid": "older"})], {}, None),
    ],
)
def test_a_claim_gets_the_volume_that_kube_scheduler_would_choose(
    volumes: list[Fed], asked: dict[str, Any], expected: tuple[str, str] | None
) -> None:
    made = cluster(*_NODES, _SLOW, *volumes, _wants(**asked), mounting("p", "data"))
    if expected is None:
        assert reasons(made) == {"volume-binding": 2}
    else:
        assert _chosen(made.decide(0)) == {"p": (expected[0], {"data": expected[1]})}


def test_no_volume_is_chosen_for_two_claims() -> None:
    made = cluster(*_NODES, _SLOW, free_volume("pv1", node="a"), free_volume("pv2", "2Gi", node="b"))
    feed(made, *(_wants(name) for name in ("x", "y", "z")), *(mounting(f"p{name}", name) for name in ("x", "y", "z")))
    plan = made.decide(0)
    assert sorted(_chosen(plan).values(), key=str) == [("a", {"x": "pv1"}), ("b", {"y": "pv2"})]
    commit(made, plan)
    assert reasons(made, "uid-pz") == {"volume-binding": 2}


def test_claims_of_one_pod_are_served_smallest_first() -> None:
    made = cluster(*_NODES, _SLOW, free_volume("pv1", "1Gi", node="a"), free_volume("pv2", "5Gi", node="a"))
    feed(made, _wants("large", "2Gi"), _wants("small", "1Gi"), mounting("p", "large", "small"))
    assert _chosen(made.decide(0)) == {"p": ("a", {"small": "pv1", "large": "pv2"})}


def test_a_class_provisions_where_its_topologies_allow() -> None:
    only_b = storage_class("fast", _WAITS, provisioner="disk.csi.example", **_zones("z2", "z3"))
    made = cluster(*_NODES, only_b, _wants(of="fast"), mounting("p", "data"))
    assert _chosen(made.decide(0)) == {"p": ("b", {"data": ""})}
    feed(made, storage_class("fast", _WAITS, provisioner="disk.csi.example", **_zones("z3")))
    assert reasons(made) == {"volume-binding": 2}
    feed(made, _FAST)
    assert _chosen(made.decide(0)) == {"p": ("a", {"data": ""})}


def test_a_claim_that_is_being_provisioned_holds_its_pod_to_that_node() -> None:
    made = cluster(*_NODES, _FAST, _wants(of="fast", node="b"), mounting("p", "data"))
    assert _chosen(made.decide(0)) == {"p": ("b", {"data": ""})}
    feed(made, _wants(of="fast", node="gone"))
    assert reasons(made) == {"volume-binding": 2}
    feed(made, _wants(of="fast"))
    assert _chosen(made.decide(0)) == {"p": ("a", {"data": ""})}


_SPACE = {"a": {names.HOSTNAME_LABEL: "a"}, "b": {names.HOSTNAME_LABEL: "b"}}


@pytest.mark.parametrize(
    ("told_of", "expected"),
    [
        ({"free": "10Gi"}, "a"),
        ({"free": "10Gi", "most": "1Gi"}, None),
        # What is the largest volume says more than what is free.
        ({"free": "1Gi", "most": "10Gi"}, "a"),
        ({}, None),
    ],
)
def test_a_driver_that_tells_its_space_provisions_where_it_has_some(
    told_of: dict[str, str], expected: str | None
) -> None:
    made = cluster(*_NODES, _FAST, csi_driver("disk.csi.example"), _wants(size="2Gi", of="fast"), mounting("p", "data"))
    assert reasons(made) == {"volume-space": 2}
    feed(made, csi_capacity("c", "fast", _SPACE["a"], **told_of))
    if expected is None:
        assert reasons(made) == {"volume-space": 2}
    else:
        assert _chosen(made.decide(0)) == {"p": (expected, {"data": ""})}


def test_space_that_is_promised_is_not_promised_again_until_the_claim_is_bound() -> None:
    made = cluster(*_NODES, _FAST, csi_driver("disk.csi.example"), csi_capacity("c", "fast", {}, free="3Gi"))
    for name in ("x", "y"):
        feed(made, _wants(name, "2Gi", of="fast"), mounting(f"p{name}", name))
    plan = made.decide(0)
    assert _chosen(plan) == {"px": ("a", {"x": ""})}
    commit(made, plan)
    assert reasons(made, "uid-py") == {"volume-space": 2}
    # The claim says so itself now, and the pod is charged no more: the space stays promised.
    feed(made, _wants("x", "2Gi", of="fast", node="a"))
    made.commits.release("uid-px", attempt=0)
    assert _chosen(made.decide(0)) == {"px": ("a", {"x": ""})}
    feed(made, volume("made", of="x"), claim("x", "made"))
    assert _chosen(made.decide(0)) == {"py": ("a", {"y": ""})}


def test_claims_of_one_pod_together_need_the_space() -> None:
    made = cluster(*_NODES, _FAST, csi_driver("disk.csi.example"), csi_capacity("c", "fast", {}, free="3Gi"))
    feed(made, _wants("x", "2Gi", of="fast"), _wants("y", "2Gi", of="fast"), mounting("p", "x", "y"))
    assert reasons(made) == {"volume-space": 2}
    feed(made, csi_capacity("c", "fast", {}, free="4Gi"))
    assert _chosen(made.decide(0)) == {"p": ("a", {"x": "", "y": ""})}


def test_pods_that_share_a_claim_are_placed_where_it_is_chosen_for() -> None:
    made = cluster(*_NODES, _FAST, _wants(of="fast"), mounting("p", "data"), mounting("q", "data"))
    plan = made.decide(0)
    assert _chosen(plan) == {"p": ("a", {"data": ""}), "q": ("a", {"data": ""})}
    commit(made, plan)
    feed(made, mounting("r", "data", spec={"nodeSelector": {names.HOSTNAME_LABEL: "b"}}))
    assert reasons(made, "uid-r") == {"selector": 1, "volume-binding": 1}


_MANY = ["ReadWriteMany"]
_OFF_EACH_OTHER = {"topologyKey": names.HOSTNAME_LABEL, "labelSelector": {}}
_APART = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_OFF_EACH_OTHER]}}}


def _apart(*, by: dict[str, Any], modes: list[str]) -> Cluster:
    """Two pods of a gang, which mount one claim and may not be on one node."""
    of = "fast" if by else "slow"
    classes = (_SLOW, storage_class("fast", _WAITS, provisioner="nfs.csi.example", **by))
    made = cluster(*_NODES, *classes, pod_group("g", 2), _wants(of=of, modes=modes))
    feed(made, *(mounting(name, "data", group="g", spec=_APART) for name in ("p", "q")))
    return made


@pytest.mark.parametrize("modes", [["ReadWriteMany"], ["ReadOnlyMany"], ["ReadWriteOnce", "ReadWriteMany"]])
def test_pods_on_several_nodes_share_a_claim_that_may_be_mounted_there(modes: list[str]) -> None:
    made = _apart(by=_zones("z1", "z2"), modes=modes)
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Prepare)
    assert {(each.name, each.node) for each in entry.placements} == {("p", "a"), ("q", "b")}
    # Both have it made for the node of the first.
    assert {(choice.node, choice.volume) for each in entry.placements for choice in each.volumes} == {("a", "")}


def test_pods_on_several_nodes_share_a_volume_that_both_reach() -> None:
    made = _apart(by={}, modes=["ReadWriteMany"])
    feed(made, free_volume("here", node="a", modes=_MANY))
    assert _chosen(made.decide(0)) == {}
    feed(made, free_volume("everywhere", "2Gi", modes=_MANY))
    assert _chosen(made.decide(0)) == {}  # the smallest that will do is that of node a
    made = _apart(by={}, modes=["ReadWriteMany"])
    feed(made, free_volume("everywhere", modes=_MANY))
    assert _chosen(made.decide(0)) == {"p": ("a", {"data": "everywhere"}), "q": ("b", {"data": "everywhere"})}


@pytest.mark.parametrize(
    ("by", "modes"),
    [(_zones("z1"), ["ReadWriteMany"]), (_zones("z1", "z2"), ["ReadWriteOnce"]), (_zones("z1", "z2"), [])],
    ids=["made for one zone only", "for one node", "no modes"],
)
def test_pods_on_several_nodes_share_no_other_claim(by: dict[str, Any], modes: list[str]) -> None:
    assert _chosen(_apart(by=by, modes=modes).decide(0)) == {}


def test_a_pod_that_comes_while_a_claim_is_bound_may_go_elsewhere_if_the_claim_serves_many_nodes() -> None:
    for modes, expected in ((["ReadWriteMany"], {"q": ("b", {"data": ""})}), (["ReadWriteOnce"], {})):
        made = cluster(*_NODES, _FAST, _wants(of="fast", modes=modes), mounting("p", "data", spec=_APART))
        commit(made, made.decide(0))
        feed(made, mounting("q", "data", spec=_APART))
        plan = made.decide(0)
        assert _chosen(plan) == expected
        assert {c.node for e in plan.entries if isinstance(e, Prepare) for p in e.placements for c in p.volumes} <= {
            "a"
        }


def test_a_gang_is_prepared_whole_and_only_if_all_find_volumes() -> None:
    made = cluster(*_NODES, _SLOW, pod_group("g", 2), free_volume("pv1", node="a"), _wants("x"), _wants("y"))
    feed(made, mounting("px", "x", group="g"), mounting("py", "y", group="g"))
    assert _chosen(made.decide(0)) == {}
    feed(made, free_volume("pv2", node="b"))
    (entry,) = made.decide(0).entries
    assert isinstance(entry, Prepare)
    assert {(each.name, each.node, each.volumes[0].volume) for each in entry.placements} == {
        ("px", "a", "pv1"),
        ("py", "b", "pv2"),
    }
    # Once they are bound it starts as any gang.
    feed(made, volume("pv1", of="x"), volume("pv2", of="y"), claim("x", "pv1"), claim("y", "pv2"))
    assert [type(each) for each in made.decide(0).entries] == [Gang]


@pytest.mark.parametrize("sizes", [("1Gi", "4Gi"), ("4Gi", "1Gi")])
def test_a_small_claim_of_a_gang_leaves_the_volume_that_a_large_one_needs(sizes: tuple[str, str]) -> None:
    made = cluster(*_NODES, _SLOW, free_volume("pv1", "5Gi", node="a"), free_volume("pv2", node="b"), pod_group("g", 2))
    for name, size in zip("xy", sizes, strict=True):
        feed(made, _wants(name, size), mounting(f"p{name}", name, group="g"))
    large, small = ("x", "y") if sizes[0] == "4Gi" else ("y", "x")
    assert _chosen(made.decide(0)) == {f"p{large}": ("a", {large: "pv1"}), f"p{small}": ("b", {small: "pv2"})}


def test_members_without_claims_are_charged_while_those_of_others_are_bound() -> None:
    made = cluster(*_NODES, _FAST, pod_group("g", 2), _wants(of="fast"))
    feed(made, mounting("p", "data", group="g"), mounting("q", group="g"))
    plan = made.decide(0)
    assert {name: chosen for name, (_, chosen) in _chosen(plan).items()} == {"p": {"data": ""}, "q": {}}
    commit(made, plan)
    assert made.decide(0).entries == ()


def test_a_pod_is_placed_by_the_usual_rules_once_its_claims_are_bound() -> None:
    made = cluster(*_NODES, _FAST, _wants(of="fast"), mounting("p", "data"))
    commit(made, made.decide(0))
    assert made.decide(0).entries == ()
    feed(
        made,
        volume(
            "pv", affinity=[{"matchExpressions": [{"key": names.HOSTNAME_LABEL, "operator": "In", "values": ["b"]}]}]
        ),
    )
    feed(made, claim("data", "pv"))
    made.commits.release("uid-p", attempt=0)
    assert places(made.decide(0)) == {"p": "b"}


def test_a_claim_that_can_not_be_read_keeps_its_pod_waiting() -> None:
    selector = {"matchExpressions": [{"key": "disk", "operator": "In", "values": [str(n) for n in range(5000)]}]}
    made = cluster(*_NODES, _FAST, _wants(of="fast", size="much"), mounting("p", "data"))
    assert told(made) == (Code.CLAIM_NOT_READABLE, "data")
    feed(made, _wants(of="fast", selector=selector))
    assert told(made) == (Code.CLAIM_NOT_READABLE, "data")
    feed(made, _wants(of="fast"))
    assert _chosen(made.decide(0)) == {"p": ("a", {"data": ""})}


def test_a_pod_with_more_claims_than_anybody_means_waits() -> None:
    claims = [f"c{n}" for n in range(33)]
    made = cluster(*_NODES, _FAST, *(_wants(name, of="fast") for name in claims), mounting("p", *claims))
    assert told(made)[0] is Code.UNSUPPORTED_CONSTRAINT
    feed(made, volume("pv", of="c0"), claim("c0", "pv"))
    assert set(_chosen(made.decide(0))) == {"p"}


@pytest.mark.parametrize("kind", ["volumes", "drivers", "capacities"])
def test_a_kind_that_can_not_be_read_keeps_pods_waiting_that_depend_on_it(kind: str) -> None:
    made = cluster(*_NODES, _FAST, csi_driver("disk.csi.example"), csi_capacity("c", "fast", {}, free="3Gi"))
    feed(made, _wants(of="fast"), mounting("p", "data"))
    facts = made.storage.volumes if kind == "volumes" else getattr(made.storage.offers, kind)
    facts.expect()
    assert told(made)[0] is Code.NOT_READ
    facts.note_in_step(True)
    assert set(_chosen(made.decide(0))) == {"p"}


def test_an_event_of_one_class_touches_no_pod_that_waits_for_another() -> None:
    made = cluster(*_NODES, _SLOW, _FAST, _wants(), mounting("p", "data"))
    made.decide(0)
    before = made.generation
    feed(made, free_volume("other", of="fast"))
    assert made.generation == before
    feed(made, free_volume("pv"))
    assert made.generation > before


# --- compared with every choice that there is -----------------------------------------------------------------------
_SIZES = ("1Gi", "2Gi", "3Gi")


def _random_world(rng: random.Random) -> tuple[list[str], list[tuple[str, str, str]], list[tuple[str, str]]]:
    """Nodes; volumes as name, size and node ("": all); claims of the pod as name and size."""
    nodes = [f"n{i}" for i in range(rng.randint(1, 4))]
    volumes = [(f"pv{i}", rng.choice(_SIZES), rng.choice([*nodes, ""])) for i in range(rng.randint(0, 6))]
    claims = [(f"c{i}", rng.choice(_SIZES)) for i in range(rng.randint(1, 3))]
    return nodes, volumes, claims


def _assignable(where: str, volumes: Sequence[tuple[str, str, str]], claims: Sequence[tuple[str, str]]) -> bool:
    """Whether each claim can have a volume of its own there: all orders are tried."""
    there = [(name, size) for name, size, at in volumes if at in {where, ""}]
    return any(
        all(size >= asked for (_, size), (_, asked) in zip(picked, claims, strict=True))
        for picked in itertools.permutations(there, len(claims))
    )


@pytest.mark.parametrize("seed", seeds(60))
def test_a_node_has_volumes_for_a_pod_if_there_is_any_way_to_give_each_claim_one(seed: int) -> None:
    rng = random.Random(seed)
    nodes, volumes, claims = _random_world(rng)
    for where in nodes:
        made = cluster(*(node(name, labels={names.HOSTNAME_LABEL: name}) for name in nodes), _SLOW)
        feed(made, *(free_volume(name, size, node=at) for name, size, at in volumes))
        feed(made, *(_wants(name, size) for name, size in claims))
        feed(made, mounting("p", *(name for name, _ in claims), spec={"nodeSelector": {names.HOSTNAME_LABEL: where}}))
        found = _chosen(made.decide(0))
        assert bool(found) == _assignable(where, volumes, claims), (where, volumes, claims)
        if found:
            size_of = {name: (size, at) for name, size, at in volumes}
            picked = found["p"][1]
            assert len(set(picked.values())) == len(claims)
            for name, asked in claims:
                size, at = size_of[picked[name]]
                assert size >= asked
                assert at in {where, ""}


@pytest.mark.parametrize("seed", seeds(60))
def test_what_is_said_of_all_nodes_at_once_is_what_is_chosen_on_each(seed: int) -> None:
    rng = random.Random(seed)
    nodes, volumes, claims = _random_world(rng)
    made = cluster(*(node(name, labels={names.HOSTNAME_LABEL: name, names.ZONE_LABEL: name}) for name in nodes), _SLOW)
    feed(made, storage_class("fast", _WAITS, provisioner="disk.csi.example", **_zones(*nodes[1:]) if nodes[1:] else {}))
    if rng.random() < 0.4:
        feed(made, csi_driver("disk.csi.example"))
        feed(made, *(csi_capacity(n, "fast", {names.HOSTNAME_LABEL: n}, free=rng.choice(_SIZES)) for n in nodes))
    feed(made, *(free_volume(name, size, node=at, of=rng.choice(["slow", "fast"])) for name, size, at in volumes))
    feed(made, *(_wants(name, size, of=rng.choice(["slow", "fast"])) for name, size in claims))
    feed(made, mounting("p", *(name for name, _ in claims)))
    snapshot = made.snapshot()
    (pod,) = snapshot.waiting(map(snapshot.pods.records.__getitem__, snapshot.pods.unbound))
    binding, needs = Placer(snapshot).statement.binding, pod.cls.unbound
    chosen = [binding.choose(position, needs) for position in range(len(nodes))]
    assert binding.fits(needs, slice(None)).tolist() == [not isinstance(each, Refusal) for each in chosen]
    refused = {why: where.tolist() for why, where in binding.refusals(needs).items()}
    assert refused == {why: [each is why for each in chosen] for why in Refusal}


def test_pods_with_many_claims_leave_others_their_turn() -> None:
    made = cluster(*(node(f"n{i:03}", labels={names.ZONE_LABEL: "z1"}) for i in range(60)), _FAST)
    feed(made, csi_driver("disk.csi.example"), csi_capacity("c", "fast", {names.ZONE_LABEL: "z1"}, free="1Gi"))
    for number in range(20):
        of_it = [f"c{number}-{i}" for i in range(20)]
        feed(made, *(_wants(name, f"{2 + number}Gi", of="fast") for name in of_it))
        feed(made, mounting(f"p{number}", *of_it))
    late = pod("late", gpus=1, namespace="other", created="2026-02-01T00:00:00Z")
    feed(made, late)
    plan = made.decide(0, Limits(most=5_000, retold=0))
    assert [entry.placement.name for entry in plan.entries if isinstance(entry, Bind)] == ["late"]
    told = {uid for entry in plan.entries if isinstance(entry, Explain) for uid in entry.pods}
    assert 0 < len(told) < 10
    assert plan.wake_at_ns == 0


@pytest.mark.parametrize("seed", seeds(40))
def test_a_decision_promises_no_volume_and_no_space_twice(seed: int) -> None:
    rng = random.Random(seed)
    nodes, volumes, _ = _random_world(rng)
    made = cluster(*(node(name, gpus=8, labels={names.HOSTNAME_LABEL: name}) for name in nodes), _SLOW, _FAST)
    feed(made, csi_driver("disk.csi.example"))
    free = {name: rng.randint(0, 6) for name in nodes}
    feed(made, *(csi_capacity(n, "fast", {names.HOSTNAME_LABEL: n}, free=f"{gib}Gi") for n, gib in free.items()))
    feed(made, *(free_volume(name, size, node=at) for name, size, at in volumes))
    sizes = {}
    for i in range(8):
        size = rng.choice(_SIZES)
        sizes[f"c{i}"] = int(size[0])
        feed(made, _wants(f"c{i}", size, of=rng.choice(["slow", "fast"])))
    feed(made, pod_group("g", 3), *(mounting(f"m{i}", f"c{i}", group="g") for i in range(3)))
    feed(made, *(mounting(f"p{i}", f"c{i}") for i in range(3, 8)))
    for _ in range(3):
        plan = made.decide(0)
        commit(made, plan)
        if rng.random() < 0.5 and _chosen(plan):
            _give_one_back(made, rng)
    in_flight = [(choice.node, choice) for _, choices in made.commits.volumes_in_flight() for choice in choices]
    used = Counter(choice.volume for _, choice in in_flight if choice.volume)
    assert not used or max(used.values()) == 1
    for name, gib in free.items():
        assert sum(sizes[choice.claim] for at, choice in in_flight if at == name and not choice.volume) <= gib
    assert made.validate() == []


def _give_one_back(made: Cluster, rng: random.Random) -> None:
    flight = rng.choice(made.commits.flights())
    made.commits.release(flight.placement.pod_uid, attempt=flight.placement.number)


def test_pods_with_bound_claims_are_bound_at_once() -> None:
    made = cluster(*_NODES, claim("data", "pv"), volume("pv"), mounting("p", "data"))
    assert [type(entry) for entry in made.decide(0).entries] == [Bind]


@pytest.mark.parametrize(
    ("gpus", "members", "minimum", "expected"),
    [
        ((1, 4), 4, 4, {"b"}),
        ((1, 2, 3, 4), 3, 3, {"c"}),  # the smallest that takes all
        ((1, 3), 5, 3, {"b"}),  # as many as have to start
        ((1, 1, 1, 1), 4, 4, set()),
        ((1, 4), 1, 1, {"a"}),
    ],
)
def test_a_gang_that_shares_a_claim_of_one_node_starts_where_all_fit(
    gpus: tuple[int, ...], members: int, minimum: int, expected: set[str]
) -> None:
    nodes = (node(name, count) for name, count in zip("abcd", gpus, strict=False))
    made = cluster(*nodes, _FAST, _wants("data", of="fast"), pod_group("g", minimum))
    feed(made, *(mounting(f"p{number}", "data", group="g") for number in range(members)))
    assert {where for where, _ in _chosen(made.decide(0)).values()} == expected


def test_members_without_the_shared_claim_go_anywhere() -> None:
    made = cluster(node("a", 1), node("b", 2), _FAST, _wants("data", of="fast"), pod_group("g", 3))
    feed(made, *(mounting(f"p{number}", "data", group="g") for number in range(2)), mounting("q", group="g"))
    assert {name: where for name, (where, _) in _chosen(made.decide(0)).items()} == {"p0": "b", "p1": "b", "q": "a"}
