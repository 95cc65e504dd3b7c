"""The chosen domain and its parts, against brute force on small worlds."""

from __future__ import annotations

from itertools import combinations
from random import Random

import numpy as np
import pytest

from scheduler.core.convert.nodes import node_record
from scheduler.core.topology.topologies import Domain, Part, Slots, Tree, tree_of
from tests.scheduler.core.objects import node
from tests.scheduler.core.topology import worlds


def _tree(*paths: str) -> Tree:
    """A node each, by the letters of its path."""
    labels = [dict(zip(("zone", "rack"), path, strict=False)) for path in paths]
    of = [node_record(node(f"n{number}", labels=each)) for number, each in enumerate(labels)]
    return tree_of(of, ["zone", "rack"])


@pytest.mark.parametrize("seed", range(300))
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


@pytest.mark.parametrize("seed", range(300))
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
