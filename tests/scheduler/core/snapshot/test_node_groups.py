"""Nodes by their domains of coarse labels."""

from __future__ import annotations

import random

import numpy as np
import pytest

from scheduler.core.filters.pod_rule import NO_DOMAIN, Domains
from scheduler.core.snapshot.pod_counts import NodeGroups, coarse


def _domains(rng: random.Random, nodes: int, count: int) -> Domains:
    return Domains(np.array([rng.choice((NO_DOMAIN, *range(count))) for _ in range(nodes)]), count)


@pytest.mark.parametrize("seed", range(20))
def test_the_nodes_of_a_group_are_those_with_the_same_domains(seed: int) -> None:
    rng = random.Random(seed)
    domains = {key: _domains(rng, 100, rng.randint(1, 5)) for key in "ab"[: rng.randint(0, 2)]}
    groups = NodeGroups(100, domains)
    kinds = [tuple(int(each.of[position]) for each in domains.values()) for position in range(100)]
    assert groups.count == len(set(kinds))
    order = range(100) if groups.order is None else groups.order.tolist()
    assert sorted(order) == list(range(100))
    for group in range(groups.count):
        members = list(order[groups.starts[group] : groups.starts[group + 1]])
        (kind,) = {kinds[position] for position in members}
        assert members == [position for position in range(100) if kinds[position] == kind]
        assert {int(groups.of[position]) for position in members} == {group}
        assert tuple(int(groups.domains(key)[group]) for key in domains) == kind
    for at, (key, each) in enumerate(domains.items()):
        for domain in range(each.count):
            among = {int(groups.of[position]) for position in range(100) if kinds[position][at] == domain}
            assert groups.in_domain(key, domain).tolist() == sorted(among)
    if groups.at is not None:
        assert [order[at] for at in groups.at.tolist()] == list(range(100))


@pytest.mark.parametrize(
    ("counts", "nodes", "expected"),
    [
        ({"zone": 3, "rack": 30, "host": 1_000}, 1_000, ("zone", "rack")),
        ({"zone": 3, "rack": 50}, 1_000, ("zone",)),
        ({"zone": 300}, 100_000, ()),  # more groups than there may be
        ({"a": 20, "b": 10, "c": 20}, 10_000, ("b", "a")),
        ({"zone": 3}, 90, ()),
        ({}, 90, ()),
    ],
)
def test_a_label_is_coarse_if_it_has_many_nodes_a_domain(
    counts: dict[str, int], nodes: int, expected: tuple[str, ...]
) -> None:
    domains = {key: Domains(np.zeros(nodes, np.int64), count) for key, count in counts.items()}
    assert coarse(domains, domains, nodes) == expected
