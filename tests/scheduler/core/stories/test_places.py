"""Gangs that ask for places: domains of a Topology that hold all their pods, or had better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.convert.pod_groups import topology_record
from scheduler.core.decide.gang_search import place_bounds
from scheduler.core.model.plan import Explain, Plan, Retire, placements
from scheduler.core.model.verdict import Code, DomainRoom, TopologyCause, Verdict
from tests.scheduler.core.objects import cluster, feed, node, pod, pod_group, reservation, topology
from tests.values import there
from wire.core import Node, Pod

TREE = topology("t", "zone", "rack", "host")


def _nodes(**free: int) -> list[Node]:
    """Nodes ``zone_rack_host`` with so many GPUs."""
    found = []
    for name, gpus in free.items():
        zone, rack, _ = name.split("_")
        labels = {"zone": zone, "rack": rack, "host": name}
        found.append(node(name.replace("_", "-"), gpus=gpus, labels=labels))
    return found


def _asks(required: str = "", preferred: str = "", topology: str = "t") -> Mapping[str, str]:
    levels = {"requiredTopologyLevel": required, "preferredTopologyLevel": preferred}
    return {"topology": topology, **{name: level for name, level in levels.items() if level}}


def _members(count: int, gpus: int = 1, *, subgroup: str = "", name: str = "m", **given: Any) -> list[Pod]:
    return [pod(f"{name}{n}", gpus=gpus, group="g", subgroup=subgroup, **given) for n in range(count)]


def _places(plan: Plan) -> dict[str, str]:
    return {placed.name: placed.node for placed in placements(plan.entries)}


def _racks_decided(made: Cluster) -> dict[str, int]:
    return _racks(made.decide(0))


def _racks(plan: Plan) -> dict[str, int]:
    """Pods by rack."""
    found: dict[str, int] = {}
    for placed in placements(plan.entries):
        rack = placed.node.rpartition("-")[0]
        found[rack] = found.get(rack, 0) + 1
    return found


def _verdict(plan: Plan, name: str = "m0") -> Verdict:
    return next(each.verdict for each in plan.entries if isinstance(each, Explain) and f"uid-{name}" in each.pods)


def _gang(made: Sequence[Node], *members: Pod, minimum: int | None = None, **spec: Any) -> Cluster:
    return cluster(TREE, *made, pod_group("g", minimum, **spec), *members)


@pytest.mark.parametrize(
    ("nodes", "asks", "count", "racks"),
    [
        pytest.param({"a_x_1": 2, "a_y_1": 4, "a_z_1": 8}, _asks("rack"), 3, {"a-y": 3}, id="the tightest rack"),
        pytest.param({"a_x_1": 2, "a_x_2": 2, "a_y_1": 3}, _asks("rack"), 4, {"a-x": 4}, id="several hosts of a rack"),
        pytest.param({"a_x_1": 2, "b_x_1": 2, "b_y_1": 2}, _asks("zone"), 4, {"b-x": 2, "b-y": 2}, id="a zone"),
        pytest.param({"a_x_1": 2, "b_y_1": 2, "b_z_1": 1}, _asks("zone", "rack"), 2, {"a-x": 2}, id="preferred inside"),
        pytest.param(
            {"a_x_1": 2, "a_y_1": 1, "b_y_1": 2}, _asks("zone", "rack"), 3, {"a-x": 2, "a-y": 1}, id="level up"
        ),
        pytest.param({"a_x_1": 2, "b_y_1": 2}, _asks(preferred="rack"), 3, {"a-x": 2, "b-y": 1}, id="only preferred"),
        pytest.param({"a_x_1": 2, "a_x_2": 2, "a_y_1": 4}, _asks("rack", "host"), 4, {"a-y": 4}, id="one host"),
    ],
)
def test_equal_pods_go_to_the_tightest_domain_of_the_deepest_level_that_takes_them(
    nodes: Mapping[str, int], asks: Mapping[str, str], count: int, racks: Mapping[str, int]
) -> None:
    made = _gang(_nodes(**nodes), *_members(count), minimum=count, topologyConstraint=asks)
    assert _racks(made.decide(0)) == racks


def test_a_gang_that_no_domain_of_the_required_level_takes_waits_and_names_the_best_three() -> None:
    nodes = _nodes(a_v_1=1, a_w_1=3, a_x_1=2, b_y_1=2, b_z_1=1)
    made = _gang(nodes, *_members(4), minimum=4, topologyConstraint=_asks("rack"))
    plan = made.decide(0)
    assert _places(plan) == {}
    verdict = _verdict(plan)
    assert verdict.code is Code.TOPOLOGY_NOT_SATISFIED
    assert verdict.topology is not None
    assert [(each.name, each.pods) for each in verdict.topology.best] == [("a.w", 3), ("a.x", 2), ("b.y", 2)]
    assert (verdict.topology.required, verdict.topology.owner) == (4, "ns/g")


@pytest.mark.parametrize(
    ("asks", "code"),
    [
        (_asks("rack", topology="other"), Code.TOPOLOGY_NOT_FOUND),
        (_asks(preferred="rack", topology="other"), Code.TOPOLOGY_NOT_FOUND),
        (_asks("row"), Code.TOPOLOGY_LEVEL_NOT_FOUND),
        (_asks("zone", "row"), Code.TOPOLOGY_LEVEL_NOT_FOUND),
    ],
)
def test_what_is_not_there_is_never_guessed_at(asks: Mapping[str, str], code: Code) -> None:
    made = _gang(_nodes(a_x_1=8), *_members(2), minimum=2, topologyConstraint=asks)
    plan = made.decide(0)
    assert (_places(plan), _verdict(plan).code) == ({}, code)


def test_a_gang_that_names_any_topology_runs_in_a_domain_of_the_one_that_has_the_level() -> None:
    made = _gang(_nodes(a_x_1=2, a_y_1=4), *_members(3), minimum=3, topologyConstraint=_asks("rack", topology="*"))
    feed(made, topology("other", "row"))
    assert _racks(made.decide(0)) == {"a-y": 3}


def test_a_gang_that_names_any_topology_waits_while_none_or_several_have_the_level() -> None:
    asks = _asks("row", topology="*")
    made = _gang(_nodes(a_x_1=8), *_members(2), minimum=2, topologyConstraint=asks)
    verdict = _verdict(made.decide(0))
    assert (verdict.code, verdict.detail) == (Code.TOPOLOGY_NOT_FOUND, "with level row")
    feed(made, topology("one", "row"), *(topology(name, "zone", "row") for name in ("two", "as-two")))
    verdict = _verdict(made.decide(0))
    assert (verdict.code, verdict.topology and verdict.topology.topology) == (Code.TOPOLOGY_AMBIGUOUS, "as-two, one")
    made.topologies.of_kai.drop(topology_record(topology("one", "row")))
    feed(made, node("a-x-1", gpus=8, labels={"zone": "a", "row": "r"}))
    assert len(_places(made.decide(0))) == 2


def test_a_gang_that_names_a_label_alone_runs_on_nodes_with_one_value_of_it() -> None:
    nodes = [*_nodes(a_x_1=1, a_y_1=2, b_x_1=2), node("without", gpus=8, labels={"zone": "c"})]
    made = _gang(nodes, *_members(3), minimum=3, topologyConstraint=_asks("rack", topology="(label)"))
    # Racks x of two zones are two domains of the Topology, and one of the label.
    assert sorted(set(_places(made.decide(0)).values())) == ["a-x-1", "b-x-1"]


def test_a_gang_that_names_a_label_alone_waits_until_one_value_has_room() -> None:
    asks = _asks("row", topology="(label)")
    made = _gang(_nodes(a_x_1=8), *_members(3), minimum=3, topologyConstraint=asks)
    assert _places(made.decide(0)) == {}
    feed(made, node("a-x-1", gpus=2, labels={"row": "1"}), node("a-x-2", gpus=1, labels={"row": "2"}))
    verdict = _verdict(made.decide(0))
    assert (verdict.code, verdict.topology and verdict.topology.level) == (Code.TOPOLOGY_NOT_SATISFIED, "row")
    feed(made, node("a-x-2", gpus=1, labels={"row": "1"}))
    assert len(_places(made.decide(0))) == 3


def test_a_gang_waits_for_kueues_topologies_where_they_are_not_read_and_kais_have_no_such_level() -> None:
    made = _gang(_nodes(a_x_1=8), *_members(2), minimum=2, topologyConstraint=_asks("row", topology="*"))
    made.topologies.of_kueue.expect()
    verdict = _verdict(made.decide(0))
    assert (verdict.code, verdict.detail) == (Code.NOT_READ, "topologies.kueue.x-k8s.io")
    made.topologies.of_kueue.put(topology_record(topology("t", "row")))
    made.topologies.of_kueue.note_in_step(True)
    assert _verdict(made.decide(0)).code is Code.TOPOLOGY_NOT_FOUND, "KAI's of the same name counts, without the level"


def test_a_gang_starts_once_its_topology_is_there_or_has_the_level() -> None:
    made = _gang(_nodes(a_x_1=8), *_members(2), minimum=2, topologyConstraint=_asks("row", topology="other"))
    assert _places(made.decide(0)) == {}
    feed(made, topology("other", "zone"))
    assert _verdict(made.decide(0)).code is Code.TOPOLOGY_LEVEL_NOT_FOUND
    feed(made, topology("other", "zone", aliases=["row"]))
    assert len(_places(made.decide(0))) == 2


def test_a_gang_that_found_no_domain_starts_once_one_has_room() -> None:
    nodes = _nodes(a_x_1=2, a_x_2=2, b_y_1=2)
    other = pod("other", gpus=1, bound_to="a-x-1")
    made = _gang(nodes, other, *_members(4), minimum=4, topologyConstraint=_asks("rack"))
    assert _places(made.decide(0)) == {}
    made.remove_pod("uid-other")
    assert _racks(made.decide(0)) == {"a-x": 4}


def test_subgroups_are_in_domains_inside_that_of_their_parent() -> None:
    nodes = _nodes(a_x_1=2, b_y_1=2, b_z_1=2)
    subgroups = [{"name": name, "minMember": 2, "topologyConstraint": _asks("rack")} for name in ("one", "two")]
    members = [*_members(2, subgroup="one", name="p"), *_members(2, subgroup="two", name="q")]
    made = _gang(nodes, *members, subGroups=subgroups, topologyConstraint=_asks("zone"))
    places = _places(made.decide(0))
    assert {name: node[:3] for name, node in places.items()} == {"p0": "b-y", "p1": "b-y", "q0": "b-z", "q1": "b-z"}


def test_a_subgroup_that_finds_no_domain_is_named() -> None:
    nodes = _nodes(a_x_1=2, b_y_1=1, b_z_1=1)
    subgroups = [{"name": name, "minMember": 2, "topologyConstraint": _asks("rack")} for name in ("one", "two")]
    members = [*_members(2, subgroup="one"), *_members(2, subgroup="two", name="q")]
    plan = _gang(nodes, *members, subGroups=subgroups).decide(0)
    cause = there(_verdict(plan).topology)
    assert (cause.subgroup, [(each.name, each.pods) for each in cause.best]) == (
        "two",
        [("b.y", 1), ("b.z", 1), ("a.x", 0)],
    )


def test_of_subgroups_that_may_stand_in_for_each_other_those_start_that_find_domains() -> None:
    nodes = _nodes(a_x_1=2, b_y_1=3)
    wanted = [("one", 4), ("two", 2), ("three", 3)]
    subgroups = [{"name": n, "minMember": m, "topologyConstraint": _asks("rack")} for n, m in wanted]
    members = [each for name, count in wanted for each in _members(count, subgroup=name, name=name)]
    made = _gang(nodes, *members, subGroups=subgroups, minSubGroup=2)
    assert {name.rstrip("0123") for name in _places(made.decide(0))} == {"two", "three"}


def test_who_runs_already_pins_the_required_domain() -> None:
    nodes = _nodes(a_x_1=4, b_y_1=8)
    runs = pod("m9", gpus=1, group="g", bound_to="b-y-1")
    made = _gang(nodes, runs, *_members(3), minimum=4, topologyConstraint=_asks("rack"))
    assert _racks(made.decide(0)) == {"b-y": 3}


def test_members_beyond_the_minimum_stay_in_the_required_domain_and_prefer_the_racks_of_others() -> None:
    nodes = _nodes(a_x_1=1, a_y_1=3, b_z_1=1)
    runs = pod("m9", gpus=1, group="g", bound_to="a-y-1")
    made = _gang(nodes, runs, *_members(4), minimum=1, topologyConstraint=_asks("zone", "rack"))
    plan = made.decide(0)
    assert _racks(plan) == {"a-y": 2, "a-x": 1}
    waiting = ({f"m{n}" for n in range(4)} - _places(plan).keys()).pop()
    assert _verdict(plan, waiting).code is Code.TOPOLOGY_NOT_SATISFIED


def test_a_member_beyond_the_minimum_is_placed_once_there_is_room_in_its_domain() -> None:
    nodes = _nodes(a_x_1=2, b_z_1=4)
    runs, other = pod("m9", gpus=1, group="g", bound_to="a-x-1"), pod("other", gpus=1, bound_to="a-x-1")
    made = _gang(nodes, runs, other, *_members(1), minimum=1, topologyConstraint=_asks("zone"))
    plan = made.decide(0)
    assert _places(plan) == {}
    best = (DomainRoom("a", 0),)
    cause = TopologyCause(topology="t", level="zone", owner="ns/g", required=1, best=best)
    assert _verdict(plan) == Verdict(code=Code.TOPOLOGY_NOT_SATISFIED, topology=cause)
    assert made.scheduling_queue.awake_gangs() == []
    made.remove_pod("uid-other")
    assert _places(made.decide(2)) == {"m0": "a-x-1"}


def test_of_the_domains_in_which_pods_of_a_gang_run_that_with_most_of_them_comes_first() -> None:
    nodes = _nodes(a_x_1=4, a_y_1=4, b_z_1=4)
    runs = (pod(f"r{number}", gpus=1, group="g", bound_to="b-z-1") for number in range(2))
    made = _gang(nodes, *runs, *_members(1), minimum=1, topologyConstraint=_asks("zone", "rack"))
    snapshot = made.snapshot()
    group = there(snapshot.pod_group("ns", "g"))
    bounds = place_bounds(snapshot, group)
    assert not isinstance(bounds, Verdict)
    position_of = snapshot.ledger.in_order().position_of
    for name in ("a-x-1", "a-y-1", "a-y-1", "a-y-1"):
        bounds[0].add(position_of[name])
    assert [bounds[0].tree.name(domain) for domain in bounds[0].held_by(2)] == ["a.y", "b.z", "a.x"]
    assert [bounds[0].tree.name(domain) for domain in bounds[0].held_by(1)] == ["a", "b"]


def test_a_node_that_gets_other_labels_takes_the_domain_of_its_pods_along() -> None:
    nodes = _nodes(a_x_1=1, b_y_1=4)
    runs = pod("m9", gpus=1, group="g", bound_to="a-x-1")
    made = _gang(nodes, runs, *_members(1), minimum=1, topologyConstraint=_asks("rack"))
    assert _places(made.decide(0)) == {}
    feed(made, node("a-x-1", gpus=1, labels={"zone": "b", "rack": "y"}))
    assert _places(made.decide(1)) == {"m0": "b-y-1"}


def test_gangs_that_ask_the_same_sleep_in_one_line() -> None:
    nodes = _nodes(a_x_1=2, b_y_1=2)
    groups = [pod_group(name, 3, topologyConstraint=_asks("rack")) for name in ("g", "h")]
    members = [pod(f"{name}{n}", gpus=1, group=name) for name in ("g", "h") for n in range(3)]
    made = cluster(TREE, *nodes, *groups, *members)
    plan = made.decide(0)
    assert {_verdict(plan, name).code for name in ("g0", "h0")} == {Code.TOPOLOGY_NOT_SATISFIED}
    feed(made, *_nodes(a_x_2=4, b_y_2=1))
    assert {name[0] for name in _places(made.decide(1))} == {"g", "h"}


def test_idle_reservations_go_where_no_domain_has_room_without_their_gpus() -> None:
    nodes = _nodes(a_x_1=2, b_y_1=1)
    made = _gang(nodes, *_members(2), minimum=2, topologyConstraint=_asks("rack"))
    feed(made, reservation("idle", "a-x-1"))
    plan = made.decide(0)
    assert [each for each in plan.entries if isinstance(each, Retire)] != []
    assert _verdict(plan).code is Code.WAITING_FOR_DEVICE


def test_nothing_goes_where_a_domain_has_room() -> None:
    nodes = _nodes(a_x_1=2, b_y_1=2)
    made = _gang(nodes, *_members(2), minimum=2, topologyConstraint=_asks("rack"))
    feed(made, reservation("idle", "a-x-1"))
    assert _racks(made.decide(0)) == {"b-y": 2}


def test_what_the_minimum_asks_beyond_subgroups_stays_in_their_domains() -> None:
    nodes = _nodes(a_x_1=3, b_y_1=3, c_z_1=8)
    subgroups = [{"name": name, "minMember": 2, "topologyConstraint": _asks("rack")} for name in ("one", "two")]
    members = [each for name in ("one", "two") for each in _members(3, subgroup=name, name=name)]
    made = _gang(nodes, *members, minimum=6, subGroups=subgroups)
    places = _places(made.decide(0))
    assert len(places) == 6
    assert [len({places[f"{name}{n}"] for n in range(3)}) for name in ("one", "two")] == [1, 1]


def test_a_gang_does_not_start_beyond_its_subgroups_in_other_domains() -> None:
    nodes = _nodes(a_x_1=2, b_y_1=2, c_z_1=1)
    subgroups = [{"name": name, "minMember": 2, "topologyConstraint": _asks("rack")} for name in ("one", "two")]
    members = [each for name in ("one", "two") for each in _members(3, subgroup=name, name=name)]
    made = _gang(nodes, *members, minimum=5, subGroups=subgroups)
    assert _places(made.decide(0)) == {}


@pytest.mark.parametrize("subgroup", ["", "s"])
def test_where_one_member_fits_in_no_domain_others_start_in_its_place(subgroup: str) -> None:
    large, others = pod("big", gpus=9, group="g", subgroup=subgroup, priority=9), _members(2, subgroup=subgroup)
    spec: dict[str, Any] = {"minimum": 2, "topologyConstraint": _asks("rack")}
    if subgroup:
        spec = {"subGroups": [{"name": subgroup, "minMember": 2, "topologyConstraint": _asks("rack")}]}
    made = _gang(_nodes(a_x_1=2, b_y_1=1), large, *others, **spec)
    assert _places(made.decide(0)) == {"m0": "a-x-1", "m1": "a-x-1"}


def _nested(levels: int, **asked: Any) -> list[Mapping[str, Any]]:
    """Subgroups below each other, each of which may do without a second one beside the next."""
    found: list[Mapping[str, Any]] = []
    for level in range(levels):
        parent = {"parent": f"s{level - 1}"} if level else {}
        found.append({"name": f"s{level}", "minSubGroup": 1, **parent, **asked})
        found.append({"name": f"t{level}", "parent": f"s{level}", "minMember": 1})
    return [*found, {"name": "leaf", "parent": f"s{levels - 1}", "minMember": 1}]


@pytest.mark.parametrize(("levels", "is_placed"), [(40, True), (70, False), (1_500, False)])
def test_subgroups_far_below_each_other_are_not_searched(levels: int, is_placed: bool) -> None:
    subgroups = _nested(levels)
    members = [*_members(1, subgroup="leaf"), *_members(1, subgroup=f"t{levels - 1}", name="o")]
    made = _gang(_nodes(a_x_1=4), *members, subGroups=subgroups, topologyConstraint=_asks("rack"))
    plan = made.decide(0)
    assert bool(_places(plan)) == is_placed
    assert is_placed or _verdict(plan).code is Code.UNSUPPORTED_CONSTRAINT


def test_constraints_far_below_each_other_are_not_searched() -> None:
    subgroups = _nested(20, topologyConstraint=_asks("rack"))
    made = _gang(_nodes(a_x_1=4), *_members(1, subgroup="leaf"), subGroups=subgroups)
    assert _verdict(made.decide(0)).code is Code.UNSUPPORTED_CONSTRAINT


@pytest.mark.thorough
def test_a_gang_of_600_subgroups_with_a_rack_each_starts() -> None:
    subgroups = [{"name": f"s{n}", "minMember": 1, "topologyConstraint": _asks("rack")} for n in range(600)]
    members = [each for n in range(600) for each in _members(1, subgroup=f"s{n}", name=f"s{n}-")]
    nodes = [node(f"n{n:03}", gpus=8, labels={"zone": "a", "rack": f"r{n // 2}"}) for n in range(80)]
    made = _gang(nodes, *members, subGroups=subgroups)
    assert len(_places(made.decide(0))) == 600


def test_where_a_subgroup_failed_does_not_count_for_others_of_it() -> None:
    subgroups = [
        {"name": "either", "minSubGroup": 1, "topologyConstraint": _asks("zone")},
        {"name": "one", "parent": "either", "minMember": 3},
        {"name": "two", "parent": "either", "minMember": 3},
    ]
    members = [*_members(3, subgroup="one", name="p"), *_members(3, subgroup="two", name="q", cpu="1")]
    made = _gang(_nodes(a_x_1=3, b_x_1=2), *members, minimum=4, subGroups=subgroups)
    assert _places(made.decide(0)) == {}


def test_a_subgroup_without_a_minimum_is_in_one_domain_with_those_that_the_gang_needs_of_it() -> None:
    subgroups = [{"name": "main", "minMember": 1}, {"name": "workers", "topologyConstraint": _asks("rack")}]
    members = [*_members(1, subgroup="main", name="m"), *_members(3, subgroup="workers", name="w")]
    made = _gang(_nodes(a_x_1=2, b_y_1=3), *members, minimum=4, subGroups=subgroups)
    assert _places(made.decide(0)) == {"m0": "a-x-1", **dict.fromkeys(("w0", "w1", "w2"), "b-y-1")}


def _racked(**sizes: int) -> tuple[list[Mapping[str, Any]], list[Pod]]:
    """Subgroups of a rack each, and their members."""
    subgroups = [{"name": n, "minMember": size, "topologyConstraint": _asks("rack")} for n, size in sizes.items()]
    return [*subgroups], [each for n, size in sizes.items() for each in _members(size, subgroup=n, name=n)]


def test_subgroups_that_ask_most_choose_first() -> None:
    subgroups, members = _racked(a=2, b=3, c=3)
    made = _gang(_nodes(a_x_1=5, b_y_1=3), *members, subGroups=subgroups)
    assert len(_places(made.decide(0))) == 8


def test_subgroups_that_run_somewhere_choose_before_those_that_may_go_anywhere() -> None:
    subgroups, members = _racked(a=1, b=2)
    runs = pod("b9", gpus=1, group="g", subgroup="b", bound_to="a-x-1")
    made = _gang(_nodes(a_x_1=2, b_y_1=3), runs, *members[:2], subGroups=subgroups)
    assert _places(made.decide(0)) == {"a0": "b-y-1", "b0": "a-x-1"}


# Where places of gangs differ from KAI's on purpose (docs/reference/differences.md): each row by a name.

TREE_OF_TWO = topology("t", "zone", "rack")


def _node(zone: str, rack: str, number: int = 0, gpus: int = 8, **given: object) -> Node:
    labels = {"zone": zone, **({"rack": rack} if rack else {})}
    return node(f"{zone}-{rack}-{number}", gpus=gpus, labels=labels, **given)  # type: ignore[arg-type] # by the test


def _unlike_kai(nodes: Sequence[Node], members: Sequence[Pod], *others: Pod, **levels: str) -> Cluster:
    asked = {"topology": "t", **levels}
    return cluster(TREE_OF_TWO, *nodes, *others, pod_group("g", len(members), topologyConstraint=asked), *members)


def _equal(count: int, gpus: int = 1) -> list[Pod]:
    return [pod(f"m{number}", gpus=gpus, group="g") for number in range(count)]


def test_the_tightest_rack_of_all_zones_is_taken_and_not_the_first_of_the_tightest_zone() -> None:
    nodes = [_node("a", "x", gpus=6), _node("b", "y", gpus=4), _node("b", "z", gpus=8)]
    assert _racks_decided(_unlike_kai(nodes, _equal(4), requiredTopologyLevel="rack")) == {"b-y": 4}


@pytest.mark.parametrize("racks", [20, 100])
def test_a_preferred_level_keeps_to_as_few_racks_as_possible_however_many_there_are(racks: int) -> None:
    nodes = [_node("a", f"r{rack:03}", gpus=2 + rack % 4) for rack in range(racks)]
    found = _racks_decided(_unlike_kai(nodes, _equal(12), preferredTopologyLevel="rack"))
    assert sorted(found.values()) == [2, 5, 5]


def test_nodes_that_the_pods_may_not_use_are_no_room() -> None:
    closed = _node("a", "x", number=1, taints=[("k", "v", "NoSchedule")])
    nodes = [_node("a", "x", gpus=2), closed, _node("b", "y", gpus=16)]
    assert _racks_decided(_unlike_kai(nodes, _equal(4), requiredTopologyLevel="rack")) == {"b-y": 4}


@pytest.mark.parametrize("gpus", [(4, 1, 1), (4, 1, 0)], ids=["largest pod", "pod without GPU"])
def test_pods_of_a_gang_count_as_what_they_are(gpus: Sequence[int]) -> None:
    nodes = [_node("a", "x", 0, gpus=4), _node("a", "x", 1, gpus=1), _node("a", "x", 2, gpus=1)]
    members = [pod(f"m{number}", gpus=count, cpu="1", group="g") for number, count in enumerate(gpus)]
    assert _racks_decided(_unlike_kai(nodes, members, requiredTopologyLevel="rack")) == {"a-x": 3}


def test_halves_of_two_devices_are_no_whole_one() -> None:
    books = [
        reservation(f"g{n}", "a-x-0", book={f"t{n}": 500_000_000}, uuid=f"GPU-{n}", uid=f"uid-r{n}") for n in range(4)
    ]
    nodes = [_node("a", "x", gpus=4), _node("b", "y", gpus=4)]
    members = [pod(f"m{number}", fraction="0.6", group="g") for number in range(2)]
    assert _racks_decided(_unlike_kai(nodes, members, *books, requiredTopologyLevel="rack")) == {"b-y": 2}


def test_a_node_without_one_label_counts_for_the_levels_above_it() -> None:
    nodes = [_node("a", "x", gpus=2), _node("a", "", gpus=2), _node("b", "y", gpus=3)]
    assert _racks_decided(_unlike_kai(nodes, _equal(4), requiredTopologyLevel="zone")) == {
        "a-x": 2,
        "a-": 2,
    }
