"""Where places of gangs differ from KAI's on purpose (docs/differences.md): each row by a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.model.plan import placements
from tests.scheduler.core.objects import cluster, node, pod, pod_group, reservation, topology
from wire.core import Node, Pod

TREE = topology("t", "zone", "rack")


def _node(zone: str, rack: str, number: int = 0, gpus: int = 8, **given: object) -> Node:
    labels = {"zone": zone, **({"rack": rack} if rack else {})}
    return node(f"{zone}-{rack}-{number}", gpus=gpus, labels=labels, **given)  # type: ignore[arg-type] # by the test


def _gang(nodes: Sequence[Node], members: Sequence[Pod], *others: Pod, **levels: str) -> Cluster:
    asked = {"topology": "t", **levels}
    return cluster(TREE, *nodes, *others, pod_group("g", len(members), topologyConstraint=asked), *members)


def _equal(count: int, gpus: int = 1) -> list[Pod]:
    return [pod(f"m{number}", gpus=gpus, group="g") for number in range(count)]


def _racks(made: Cluster) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for placed in placements(made.decide(0).entries):
        rack = placed.node.rpartition("-")[0]
        found[rack] = found.get(rack, 0) + 1
    return found


def test_the_tightest_rack_of_all_zones_is_taken_and_not_the_first_of_the_tightest_zone() -> None:
    nodes = [_node("a", "x", gpus=6), _node("b", "y", gpus=4), _node("b", "z", gpus=8)]
    assert _racks(_gang(nodes, _equal(4), requiredTopologyLevel="rack")) == {"b-y": 4}


@pytest.mark.parametrize("racks", [20, 100])
def test_a_preferred_level_keeps_to_as_few_racks_as_possible_however_many_there_are(racks: int) -> None:
    nodes = [_node("a", f"r{rack:03}", gpus=2 + rack % 4) for rack in range(racks)]
    found = _racks(_gang(nodes, _equal(12), preferredTopologyLevel="rack"))
    assert sorted(found.values()) == [2, 5, 5]


def test_nodes_that_the_pods_may_not_use_are_no_room() -> None:
    closed = _node("a", "x", number=1, taints=[("k", "v", "NoSchedule")])
    nodes = [_node("a", "x", gpus=2), closed, _node("b", "y", gpus=16)]
    assert _racks(_gang(nodes, _equal(4), requiredTopologyLevel="rack")) == {"b-y": 4}


@pytest.mark.parametrize("gpus", [(4, 1, 1), (4, 1, 0)], ids=["largest pod", "pod without GPU"])
def test_pods_of_a_gang_count_as_what_they_are(gpus: Sequence[int]) -> None:
    nodes = [_node("a", "x", 0, gpus=4), _node("a", "x", 1, gpus=1), _node("a", "x", 2, gpus=1)]
    members = [pod(f"m{number}", gpus=count, cpu="1", group="g") for number, count in enumerate(gpus)]
    assert _racks(_gang(nodes, members, requiredTopologyLevel="rack")) == {"a-x": 3}


def test_halves_of_two_devices_are_no_whole_one() -> None:
    books = [
        reservation(f"g{n}", "a-x-0", book={f"t{n}": 500_000_000}, uuid=f"GPU-{n}", uid=f"uid-r{n}") for n in range(4)
    ]
    nodes = [_node("a", "x", gpus=4), _node("b", "y", gpus=4)]
    members = [pod(f"m{number}", fraction="0.6", group="g") for number in range(2)]
    assert _racks(_gang(nodes, members, *books, requiredTopologyLevel="rack")) == {"b-y": 2}


def test_a_node_without_one_label_counts_for_the_levels_above_it() -> None:
    nodes = [_node("a", "x", gpus=2), _node("a", "", gpus=2), _node("b", "y", gpus=3)]
    assert _racks(_gang(nodes, _equal(4), requiredTopologyLevel="zone")) == {"a-x": 2, "a-": 2}
