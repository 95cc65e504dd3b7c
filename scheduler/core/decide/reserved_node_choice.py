"""Which nodes are reserved for a group: those least in use that it fits on once the pods there have ended.

It is tried on the working copy, by the placing of every decision: pods of queues are taken off, node by node, until the
group fits. What counts in no queue stays: pods of other schedulers may never end.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.charging import Charging, OnPaper
from scheduler.core.decide.gang_search import PlaceBound, are_in_domains
from scheduler.core.filters.registry import OK
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Verdict
from scheduler.core.nodes.table import GPUS, Bools, Int64s
from scheduler.core.preemption.need import Need
from scheduler.core.snapshot.node_count import only
from scheduler.core.topology.topologies import Domain
from wire import names


@dataclass(slots=True)
class Choice:
    """One decision's. ``taken``: nodes of other node reserves."""

    attempts: Attempts
    taken: Set[str]
    #: GPUs and MIG slices of every node of the pool, and how many of them are in use.
    gpus: Int64s = field(init=False)
    _used: Int64s = field(init=False)

    def __post_init__(self) -> None:
        table = self.attempts.placer.statement.table
        rows = [row for row, name in enumerate(table.resources) if name.startswith(names.MIG_RESOURCE_PREFIX)]
        counted = [GPUS, *rows]
        self.gpus = table.total[counted].sum(axis=0) * self.attempts.placer.statement.counts.of_pool
        self._used = table.total[counted].sum(axis=0) - table.free[counted].sum(axis=0)

    def most(self, percent: int) -> int:
        """How many GPUs all node reserves may have: the percentage given, and one node at least if that is not all."""
        total, largest = int(self.gpus.sum()), int(self.gpus.max(initial=0))
        return max(total * percent // 100, largest if largest < total else 0)

    def gpus_of(self, nodes: Sequence[str]) -> int:
        """GPUs of these nodes."""
        position_of = self.attempts.placer.statement.position_of
        return sum(int(self.gpus[position_of[name]]) for name in nodes)

    def takes(self, need: Need, nodes: Sequence[str]) -> bool:
        """Whether all these nodes are there, may take a pod of a need, and are in one domain where it needs one."""
        position_of = self.attempts.placer.statement.position_of
        there, bound = self._eligible(need), self._bound(need)
        if not all(name in position_of and there[position_of[name]] for name in nodes):
            return False
        places = [("", position_of[name]) for name in nodes]
        return need.group is None or bound is None or are_in_domains(need.group.tree, {0: bound}, places)

    def _bound(self, need: Need) -> PlaceBound | None:
        """The domain that a gang as a whole has to be in; None: it may be anywhere."""
        bounds = {} if need.group is None else self.attempts.bounds_of(need.group)
        bound = None if isinstance(bounds, Verdict) else bounds.get(0)
        return bound if bound is not None and bound.required else None

    def nodes_for(self, need: Need, most: int) -> tuple[str, ...]:
        """Nodes with ``most`` GPUs in all on which a need fits once they have drained; () if there are none."""
        statement = self.attempts.placer.statement
        candidates = self._candidates(need, most)
        mark = statement.checkpoint(), self.attempts.accounts.checkpoint()
        found, emptied, count = tuple[str, ...](), 0, self._at_least(need, candidates)
        while not found and emptied < len(candidates):
            self._empty(candidates[emptied:count])
            emptied, count = min(count, len(candidates)), 2 * count
            found = self._placed(need, candidates[:emptied])
        statement.rollback(mark[0])
        self.attempts.accounts.rollback(mark[1])
        return found

    def _eligible(self, need: Need) -> Bools:
        """Nodes that may take a pod of a need at all, full ones included."""
        placer = self.attempts.placer
        there = np.zeros(len(self.gpus), np.bool_)
        for cls in dict.fromkeys(pod.cls for pod in need.pods):
            mask = placer.all_but(cls.excluded)
            for way in placer.ways(cls):
                fits = placer.ranking(way).eligible == OK
                there |= fits if mask is None else fits & mask
        return there

    def _candidates(self, need: Need, most: int) -> list[str]:
        """Nodes with GPUs that may take a pod of a need, the least used first, as many as a node reserve may have."""
        statement = self.attempts.placer.statement
        there = self._eligible(need) & (self.gpus > 0)
        there &= ~only(self.taken, statement.position_of)
        positions = np.flatnonzero(there)
        in_order = self._by_domain(need, positions[np.argsort(self._used[positions], kind="stable")])
        few = int(np.searchsorted(np.cumsum(self.gpus[in_order]), most, side="right"))
        return [statement.nodes[position].name for position in in_order[:few].tolist()]

    def _by_domain(self, need: Need, in_order: Int64s) -> Int64s:
        """The nodes of that domain first which has the GPUs asked on those least in use, where a gang needs a domain.

        In the order of use alone nodes of one domain seldom come together.
        """
        bound = self._bound(need)
        if bound is None:
            return in_order
        places, held = bound.tree.places(), bound.held_by(bound.required)
        nodes_of: dict[Domain, list[int]] = {}
        for position in in_order.tolist():
            domain = bound.tree.domain_of(int(places[position]), bound.required)
            if domain is not None and (not held or domain in held):
                nodes_of.setdefault(domain, []).append(position)
        wanted = self.asked(need)
        found = [(used, domain) for domain, of in nodes_of.items() if (used := self._use_of(of, wanted)) is not None]
        first = np.array(nodes_of[min(found)[1]] if found else [], np.int64)
        return np.concatenate([first, in_order[~np.isin(in_order, first)]])

    def _use_of(self, positions: Sequence[int], wanted: int) -> int | None:
        """GPUs in use on the first of these nodes that have the GPUs wanted; None if all of them have fewer."""
        used = found = 0
        for position in positions:
            found += int(self.gpus[position])
            used += int(self._used[position])
            if found >= wanted:
                return used
        return None

    def _at_least(self, need: Need, candidates: Sequence[str]) -> int:
        """How many of the candidates are needed for the GPUs alone."""
        wanted, found = self.asked(need), 0
        for count, name in enumerate(candidates, start=1):
            found += self.gpus_of([name])
            if found >= wanted:
                return count
        return max(1, len(candidates))

    def asked(self, need: Need) -> int:
        """Whole GPUs that a need asks, at least."""
        return sum(pod.cls.demand.gpus for pod in needed(need))

    def _empty(self, nodes: Sequence[str]) -> None:
        """Take off all pods that count in a queue."""
        bound_to = self.attempts.snapshot.pods.bound_to
        Charging(self.attempts, [], set()).leave([pod for name in nodes for pod in bound_to(name) if pod.queue])

    def _placed(self, need: Need, nodes: Sequence[str]) -> tuple[str, ...]:
        """The nodes that a need uses of these; () if it does not fit."""
        attempts = self.attempts
        mark = attempts.placer.statement.checkpoint(), attempts.accounts.checkpoint()
        places = OnPaper(attempts, only(nodes, attempts.placer.statement.position_of)).place(need)
        attempts.placer.statement.rollback(mark[0])
        attempts.accounts.rollback(mark[1])
        return tuple(dict.fromkeys(sorted(place.node for place in places or ())))


def needed(need: Need) -> Sequence[PodRecord]:
    """Pods that have to be placed for a need."""
    return need.pods if need.quorum is None else need.quorum.needed(need.pods)


def asks_gpus(cls: PodClass) -> bool:
    """Whether pods of a class ask GPUs, or parts of them: nodes are kept for nobody else."""
    demand = cls.demand
    is_mig = any(name.startswith(names.MIG_RESOURCE_PREFIX) for name, _ in demand.extended)
    return bool(demand.gpus or cls.request.is_shared or is_mig)
