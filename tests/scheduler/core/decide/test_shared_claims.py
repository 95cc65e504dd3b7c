"""Members of a gang that share a claim of one node start on a node that takes all of them, if there is one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.decide.allowance import LIMITS, Allowance, cost_of_counting
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.capacity import SharedClaims, joined
from scheduler.core.decide.gang_start import Start, started
from scheduler.core.decide.placer import Placer
from scheduler.core.model.device_requests import DeviceNeed
from scheduler.core.model.plan import Plan, Prepare, Retire
from scheduler.core.model.pod_class import Demand, PodClass, VolumeNeed
from scheduler.core.model.priority_order import order_members
from scheduler.core.model.records import PodRecord
from scheduler.core.scheduling_queue.effects import Effects
from tests.scheduler.core.device_objects import device, written_slice
from tests.scheduler.core.nodes.claiming import GPU, claimed, claiming, offered
from tests.scheduler.core.nodes.mounting import mounting
from tests.scheduler.core.objects import (
    Fed,
    claim,
    cluster,
    feed,
    free_volume,
    node,
    pod,
    pod_group,
    queue,
    reservation,
    storage_class,
    topology,
)
from tests.whole import seeds
from wire import names
from wire.resource import DeviceClass

_OF_GROUP = {
    "apiVersion": "scheduling.k8s.io/v1alpha2",
    "kind": "PodGroup",
    "name": "g",
    "uid": "u",
    "controller": True,
}
_SLOW = storage_class("slow", "WaitForFirstConsumer", provisioner=names.NO_PROVISIONER)
_LEVELS = topology("t", "zone", "rack")
_LAUNCHER, _WORKER = "1", "2"


def _node(name: str, cpu: str) -> Fed:
    return node(name, cpu=cpu, labels={"zone": "z", "rack": f"rack-{name}"})


def _places(plan: Plan) -> dict[str, str]:
    """Where members come to be whose claims are to be written."""
    return {each.name: each.node for entry in plan.entries if isinstance(entry, Prepare) for each in entry.placements}


class _Kind(NamedTuple):
    """A claim of one node, what there is for it on the nodes n1 and n2, and a member that uses it."""

    objects: Sequence[Fed]
    member: Any


def _by_group(name: str, **asked: Any) -> Fed:
    spec = {"schedulingGroup": {"podGroupName": "g"}}
    return claiming(name, template="c", annotations={names.IGNORE_WORKLOAD_API: "true"}, spec=spec, **asked)


_DEVICES = (GPU, offered("n1"), offered("n2"))
_VOLUMES = (_SLOW, free_volume("v1", node="n1"), free_volume("v2", node="n2"))
_KINDS = {
    "by name": _Kind([*_DEVICES, claimed()], lambda name, **asked: claiming(name, "c", **asked)),
    "of the group": _Kind([*_DEVICES, claimed(ownerReferences=[_OF_GROUP])], _by_group),
    "volume": _Kind([*_VOLUMES, claim(storage_class="slow")], lambda name, **asked: mounting(name, "data", **asked)),
}
_PLACES = {
    "anywhere": {},
    **{
        f"{level} {kind}": {"topologyConstraint": {"topology": "t", kind: level}}
        for kind in ("requiredTopologyLevel", "preferredTopologyLevel")
        for level in ("zone", "rack")
    },
}
_ASKED = {
    "classes": (_LAUNCHER, _WORKER, _WORKER, _WORKER),
    "the smallest last": (_WORKER, _WORKER, _WORKER, _LAUNCHER),
    "one class": (_WORKER,) * 4,
}


@pytest.mark.parametrize("asked", _ASKED.values(), ids=_ASKED)
@pytest.mark.parametrize("places", _PLACES.values(), ids=_PLACES)
@pytest.mark.parametrize("kind", _KINDS.values(), ids=_KINDS)
def test_a_gang_whose_claim_a_small_node_could_serve_starts_on_the_large_one(
    kind: _Kind, places: dict[str, Any], asked: Sequence[str]
) -> None:
    members = [kind.member(f"p{number}", group="g", cpu=cpu) for number, cpu in enumerate(asked)]
    made = cluster(_LEVELS, _node("n1", "4"), _node("n2", "16"), *kind.objects, pod_group("g", 4, **places), *members)
    assert _places(made.decide(0)) == dict.fromkeys(["p0", "p1", "p2", "p3"], "n2")


def _gang(members: Sequence[Fed], minimum: int, *nodes: Fed, more: Sequence[Fed] = ()) -> Cluster:
    offers = [offered(each.metadata.name) for each in nodes]
    return cluster(*nodes, GPU, claimed(), *more, *offers, pod_group("g", minimum), *members)


def _sharing(*asked: str) -> list[Fed]:
    return [claiming(f"p{number}", "c", group="g", cpu=cpu) for number, cpu in enumerate(asked)]


@pytest.mark.parametrize(("cpu", "expected"), [("7", {"n1"}), ("6", {"n2"})], ids=["takes all", "takes not all"])
def test_the_best_node_that_takes_all_is_taken(cpu: str, expected: set[str]) -> None:
    made = _gang(_sharing("1", "2", "2", "2"), 4, _node("n1", cpu), _node("n2", "16"))
    assert {*_places(made.decide(0)).values()} == expected


def test_a_gang_that_no_node_takes_waits() -> None:
    made = _gang(_sharing("1", "2", "2", "2"), 4, _node("n1", "6"), _node("n2", "6"))
    assert _places(made.decide(0)) == {}


@pytest.mark.parametrize(("minimum", "expected"), [(4, {"n2"}), (3, {"n1"})])
def test_members_beyond_the_minimum_need_no_room(minimum: int, expected: set[str]) -> None:
    made = _gang(_sharing("1", "2", "2", "20"), minimum, _node("n1", "5"), _node("n2", "25"))
    assert {*_places(made.decide(0)).values()} == expected


def test_members_without_the_claim_go_anywhere() -> None:
    members = [*_sharing("1", "3"), pod("other", group="g", cpu="3")]
    made = _gang(members, 3, _node("n1", "3"), _node("n2", "4"))
    assert _places(made.decide(0)) == {"p0": "n2", "p1": "n2", "other": "n1"}


def test_members_go_together_that_share_claims_with_a_third() -> None:
    members = [
        claiming("a", "c", group="g", cpu="1"),
        claiming("b", "c", "d", group="g", cpu="2"),
        claiming("z", "d", group="g", cpu="3"),
    ]
    nodes = [_node("n1", "5"), _node("n2", "6")]
    made = cluster(*nodes, GPU, *map(claimed, "cd"), offered("n1", 2), offered("n2", 2), pod_group("g", 3), *members)
    assert _places(made.decide(0)) == {"a": "n2", "b": "n2", "z": "n2"}


def test_pairs_that_share_a_claim_each_go_to_different_nodes() -> None:
    members = [claiming(f"{name}{number}", name, group="g", cpu=number) for name in "cd" for number in "12"]
    nodes = [_node("n1", "3"), _node("n2", "3")]
    made = cluster(*nodes, GPU, *map(claimed, "cd"), offered("n1"), offered("n2"), pod_group("g", 4), *members)
    placed = _places(made.decide(0))
    assert placed["c1"] == placed["c2"] != placed["d1"] == placed["d2"]


@pytest.mark.parametrize(("cpu", "is_placed"), [("20", True), ("19", False)])
def test_where_no_node_takes_all_others_start_in_the_place_of_those_that_share_the_claim(
    cpu: str, is_placed: bool
) -> None:
    others = [pod(f"other{number}", group="g", cpu="10") for number in range(2)]
    made = _gang([*_sharing("2", "4", "4"), *others], 4, _node("n1", "4"), _node("n2", "6"), _node("n3", cpu))
    placed = _places(made.decide(0))
    assert placed == ({"p0": "n2", "p1": "n2", "other0": "n3", "other1": "n3"} if is_placed else {})


def test_gpus_of_idle_reservations_count_for_those_that_share_a_claim() -> None:
    members = [claiming(f"p{number}", "c", group="g", gpus=1) for number in range(2)]
    nodes = [node("n1", 1), node("n2", 2)]
    made = _gang(members, 2, *nodes, more=[reservation("idle", "n2")])
    assert [entry.reservation_uid for entry in made.decide(0).entries if isinstance(entry, Retire)] == ["r-idle"]


def test_a_claim_that_serves_several_nodes_keeps_no_members_from_them() -> None:
    """They find a place once the larger disk is chosen first; no node takes both of them."""
    disks = [free_volume("v1", "5Gi", node="n1"), free_volume("v2", node="n2")]
    claims = [claim(name, storage_class="slow", size=size) for name, size in (("x", "1Gi"), ("y", "4Gi"))]
    members = [
        claiming(f"p-{name}", "c", group="g", cpu="3", spec={"volumes": [_mounted(name)]}) for name in ("x", "y")
    ]
    fabric = written_slice("fabric", device("d0"), allNodes=True)
    nodes = [_node("n1", "4"), _node("n2", "4")]
    made = cluster(*nodes, GPU, claimed(), fabric, _SLOW, *disks, *claims, pod_group("g", 2), *members)
    assert _places(made.decide(0)) == {"p-x": "n2", "p-y": "n1"}


def _mounted(name: str) -> dict[str, Any]:
    return {"name": name, "persistentVolumeClaim": {"claimName": name}}


def test_a_gang_that_its_queue_keeps_from_the_large_node_starts_when_the_queue_takes_it() -> None:
    """On the large node memory is a larger part of a card."""
    members = [claiming(f"p{number}", "c", group="g", cpu="3", mem=10_000) for number in range(2)]
    nodes = [node("n1", 1, cpu="4", mem_mib=80_000), node("n2", 1, cpu="16", mem_mib=20_000), node("n3", 1, cpu="1")]
    made = cluster(*nodes, GPU, claimed(), offered("n1"), offered("n2"), queue("a", gpu=(1.6, 1, 1.6)))
    feed(made, pod("old", gpus=1, bound_to="n3", labels={names.QUEUE_LABEL: "a"}))
    feed(made, pod_group("g", 2, queue="a"), *members)
    assert _started(made)[1].held_back is not None
    assert _places(made.decide(0)) == {}
    made.remove_pod("uid-old", has_ended=True)
    assert _places(made.decide(0)) == {"p0": "n2", "p1": "n2"}


def test_a_gang_finds_the_one_node_among_more_domains_than_are_tried() -> None:
    racks = [
        node(f"{half}{rack}", cpu="4", memory=f"{100 + rack}Gi", labels={"zone": "z", "rack": f"r{rack}"})
        for rack in range(65)
        for half in "ab"
    ]
    large = node("large", cpu="64", labels={"zone": "z", "rack": "large"})
    places = {"topologyConstraint": {"topology": "t", "requiredTopologyLevel": "rack"}}
    made = cluster(_LEVELS, *racks, large, GPU, claimed(), *(offered(each.metadata.name) for each in (*racks, large)))
    feed(made, pod_group("g", 3, **places), *_sharing("1", "2", "2"))
    assert {*_places(made.decide(0)).values()} == {"large"}


def _too_small(count: int) -> Cluster:
    """Nodes that have room for all members and no devices for the claims that each has for itself, and one that has."""
    members = [claiming(f"p{number}", "c", f"own{number}", group="g", cpu=str(1 + number)) for number in range(2)]
    small = [_node(f"n{number}", "4") for number in range(count)]
    offers = [*(offered(f"n{number}", 2) for number in range(count)), offered("large", 3)]
    claims = [claimed("c"), claimed("own0"), claimed("own1")]
    return cluster(*small, _node("large", "16"), GPU, *claims, *offers, pod_group("g", 2), *members)


@pytest.mark.parametrize(("small", "expected"), [(1, {"large"}), (7, {"large"}), (8, set())])
def test_a_node_that_was_chosen_in_vain_is_taken_out_seven_times(small: int, expected: set[str]) -> None:
    assert {*_places(_too_small(small).decide(0)).values()} == expected


def test_tries_end_once_they_cost_as_much_as_a_large_start() -> None:
    members = [claiming(f"p{number}", "c", f"own{number}", group="g", cpu="1") for number in range(120)]
    claims = [claimed("c"), *(claimed(f"own{number}") for number in range(120))]
    nodes = [node(f"n{number}", cpu="200", pods=200) for number in range(4)]
    offers = [offered(f"n{number}", 60 + number) for number in range(4)]
    made = cluster(*nodes, GPU, *claims, *offers, pod_group("g", 120), *members)
    attempts, start = _started(made)
    assert not start.is_whole
    assert attempts.allowance.spent < 3 * 120 * 60


def _started(made: Cluster) -> tuple[Attempts, Start]:
    snapshot = made.prepared(0)
    attempts = Attempts(
        snapshot, 0, LIMITS, Allowance(namespaces=1, most=LIMITS.most), Effects(snapshot.scheduling_queue)
    )
    group = snapshot.pod_group("ns", "g")
    assert group is not None
    return attempts, started(order_members(snapshot.waiting_members("ns", "g", 0)), snapshot.quorum(group), attempts)


def test_the_namespace_pays_for_counting_the_nodes_for_each_class_that_shares_a_claim() -> None:
    without, sharing = (
        _started(_gang([pod(f"p{n}", group="g", cpu=str(n + 1), spec=spec) for n in range(20)], 20, _node("n1", "100")))
        for spec in ({}, {"resourceClaims": [{"name": "n", "resourceClaimName": "c"}]})
    )
    assert not without[1].is_whole
    assert not sharing[1].is_whole
    more = sharing[0].allowance.spent_by("ns") - without[0].allowance.spent_by("ns")
    assert more >= (20 + 1) * cost_of_counting(sharing[0].snapshot)


# --- what is shared --------------------------------------------------------------------------------------------------
_ONE, _OTHER = (DeviceNeed(requests=(), claim=("ns", name)) for name in ("c", "d"))
_OWN = DeviceNeed(requests=())
_DISK = VolumeNeed(storage_class="slow", size_bytes=1, claim=("ns", "c"))
_SHARED_DISK = VolumeNeed(storage_class="slow", size_bytes=1, access_modes=("ReadWriteMany",), claim=("ns", "c"))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ([{"devices": (_ONE,)}, {"devices": (_ONE,)}], [[0, 1]]),
        ([{"devices": (_ONE,)}, {"devices": (_OTHER,)}], [[0], [1]]),
        ([{"devices": (_ONE,)}, {"devices": (_OTHER,)}, {"devices": (_ONE, _OTHER)}], [[0, 2, 1]]),
        ([{"devices": (_ONE, _ONE)}, {"devices": (_ONE,)}], [[0, 1]]),
        ([{"devices": (_OWN,)}, {"devices": (_OWN,)}], []),
        ([{"unbound": (_DISK,)}, {"unbound": (_DISK,)}], [[0, 1]]),
        ([{"unbound": (_SHARED_DISK,)}, {"unbound": (_SHARED_DISK,)}], []),
        ([{"unbound": (_DISK,)}, {"devices": (_ONE,)}], [[0], [1]]),
        ([{}, {}], []),
    ],
    ids=["one", "two", "by a third", "twice", "own", "volume", "of many nodes", "of one name", "none"],
)
def test_classes_go_together_by_claims_that_they_share(asked: list[dict[str, Any]], expected: list[list[int]]) -> None:
    classes = [PodClass(demand=Demand(cpu_milli=number), **each) for number, each in enumerate(asked)]
    assert [[classes.index(cls) for cls in part] for part in joined(classes)] == expected


# --- which nodes ------------------------------------------------------------------------------------------------------
def _nodes_for_all(made: Cluster) -> list[str]:
    """Nodes that may take all members of a gang."""
    snapshot = made.prepared(0)
    placer, members = Placer(snapshot), snapshot.waiting_members("ns", "g", 0)
    mask = SharedClaims(members, len(members), placer).nodes_for_all
    return [] if mask is None else [placer.statement.nodes[at].name for at in mask.nonzero()[0].tolist()]


def test_shares_are_counted_class_by_class() -> None:
    members = [claiming(f"p{number}", "c", group="g", fraction="0.6") for number in range(2)]
    launcher = claiming("launcher", "c", group="g", cpu="1")
    assert _nodes_for_all(_gang([*members, launcher], 3, node("n1", 1), node("n2", 2))) == ["n2"]


def test_what_a_claim_may_give_is_not_asked_of_nodes() -> None:
    spec = {"extendedResourceName": names.GPU_RESOURCE}
    by_claim = msgspec.convert({"metadata": {"name": "gpu"}, "spec": spec}, DeviceClass)
    members = [claiming(f"p{number}", "c", group="g", cpu="1", gpus=number) for number in (1, 2)]
    nodes = [node("n1", 0), node("n2", 0, cpu="1"), node("n3", 3)]
    made = cluster(*nodes, by_claim, claimed(), *(offered(f"n{n}", 4) for n in (1, 2, 3)), pod_group("g", 2), *members)
    assert _nodes_for_all(made) == ["n1", "n3"]


def test_a_claim_that_one_member_shares_with_other_pods_asks_for_no_nodes() -> None:
    made = _gang([*_sharing("1"), pod("p1", group="g")], 2, node("n1"), more=[claiming("other", "c")])
    snapshot = made.prepared(0)
    shared = SharedClaims(snapshot.waiting_members("ns", "g", 0), 2, Placer(snapshot))
    assert (shared.has_any, shared.counted) == (False, 0)


# --- compared with all nodes -----------------------------------------------------------------------------------------
def _random(chance: random.Random) -> tuple[Cluster, list[PodRecord]]:
    nodes = [
        node(f"n{n}", chance.randint(0, 4), cpu=str(chance.randint(2, 14)), pods=chance.randint(2, 9)) for n in range(4)
    ]
    kinds: list[dict[str, Any]] = [
        {"cpu": str(chance.randint(1, 4)), "gpus": chance.choice([0, 0, 1])} for _ in range(3)
    ]
    asked = [chance.choice(kinds) for _ in range(chance.randint(2, 6))]
    members = [claiming(f"p{number}", "c", group="g", **each) for number, each in enumerate(asked)]
    offers = [offered(f"n{number}") for number in range(4)]
    made = cluster(*nodes, GPU, claimed(), *offers, pod_group("g", len(members)), *members)
    return made, order_members(made.prepared(0).waiting_members("ns", "g", 0))


def _taking_all(made: Cluster, members: Sequence[PodRecord]) -> list[str]:
    """Nodes on which all members find a place, one after the other."""
    found = []
    for name in ("n0", "n1", "n2", "n3"):
        placer = Placer(made.prepared(0))
        others = placer.all_but(frozenset({"n0", "n1", "n2", "n3"} - {name}))
        if all(placer.place(pod, others) is not None for pod in members):
            found.append(name)
    return found


@pytest.mark.parametrize("seed", seeds(12))
def test_a_gang_starts_exactly_where_a_node_takes_all(seed: int) -> None:
    chance, seen = random.Random(seed), {True: 0, False: 0}
    for _ in range(15):
        made, members = _random(chance)
        taking = _taking_all(made, members)
        assert _nodes_for_all(made) == taking
        placed = _places(made.decide(0))
        assert len(placed) == (len(members) if taking else 0)
        assert {*placed.values()} <= {*taking}
        seen[bool(taking)] += 1
    assert min(seen.values()) > 1, seen
