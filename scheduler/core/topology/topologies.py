"""Topologies over the nodes of a cluster, and which domain takes a number of equal pods.

A topology is a tree, as slices of one permutation (placement.md, section 5). Nodes are sorted by their path: the values
of the levels' labels from coarse to fine, then by position. So every domain of every level is a slice of that order. A
node counts for a level if it has the label of that level and of all above it; one without any is in the root only.

The domain that is chosen is the *tightest* of the deepest level that has one: of the domains with room for all of them,
the one with the least room, which leaves the large ones whole; of equals the first by path. Below the chosen domain the
pods are divided level by level: the fewest children, largest first, and for the rest the tightest one that takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from scheduler.core.model.facts import Facts
from scheduler.core.model.records import LevelConstraint, NodeRecord, TopologyLevel, TopologyRecord
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.nodes.table import Bools, Int64s
from wire.names import ANY_TOPOLOGY, LABEL_ALONE

#: The place of a level in ``Tree.levels`` above which there is only the whole cluster.
ROOT: Final = 0
_ABSENT: Final = -1


class Domain(NamedTuple):
    """One domain: nodes ``[start, end)`` in the order of the tree. ``level`` 0: all nodes."""

    level: int
    start: int
    end: int


class Level(NamedTuple):
    """The domains of a level in the order of their paths: where each starts and ends."""

    starts: Int64s
    ends: Int64s


class Tree(msgspec.Struct, frozen=True, gc=False):
    """``order``: positions of nodes, sorted by path. ``levels``: the root, then one for each label, coarse to fine.

    ``values``: of each level but the root the label's value of each node in order, "" where it does not count there.
    """

    order: Int64s
    levels: tuple[Level, ...]
    values: tuple[Sequence[str], ...]

    @property
    def depth(self) -> int:
        """How many levels there are below the root."""
        return len(self.levels) - 1

    def domains(self, level: int) -> list[Domain]:
        """All domains of a level, in the order of their paths."""
        starts, ends = self.levels[level]
        return [Domain(level, start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]

    def around(self, domain: Domain, level: int) -> Domain:
        """The domain of a coarser level that a domain is part of."""
        starts, ends = self.levels[level]
        at = int(np.searchsorted(starts, domain.start, side="right")) - 1
        return Domain(level, int(starts[at]), int(ends[at]))

    def domain_of(self, place: int, level: int) -> Domain | None:
        """The domain of a level that the node at this place of the order is in; None if it counts for none."""
        starts, ends = self.levels[level]
        at = int(np.searchsorted(starts, place, side="right")) - 1
        return Domain(level, int(starts[at]), int(ends[at])) if at >= 0 and place < ends[at] else None

    def name(self, domain: Domain) -> str:
        """The values of a domain's labels, coarse to fine, joined by dots as KAI does; "" is the whole cluster."""
        return ".".join(self.values[level][domain.start] for level in range(domain.level))

    def mask(self, *domains: Domain) -> Bools:
        """The nodes of these domains, one bool a position."""
        found = np.zeros(len(self.order), np.bool_)
        for domain in domains:
            found[self.order[domain.start : domain.end]] = True
        return found

    def places(self) -> Int64s:
        """Of each position its place in the order."""
        found = np.empty(len(self.order), np.int64)
        found[self.order] = np.arange(len(self.order))
        return found


def tree_of(nodes: Sequence[NodeRecord], labels: Sequence[str]) -> Tree:
    """Sort nodes by the values of these labels, coarse to fine. O(nodes x labels)."""
    count, numbers, values = len(nodes), list[Int64s](), list[list[str]]()
    counts = np.ones(count, np.bool_)
    for label in labels:
        found = [node.labels.get(label) for node in nodes]
        number_of = {
            value: number for number, value in enumerate(sorted({value for value in found if value is not None}))
        }
        number = np.fromiter((_ABSENT if value is None else number_of[value] for value in found), np.int64, count)
        counts = counts & (number != _ABSENT)
        numbers.append(np.where(counts, number, _ABSENT))
        values.append([value or "" for value in found])
    order = np.lexsort(numbers[::-1]) if numbers else np.arange(count)
    in_order = order.tolist()
    levels = [Level(np.zeros(1, np.int64), np.full(1, count, np.int64))]
    is_other = np.zeros(count, np.bool_)
    is_other[:1] = True
    for number in numbers:
        sorted_by_path = number[order]
        is_other[1:] |= sorted_by_path[1:] != sorted_by_path[:-1]
        starts = np.flatnonzero(is_other)
        ends = np.append(starts[1:], count)
        there = sorted_by_path[starts] != _ABSENT
        levels.append(Level(starts[there], ends[there]))
    return Tree(order, tuple(levels), tuple([found[position] for position in in_order] for found in values))


class Part(NamedTuple):
    """A domain, and a number of pods: those that go there, or that it takes."""

    domain: Domain
    pods: int


