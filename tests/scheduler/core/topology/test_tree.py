"""Nodes by level, against brute force."""

from __future__ import annotations

from random import Random

import pytest

from scheduler.core.convert.nodes import node_record
from scheduler.core.topology.topologies import ROOT, Domain, tree_of
from tests.scheduler.core.objects import node
from tests.scheduler.core.topology import worlds


@pytest.mark.parametrize("seed", range(200))
def test_domains_are_the_nodes_with_equal_labels_down_to_the_level(seed: int) -> None:
    of = worlds.nodes(Random(seed))
    tree = worlds.tree(of)
    for level in range(tree.depth + 1):
        found = [(tree.name(d), set(tree.order[d.start : d.end].tolist())) for d in tree.domains(level)]
        assert found == [(".".join(path), nodes) for path, nodes in sorted(worlds.by_path(of, level).items())]


@pytest.mark.parametrize("seed", range(100))
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
