"""Topologies: nodes by level, which Topology a name means, and the domain that is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from random import Random

import numpy as np
import pytest

from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.pod_groups import topology_record
from scheduler.core.model.records import LevelConstraint
from scheduler.core.topology.topologies import ROOT, Domain, Part, Slots, Topologies, Tree, tree_of
from tests.scheduler.core.objects import cluster, feed, node, topology
from tests.scheduler.core.topology import worlds
from tests.values import there
from tests.whole import seeds

# Nodes by level, against brute force.


@pytest.mark.parametrize("seed", seeds(200))
def test_domains_are_the_nodes_with_equal_labels_down_to_the_level(seed: int) -> None:
    of = worlds.nodes(Random(seed))
    tree = worlds.tree(of)
    for level in range(tree.depth + 1):
        found = [(tree.name(d), set(tree.order[d.start : d.end].tolist())) for d in tree.domains(level)]
        assert found == [(".".join(path), nodes) for path, nodes in sorted(worlds.by_path(of, level).items())]


@pytest.mark.parametrize("seed", seeds(100))
def test_the_domain_of_a_node_and_those_around_it(seed: int) -> None:
    of = worlds.nodes(Random(seed))
    tree = worlds.tree(of)
    places = tree.places().tolist()
    for position in range(len(of)):
        for level in range(tree.depth + 1):
            found = tree.domain_of(places[position], level)
            wanted = next((nodes for nodes in worlds.by_path(of, level).values() if position in nodes), None)
            assert (found is None) == (wanted is None)
            if found is not None:
                assert set(tree.mask(found).nonzero()[0].tolist()) == wanted
                assert all(tree.around(found, above).start <= found.start for above in range(level))


def test_a_node_counts_for_the_levels_above_the_first_label_that_it_lacks() -> None:
    labels = {"zone": "a", "host": "n1"}
    tree = tree_of([node_record(node(labels=labels))], ["zone", "rack", "host"])
    assert [len(tree.domains(level)) for level in range(4)] == [1, 1, 0, 0]


def test_domains_of_equal_values_in_different_domains_above_are_different() -> None:
    of = [node_record(node(f"n{zone}", labels={"zone": zone, "rack": "r1"})) for zone in "ab"]
    tree = tree_of(of, ["zone", "rack"])
    assert [tree.name(each) for each in tree.domains(2)] == ["a.r1", "b.r1"]


def test_an_empty_value_is_a_value() -> None:
    of = [node_record(node("n1", labels={"zone": ""})), node_record(node("n2"))]
    tree = tree_of(of, ["zone"])
    assert tree.domains(1) == [Domain(1, 1, 2)]
    assert tree.order.tolist() == [1, 0]


def test_a_topology_without_nodes_has_an_empty_root() -> None:
    assert tree_of([], ["zone"]).domains(ROOT) == [Domain(0, 0, 0)]


# Which Topology a name means, and until when sorted nodes are kept.


def test_sorted_nodes_are_kept_until_labels_change_or_nodes_come_and_go() -> None:
    made = cluster(topology("t", "rack"), node("n1", labels={"rack": "a"}), node("n2", labels={"rack": "b"}))
    record = there(made.topologies.get("t"))
    tree = made.topologies.tree(record, made.ledger)
    feed(made, node("n1", gpus=4, cordoned=True, labels={"rack": "a"}))
    assert made.topologies.tree(record, made.ledger) is tree
    feed(made, node("n1", gpus=4, cordoned=True, labels={"rack": "b"}))
    changed = made.topologies.tree(record, made.ledger)
    assert [changed.name(each) for each in changed.domains(1)] == ["b"]
    made.remove_node("n1")
    assert len(made.topologies.tree(record, made.ledger).order) == 1


def test_a_copy_of_a_ledger_with_other_labels_has_its_own_order() -> None:
    made = cluster(topology("t", "rack"), node("n1", labels={"rack": "a"}))
    record = there(made.topologies.get("t"))
    tree, copy = made.topologies.tree(record, made.ledger), made.ledger.copy()
    assert made.topologies.tree(record, copy) is tree
    other = there(cluster(node("n1", labels={"rack": "b"})).node("n1"))
    copy.put(other)
    assert made.topologies.tree(record, copy).name(made.topologies.tree(record, copy).domains(1)[0]) == "b"
    assert made.topologies.tree(record, made.ledger) is tree


def test_a_topology_that_is_not_known_may_exist_while_they_cannot_be_read() -> None:
    changes: list[None] = []
    found = Topologies(lambda: changes.append(None))
    assert (found.get("t"), found.not_read()) == (None, "")
    found.of_kai.expect()
    assert found.not_read() == "topologies.kai.scheduler"
    found.of_kueue.expect()
    assert found.not_read() == "topologies.kai.scheduler, topologies.kueue.x-k8s.io"
    assert len(changes) == 2


def _topologies(of_kai: Mapping[str, str], of_kueue: Mapping[str, str]) -> Topologies:
    """Topologies by name, each with its labels."""
    found = Topologies(lambda: None)
    for facts, named in ((found.of_kai, of_kai), (found.of_kueue, of_kueue)):
        for name, labels in named.items():
            facts.put(topology_record(topology(name, *labels.split())))
    return found


def test_of_two_topologies_with_one_name_kais_counts() -> None:
    found = _topologies({"t": "zone rack"}, {"t": "row", "u": "row"})
    known = {name: found.get(name) for name in ("t", "u", "v")}
    assert {name: each and each.labels for name, each in known.items()} == {
        "t": ("zone", "rack"),
        "u": ("row",),
        "v": None,
    }


@pytest.mark.parametrize(
    ("of_kai", "of_kueue", "required", "preferred", "meant"),
    [
        pytest.param({}, {"a": "zone rack"}, "rack", "", "a", id="the only one"),
        pytest.param({"a": "zone rack"}, {"b": "row"}, "rack", "", "a", id="the only one with the level"),
        pytest.param({}, {"b": "zone rack", "a": "zone rack host"}, "rack", "", "a", id="the same domains"),
        pytest.param({}, {"a": "zone rack", "b": "rack"}, "rack", "", "a b", id="other levels above"),
        pytest.param({}, {"a": "zone rack", "b": "rack"}, "zone", "rack", "a", id="both levels"),
        pytest.param({"a": "row rack"}, {"a": "zone rack"}, "rack", "", "a", id="KAI's of one name"),
        pytest.param({}, {"a": "zone rack", "b": "row"}, "", "row", "b", id="preferred"),
        pytest.param({}, {"a": "zone rack"}, "row", "", "", id="nobody has it"),
    ],
)
def test_a_constraint_on_any_topology_means_those_with_its_levels(
    of_kai: Mapping[str, str], of_kueue: Mapping[str, str], required: str, preferred: str, meant: str
) -> None:
    found = _topologies(of_kai, of_kueue)
    assert " ".join(each.name for each in found.meant(LevelConstraint("*", required, preferred))) == meant


def test_a_level_of_any_topology_is_named_by_its_label_and_not_by_an_alias() -> None:
    found = Topologies(lambda: None)
    found.of_kai.put(topology_record(topology("t", "zone", "rack", aliases=["", "shelf"])))
    assert found.meant(LevelConstraint("*", "shelf")) == ()
    assert len(found.meant(LevelConstraint("t", "shelf"))) == 1


@pytest.mark.parametrize(
    ("required", "preferred", "labels"),
    [("rack", "", ("rack",)), ("", "rack", ("rack",)), ("zone", "rack", ("zone", "rack")), ("rack", "rack", ("rack",))],
)
def test_a_constraint_on_labels_alone_needs_no_topology(required: str, preferred: str, labels: tuple[str, ...]) -> None:
    found = _topologies({"a": "zone rack"}, {"b": "rack"})
    (meant,) = found.meant(LevelConstraint("(label)", required, preferred))
    assert meant.labels == labels


def test_which_topologies_have_a_level_follows_every_change() -> None:
    found = _topologies({}, {"a": "zone rack"})
    asked = LevelConstraint("*", "rack")
    assert [each.name for each in found.meant(asked)] == ["a"]
    b = topology_record(topology("b", "row", "rack"))
    found.of_kai.put(b)
    assert [each.name for each in found.meant(asked)] == ["a", "b"]
    found.of_kai.drop(b)
    assert [each.name for each in found.meant(asked)] == ["a"]


# The chosen domain and its parts, against brute force on small worlds.


def _tree(*paths: str) -> Tree:
    """A node each, by the letters of its path."""
    labels = [dict(zip(("zone", "rack"), path, strict=False)) for path in paths]
    of = [node_record(node(f"n{number}", labels=each)) for number, each in enumerate(labels)]
    return tree_of(of, ["zone", "rack"])


@pytest.mark.parametrize("seed", seeds(300))
def test_domains_of_a_level_come_tightest_first(seed: int) -> None:
    rng = Random(seed)
    of = worlds.nodes(rng)
    tree = worlds.tree(of)
    per_node = worlds.slots(rng, tree)
    slots, count = Slots(tree, per_node), rng.randint(1, 8)
    for level in range(tree.depth + 1):
        rooms = {path: sum(per_node[list(nodes)].tolist()) for path, nodes in worlds.by_path(of, level).items()}
        wanted = sorted((room, path) for path, room in rooms.items() if room >= count)
        assert [(slots.of(d), tree.name(d)) for d in slots.fitting(level, count)] == [
            (room, ".".join(path)) for room, path in wanted
        ]


@pytest.mark.parametrize("seed", seeds(300))
def test_parts_add_up_fit_and_are_as_few_as_can_be_at_each_level(seed: int) -> None:
    rng = Random(seed)
    of = [each for each in worlds.nodes(rng, most=9) if {*worlds.LABELS} <= each.labels.keys()]
    tree = worlds.tree(of)
    slots = Slots(tree, worlds.slots(rng, tree, most=3))
    root = Domain(0, 0, len(of))
    count = rng.randint(0, slots.of(root))
    parts = slots.split(root, count)
    assert sum(part.pods for part in parts) == count
    assert all(part.pods <= slots.of(part.domain) for part in parts)
    zones = {tree.around(part.domain, 1) for part in parts if part.pods}
    rooms = [slots.of(zone) for zone in tree.domains(1)]
    fewest = next(few for few in range(len(rooms) + 1) if any(sum(c) >= count for c in combinations(rooms, few)))
    assert len(zones) == fewest


def test_the_last_part_is_the_tightest_that_takes_the_rest() -> None:
    tree = _tree("aw", "ax", "ay", "az")
    slots = Slots(tree, np.array([8, 3, 2, 5]))
    parts = slots.split(Domain(1, 0, 4), 10)
    assert [(tree.name(part.domain), part.pods) for part in parts] == [("a.w", 8), ("a.y", 2)]


def test_of_equal_domains_the_first_by_path_is_taken() -> None:
    slots = Slots(_tree("b", "a", "c"), np.array([4, 4, 4]))
    assert [slots.tree.name(d) for d in slots.fitting(1, 4)] == ["a", "b", "c"]
    assert [slots.tree.name(part.domain) for part in slots.split(Domain(0, 0, 3), 4)] == ["a"]


def test_a_domain_with_nodes_beside_its_children_is_one_part_where_these_do_not_take_all() -> None:
    tree = _tree("ax", "a")
    assert Slots(tree, np.array([2, 3])).split(Domain(1, 0, 2), 4) == [Part(Domain(1, 0, 2), 4)]
    assert [part.domain.level for part in Slots(tree, np.array([4, 3])).split(Domain(1, 0, 2), 4)] == [2]


def test_the_domains_with_most_room_are_told() -> None:
    slots = Slots(_tree("a", "b", "c", "d"), np.array([1, 3, 2, 3]))
    assert [(slots.tree.name(part.domain), part.pods) for part in slots.best(1, 3)] == [("b", 3), ("d", 3), ("c", 2)]
