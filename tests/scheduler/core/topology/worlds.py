"""Small clusters with levels, and what every node takes, for tests against brute force."""

from __future__ import annotations

from random import Random

import numpy as np

from scheduler.core.convert.nodes import node_record
from scheduler.core.model.records import NodeRecord
from scheduler.core.nodes.table import Int64s
from scheduler.core.topology.topologies import Tree, tree_of
from tests.scheduler.core.objects import node

LABELS = ("zone", "rack", "host")


def nodes(rng: Random, most: int = 12) -> list[NodeRecord]:
    """Nodes by name; a tenth lacks some label."""
    found = []
    for number in range(rng.randint(1, most)):
        labels = {"zone": f"z{rng.randint(0, 2)}", "rack": f"r{rng.randint(0, 3)}", "host": f"n{number:02}"}
        for label in LABELS:
            if rng.random() < 0.1:
                del labels[label]
        found.append(node_record(node(f"n{number:02}", labels=labels)))
    return found


def slots(rng: Random, tree: Tree, most: int = 4) -> Int64s:
    """How many pods each node takes."""
    return np.array([rng.randint(0, most) for _ in tree.order], np.int64)


def by_path(of: list[NodeRecord], level: int) -> dict[tuple[str, ...], set[int]]:
    """The domains of a level by path, by brute force: positions of their nodes."""
    found: dict[tuple[str, ...], set[int]] = {}
    for position, each in enumerate(of):
        path = [each.labels.get(label) for label in LABELS[:level]]
        if None not in path:
            found.setdefault(tuple(value or "" for value in path), set()).add(position)
    return found


def tree(of: list[NodeRecord]) -> Tree:
    """Their tree."""
    return tree_of(of, LABELS)