class Slots:
    """How many pods the nodes of a tree take: ``per_node``, one number a position."""

    __slots__ = ("_before", "tree")

    def __init__(self, tree: Tree, per_node: Int64s) -> None:
        self.tree = tree
        #: How many all nodes take that come earlier in the order.
        self._before = np.concatenate([np.zeros(1, np.int64), np.cumsum(per_node[tree.order])])

    def of_level(self, level: int) -> Int64s:
        """How many each domain of a level takes."""
        starts, ends = self.tree.levels[level]
        found: Int64s = self._before[ends] - self._before[starts]
        return found

    def of(self, domain: Domain) -> int:
        """How many a domain takes."""
        return int(self._before[domain.end] - self._before[domain.start])

    def fitting(self, level: int, count: int) -> Iterator[Domain]:
        """Domains of a level that take this many pods, the tightest first, then by path."""
        starts, ends = self.tree.levels[level]
        room = self.of_level(level)
        fit = np.flatnonzero(room >= count)
        for at in fit[np.argsort(room[fit], kind="stable")].tolist():
            yield Domain(level, int(starts[at]), int(ends[at]))

    def best(self, level: int, most: int) -> list[Part]:
        """The domains of a level with the most room, and how much that is; of equals the first by path."""
        starts, ends = self.tree.levels[level]
        room = self.of_level(level)
        order = np.argsort(-room, kind="stable")[:most].tolist()
        return [Part(Domain(level, int(starts[at]), int(ends[at])), int(room[at])) for at in order]

    def split(self, domain: Domain, count: int) -> list[Part]:
        """Divide pods that a domain takes over the smallest domains below it, and its nodes that are in none."""
        found, left = list[Part](), [Part(domain, count)]
        while left:
            part = left.pop()
            children = self._divided(part)
            if children:
                left += reversed(children)
            else:
                found.append(part)
        return found

    def _divided(self, part: Part) -> list[Part]:
        """The same over the children of a domain; [] where it has none, or they do not take all."""
        level, start, end = part.domain
        if level == self.tree.depth or end - start == 1:
            return []
        starts, ends = self.tree.levels[level + 1]
        first, last = np.searchsorted(starts, [start, end])
        starts, ends = starts[first:last], ends[first:last]
        room = self._before[ends] - self._before[starts]
        if int(room.sum()) < part.pods:
            return []
        found, left = list[Part](), part.pods
        for place, at in enumerate(order := np.argsort(-room, kind="stable")):
            rest, at_least = order[place:], int(room[at])
            if at_least >= left:
                tight = rest[room[rest] >= left]
                chosen = tight[room[tight] == room[tight].min()].min()
                found.append(Part(Domain(level + 1, int(starts[chosen]), int(ends[chosen])), left))
                break
            found.append(Part(Domain(level + 1, int(starts[at]), int(ends[at])), at_least))
            left -= at_least
        return found


#: The most lists of labels for which sorted nodes are kept; beyond that they are sorted again.
_MOST_KEPT: Final = 8


class Topologies:
    """KAI's and Kueue's; of two with the same name KAI's counts.

    ``changed`` is called when a Topology is new, different or gone, or whether they can be read has changed.
    """

    __slots__ = ("_changed", "_having", "_trees", "of_kai", "of_kueue")

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.of_kai: Facts[str, TopologyRecord] = Facts(self._differ, read_changed=changed)
        self.of_kueue: Facts[str, TopologyRecord] = Facts(self._differ, read_changed=changed)
        self._trees: dict[tuple[int, tuple[str, ...]], Tree] = {}
        #: The Topologies with a label, by name; None: not sorted since the last change.
        self._having: dict[str, list[TopologyRecord]] | None = None

    def get(self, name: str) -> TopologyRecord | None:
        """The Topology of this name."""
        return self.of_kai.get(name) or self.of_kueue.get(name)

    def meant(self, asked: LevelConstraint) -> tuple[TopologyRecord, ...]:
        """The Topologies that a constraint may mean: one, if it can be carried out.

        A constraint on any Topology (``wire.names.ANY_TOPOLOGY``) means those that have its levels as labels. Of those
        whose labels are the same down to the lowest of these levels, which have the same domains, it is the first by
        name. A constraint on labels alone (``LABEL_ALONE``) needs no Topology.
        """
        if asked.topology == LABEL_ALONE:
            return (_of_labels(asked),)
        if asked.topology != ANY_TOPOLOGY:
            found = self.get(asked.topology)
            return () if found is None else (found,)
        labels = {asked.required, asked.preferred} - {""}
        paths: dict[tuple[str, ...], TopologyRecord] = {}
        for each in self._with(next(iter(labels), "")):
            if labels <= set(each.labels):
                paths.setdefault(each.labels[: max(map(each.labels.index, labels)) + 1], each)
        return tuple(paths.values())

    def not_read(self) -> str:
        """Which Topologies may exist without being known, as in ``kubectl get``; "" if all are known."""
        kinds = (("topologies.kai.scheduler", self.of_kai), ("topologies.kueue.x-k8s.io", self.of_kueue))
        return ", ".join(name for name, facts in kinds if not facts.is_current)

    def _with(self, label: str) -> list[TopologyRecord]:
        """The Topologies with a label, by name."""
        if self._having is None:
            self._having = {}
            for each in sorted({**_by_name(self.of_kueue), **_by_name(self.of_kai)}.values(), key=lambda one: one.name):
                for found in dict.fromkeys(each.labels):
                    self._having.setdefault(found, []).append(each)
        return self._having.get(label, [])

    def _differ(self, _: TopologyRecord) -> None:
        self._having = None
        self._changed()

    def tree(self, topology: TopologyRecord, ledger: Ledger) -> Tree:
        """The nodes of a ledger, in the order of their names, by the levels of a topology.

        O(nodes x levels), and kept until a label of a node changes, or nodes come or go.
        """
        key = ledger.labels_version, topology.labels
        known = self._trees.get(key)
        if known is None:
            while len(self._trees) >= _MOST_KEPT:
                del self._trees[next(iter(self._trees))]
            known = self._trees[key] = tree_of(ledger.in_order().nodes, topology.labels)
        return known


def _of_labels(asked: LevelConstraint) -> TopologyRecord:
    """A Topology of the labels that a constraint names, the required one above the preferred one."""
    labels = dict.fromkeys(filter(None, (asked.required, asked.preferred)))
    return TopologyRecord(asked.topology, tuple(map(TopologyLevel, labels)))


def _by_name(facts: Facts[str, TopologyRecord]) -> dict[str, TopologyRecord]:
    return {each.name: each for each in facts.all()}
