"""Consolidation: moving groups for a need that fits in what is free in all, but not where it is.

If one group is enough, it is the one with which least work is lost, and of equals the youngest. Else nodes are looked
at by how many GPUs could be moved off them, fewest first. What may be moved there goes group by group, each only if all
its pods find places on other nodes, until the need fits. Then groups that are not needed stay. Before a group is taken
off, counting tells whether other nodes hold it, and whether emptying a node is worth anything: a need for whole GPUs
comes no nearer while no node gains a place for one of its pods. For a queue that would be above its fair share of GPUs
with the need, no group is moved whose own queue is not above its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import msgspec
import numpy as np

from gpu.share import NANO_PER_DEVICE
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.preemption import Moves, NoMoves, Place
from scheduler.core.model.verdict import Verdict
from scheduler.core.nodes.table import GPUS, IDLE, LEAVING, Bools, Int64s
from scheduler.core.preemption import candidates, protection
from scheduler.core.preemption.capacity import KeptSlots, may_be
from scheduler.core.preemption.need import Need
from scheduler.core.preemption.search import MOST_PLACED
from scheduler.core.preemption.trial import Trial
from scheduler.core.preemption.victim_units import Pricing, Resident, amounts
from scheduler.core.queues.accounts import Accounts, Use
from scheduler.core.queues.tree import TreeQueue
from scheduler.core.queues.use import is_fixed
from scheduler.core.snapshot.statement import Statement

#: The most nodes that are looked at for one need.
_MOST_NODES: Final = 64


@dataclass
class Movers:
    """Who may be moved at all. ``trial``: of the first need that asks; what it is to be placed on is not read."""

    trial: Trial
    #: By queue, how long its groups run before they may be moved.
    _unmoved_ns: dict[int, int] = field(default_factory=dict)

    @cached_property
    def slots(self) -> KeptSlots:
        """What nodes hold of classes, as the statement stands whenever that is asked."""
        return KeptSlots(self.trial.statement)

    @cached_property
    def free_nano(self) -> int:
        """GPUs that are free, wherever they are; parts of shared devices count as well."""
        table = self.trial.statement.table
        free = int(table.free[GPUS].clip(min=0).sum()) * NANO_PER_DEVICE
        return free + sum(device.free_nano for devices in table.devices for device in devices if device.is_open)

    @cached_property
    def _on(self) -> dict[str, list[Resident]]:
        """Groups that may be moved, by node."""
        statement, on = self.trial.statement, dict[str, list[Resident]]()
        for unit in self.trial.residents.movable.values():
            if self._is_protected(unit):
                continue
            for node in {pod.node for pod in unit.pods}:
                if node in statement.position_of:
                    on.setdefault(node, []).append(unit)
        return on

    @cached_property
    def most_nano(self) -> Int64s:
        """By position, what would be free of GPUs and parts of them without all groups that may be moved: a bound."""
        statement = self.trial.statement
        table, position_of = statement.table, statement.position_of
        free: Int64s = np.maximum(table.free[GPUS], 0) + table.extra[IDLE] + table.extra[LEAVING]
        free *= NANO_PER_DEVICE
        for position, devices in enumerate(table.devices):
            free[position] += sum(device.free_nano for device in devices)
        for node in self._on:
            free[position_of[node]] += self.all_nano_on(node)
        return free

    def all_nano_on(self, node: str) -> int:
        """What all groups that may be moved hold of the GPUs of one node."""
        return sum(self.nano_on(node, unit) for unit in self._on.get(node, ()))

    def nano_on(self, node: str, unit: Resident) -> int:
        """What a group holds of the GPUs of one node."""
        if len(unit.pods) == 1:
            return unit.amounts.gpu_nano
        return sum(amounts(self.trial, pod).gpu_nano for pod in unit.pods if pod.node == node)

    def by_node(self, among: Bools | None = None) -> Sequence[tuple[str, Sequence[Resident]]]:
        """Nodes with what may be moved off them, those first that have the least; the smallest groups first.

        ``among``: the positions that count, None for all.
        """
        on, position_of = self._on, self.trial.statement.position_of
        nodes = on if among is None else [node for node in on if among[position_of[node]]]
        mass = {node: sum(unit.amounts.gpu_nano for unit in on[node]) for node in nodes}
        order = sorted((mass[node], node) for node in nodes if mass[node])
        few = [node for _, node in order if self._least(on[node]) <= self.free_nano][:_MOST_NODES]
        return [(node, sorted(on[node], key=lambda unit: (unit.amounts.gpu_nano, unit.uids))) for node in few]

    def _least(self, units: Sequence[Resident]) -> int:
        return min(unit.amounts.gpu_nano for unit in units)

    def _is_protected(self, unit: Resident) -> bool:
        """Whether minimum runtimes, or evictions of the last hour, keep a group where it is."""
        trial, settings = self.trial, self.trial.settings
        evicted = trial.evicted.get(unit.owner)
        if evicted is not None and evicted.times >= settings.moves_per_hour:
            return True
        if protection.protected_until_s(evicted, unit.started_s, trial.wall_s):
            return True
        minimum_ns = self._unmoved_ns.get(unit.leaf.number)
        if minimum_ns is None:
            minimum_ns = protection.unmoved_ns(trial.accounts.tree, settings, unit.leaf)
            self._unmoved_ns[unit.leaf.number] = minimum_ns
        return bool(protection.has_run_at_s(unit.started_s, minimum_ns, trial.wall_s))


@dataclass(slots=True)
class Elsewhere:
    """``slots``: of that statement. ``chosen``: names of nodes that take no group."""

    statement: Statement
    slots: KeptSlots
    chosen: set[str] = field(default_factory=set)
    #: Successors of each group, by class.
    _asked: dict[Resident, dict[PodClass, int]] = field(default_factory=dict)

    def choose(self, node: str) -> None:
        """No group comes to this node."""
        self.chosen.add(node)

    def leave(self, node: str) -> None:
        """Groups may come to it again."""
        self.chosen.discard(node)

    def choose_none(self) -> None:
        """Groups may come to all nodes."""
        self.chosen.clear()

    def may_hold(self, unit: Resident) -> bool:
        """Whether other nodes than those that are chosen, and than its own, hold as many pods of each class."""
        names = self.chosen.union(pod.node for pod in unit.pods)
        off = [position for position in map(self.statement.position_of.get, names) if position is not None]
        return all(self.slots.besides(cls, off) >= count for cls, count in self._asked_of(unit).items())

    def _asked_of(self, unit: Resident) -> dict[PodClass, int]:
        known = self._asked.get(unit)
        if known is None:
            classes = (pod.moves_as for pod in unit.pods)
            known = self._asked[unit] = Counter(cls for cls in classes if cls is not None and cls.rules is None)
        return known


@dataclass(slots=True)
class Disturbing:
    """Whose groups may be moved for a need, by fair shares of GPUs. ``claim_nano``: what it comes to use of them.

    Reclaim compares queues where they part, and the taker's own: so do moves.
    """

    accounts: Accounts
    taker: TreeQueue | Verdict
    claim_nano: int
    _answers: dict[int, bool] = field(default_factory=dict)

    @property
    def is_entitled(self) -> bool:
        """Whether the need's queue, and all above it, stay within their shares."""
        path = () if isinstance(self.taker, Verdict) else self.taker.path
        return not self.claim_nano or all(self._is_within(number, self.claim_nano) for number in path)

    def may_move(self, unit: Resident) -> bool:
        """Whether a group may be moved."""
        number = unit.leaf.number
        answer = self._answers.get(number)
        if answer is None:
            answer = self._answers[number] = self._may_move_of(unit.leaf)
        return answer

    def _may_move_of(self, leaf: TreeQueue) -> bool:
        taker = self.taker
        if isinstance(taker, Verdict) or not self.claim_nano or leaf.number == taker.number:
            return True
        own, other = protection.parting(taker, leaf)
        if all(self._is_within(number, self.claim_nano) for number in (taker.number, own)):
            return True
        return not all(self._is_within(number, 0) for number in (leaf.number, other))

    def _is_within(self, number: int, more_nano: int) -> bool:
        account = self.accounts.of[number]
        return account.kept.gpu_nano + more_nano <= account.fair.gpu_nano


def disturbing(need: Need, trial: Trial) -> Disturbing:
    """Whose groups may be moved for a need, with what is counted now."""
    claim = candidates.least(need, trial).claim
    return Disturbing(trial.accounts, trial.accounts.tree.leaf(need.queue), claim.gpu_nano)


@dataclass(slots=True)
class Vacating:
    """Of one need. ``says_all``: nodes do not hold it for want of places, so counting tells what is worth moving."""

    need: Need
    trial: Trial
    movers: Movers
    says_all: bool = field(init=False)
    wanted: candidates.Least = field(init=False)
    disturbing: Disturbing = field(init=False)
    #: Places before anything is moved, by class: of each node.
    _before: dict[PodClass, Int64s] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.wanted = candidates.least(self.need, self.trial)
        self.disturbing = disturbing(self.need, self.trial)
        self.says_all = not self.reaches()
        if self.says_all:
            self._before = {cls: self.movers.slots.of(cls).copy() for cls in self.wanted.pods}

    def reaches(self) -> bool:
        """Whether nodes hold the need as things are on paper, as far as counting tells."""
        return candidates.reach(self.trial, self.wanted, self.movers.slots)

    def places(self) -> int:
        """Places that nodes have for the pods of the need: each node as many of a class as are asked in all at most."""
        held = self.movers.slots.of
        return sum(int(np.minimum(held(cls), count).sum()) for cls, count in self.wanted.pods.items())

    def worth(self) -> Sequence[tuple[str, Sequence[Resident]]]:
        """Nodes that may gain a place if all is moved off them that may be, as ``Movers.by_node`` has them.

        None at all if that is not enough.
        """
        if not self.says_all:
            return self._allowed(self.movers.by_node())
        gains = np.zeros(len(self.trial.statement.nodes), np.bool_)
        for cls, count in self.wanted.pods.items():
            most = self._most(cls)
            if most is None:
                return self._allowed(self.movers.by_node())
            if int(np.minimum(most, count).sum()) < count:
                return ()
            gains |= most > self._before[cls]
        return self._allowed(self.movers.by_node(gains))

    def _allowed(self, by_node: Sequence[tuple[str, Sequence[Resident]]]) -> Sequence[tuple[str, Sequence[Resident]]]:
        if self.disturbing.is_entitled:
            return by_node
        left = ((node, [unit for unit in units if self.disturbing.may_move(unit)]) for node, units in by_node)
        return [(node, units) for node, units in left if units]

    def may_gain(self, node: str, staying: Collection[Resident]) -> bool:
        """Whether a node may gain a place though these stay there."""
        if not self.says_all:
            return True
        position = self.trial.statement.position_of[node]
        stays_nano = sum(self.movers.nano_on(node, unit) for unit in staying)
        return self._gains(position, int(self.movers.most_nano[position]) - stays_nano)

    def _gains(self, position: int, left_nano: int) -> bool:
        """Whether a node has a place more for a pod of the need if so much is free there."""
        return any(
            not cls.demand.gpus or left_nano // (cls.demand.gpus * NANO_PER_DEVICE) > int(before[position])
            for cls, before in self._before.items()
        )

    def gaining_alone(self, node: str, units: Sequence[Resident]) -> list[Resident]:
        """Those of a node's groups by each of which alone it may gain a place."""
        if not self.says_all:
            return list(units)
        position = self.trial.statement.position_of[node]
        least_nano = int(self.movers.most_nano[position]) - self.movers.all_nano_on(node)
        return [unit for unit in units if self._gains(position, least_nano + self.movers.nano_on(node, unit))]

    def _most(self, cls: PodClass) -> Int64s | None:
        """The most pods of a class that nodes hold once all is off that may be moved; None where nothing is said."""
        ways = cls.ways()
        if len(ways) > 1 or not cls.demand.gpus:
            return None
        there = may_be(self.trial.statement, ways[0])
        most: Int64s = np.where(there, self.movers.most_nano // (cls.demand.gpus * NANO_PER_DEVICE), 0)
        return np.maximum(most, self._before[cls])


#: What was moved off the first node may be in the way of all else: this many nodes have a try as the first one.
_STARTS: Final = 8
#: The most groups that are tried each alone.
_MOST_ALONE: Final = 64


def find_moves(
    need: Need, trial: Trial, *, most_placed: int = MOST_PLACED, movers: Movers | None = None
) -> Moves | NoMoves:
    """Say who is to be moved for a need. Statement and accounts are left as they were.

    ``most_placed``: pods that are placed on paper at most, beside those of the last try. ``movers``: as read for an
    earlier need, if nothing was charged since.
    """
    movers = movers or Movers(trial)
    if need.is_fixed or trial.settings.most_moved_groups <= 0 or not _is_free_in_all(need, movers):
        return NoMoves()
    trial.residents.refresh(trial)
    if not trial.residents.movable:
        return NoMoves()
    if protection.delayed_until_s(need, trial.evicted.get(need.owner), trial.wall_s):
        return NoMoves()
    mark = trial.statement.checkpoint(), trial.accounts.checkpoint()
    moving, looked = _Moving(need, trial, most_placed, movers), len(trial.statement.nodes)
    try:
        if moving.vacating.reaches() and moving.fits():
            return NoMoves(placed=moving.placed, looked=looked)  # it fits when those are gone that go anyway
        found = moving.found()
        return msgspec.structs.replace(found or NoMoves(), placed=moving.placed, looked=looked)
    finally:
        trial.statement.rollback(mark[0])
        trial.accounts.rollback(mark[1])


def _is_free_in_all(need: Need, movers: Movers) -> bool:
    """Whether there are as many GPUs free as a need asks, wherever they are; parts of shared devices count as well."""
    pods = need.pods if need.quorum is None else need.quorum.needed(need.pods)
    return sum(pod.cls.demand.gpus for pod in pods) * NANO_PER_DEVICE <= movers.free_nano


class _TooLong(Exception):
    """More was tried than one search may."""


@dataclass(slots=True)
class _Moving:
    """One need's search. ``placed``: pods, on paper."""

    need: Need
    trial: Trial
    most_placed: int
    movers: Movers
    placed: int = 0
    #: The nodes that were chosen, which take no mover, and what the others hold.
    elsewhere: Elsewhere = field(init=False)
    vacating: Vacating = field(init=False)
    #: Nodes off which no group can be moved as long as no other group was moved.
    _barren: set[str] = field(default_factory=set)
    _mark: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self._mark = self._checkpoint()
        self.elsewhere = Elsewhere(self.trial.statement, self.movers.slots)
        self.vacating = Vacating(self.need, self.trial, self.movers)

    def _checkpoint(self) -> tuple[int, int]:
        return self.trial.statement.checkpoint(), self.trial.accounts.checkpoint()

    def _rollback(self, mark: tuple[int, int]) -> None:
        self.trial.statement.rollback(mark[0])
        self.trial.accounts.rollback(mark[1])

    def found(self) -> Moves | None:
        """Who is moved."""
        trial = self.trial
        taken = map(trial.pods.records.get, trial.taken) if trial.budgets else ()
        trial.counted.spend(pod for pod in taken if pod is not None and not pod.deleting)
        by_node = self.vacating.worth()
        try:
            if (one := self._one(by_node)) is not None:
                return one
            for first in range(min(_STARTS, len(by_node))):
                if by_node[first][0] in self._barren:
                    continue  # the start before it was the same, but for a node off which nobody is moved
                moved = self._enough([*by_node[first:], *by_node[:first]])
                if moved is not None:
                    return self._without_spare(moved)
        except _TooLong:
            pass
        return None

    def _spend(self, pods: int) -> None:
        if self.placed > self.most_placed:
            raise _TooLong
        self.placed += pods

    # --- who is moved --------------------------------------------------------------------------------------------
    def _one(self, by_node: Sequence[tuple[str, Sequence[Resident]]]) -> Moves | None:
        """The one group that is enough: that with which least work is lost, and of equals the youngest."""
        pricing = Pricing(self.trial.accounts.total, self.trial.wall_s)
        alone = [(node, unit) for node, units in by_node for unit in self.vacating.gaining_alone(node, units)]
        alone.sort(key=lambda each: (pricing.loss(each[1]), -each[1].started_s, each[1].uids, each[0]))
        for node, unit in alone[:_MOST_ALONE]:
            if self.placed > self.most_placed // 2:
                return None  # the rest is for several groups
            self._rollback(self._mark)
            self.elsewhere.choose_none()
            self.elsewhere.choose(node)
            if self._is_allowed((), unit) and self._move(unit) and self.vacating.reaches() and self.fits():
                return self._tried([unit])
        return None

    def _enough(self, by_node: Sequence[tuple[str, Sequence[Resident]]]) -> list[Resident] | None:
        """Groups that can be moved so that the need fits; None if that is not found.

        What was moved off a node comes back if no place was gained by it.
        """
        moved: dict[Resident, None] = {}
        self._rollback(self._mark)
        self.elsewhere.choose_none()
        for node, units in by_node:
            if not moved and node in self._barren:
                continue
            if len(moved) >= self.trial.settings.most_moved_groups:
                return None
            self.elsewhere.choose(node)
            before, mark = dict(moved), self._checkpoint()
            places = self.vacating.places() if self.vacating.says_all else -1
            if self._empty(node, units, moved):
                return [*moved]
            if len(moved) > len(before) and (places < 0 or self.vacating.places() > places):
                continue
            if len(moved) > len(before):
                self._rollback(mark)
            moved = before
            self.elsewhere.leave(node)
            if not moved:
                self._barren.add(node)
        return None

    def _empty(self, node: str, units: Sequence[Resident], moved: dict[Resident, None]) -> bool:
        """Move groups off a node until the need fits, and say whether it does; ``moved`` takes them."""
        staying = [unit for unit in units if unit not in moved and not self.elsewhere.may_hold(unit)]
        for unit in units:
            if unit in moved or unit in staying:
                continue
            if len(moved) >= self.trial.settings.most_moved_groups or not self.vacating.may_gain(node, staying):
                return False
            if not self._is_allowed(moved, unit) or self._move(unit) is None:
                staying.append(unit)
                continue
            moved[unit] = None
            if self.vacating.reaches() and self.fits():
                return True
        return False

    def _is_allowed(self, moved: Iterable[Resident], unit: Resident) -> bool:
        """Whether PodDisruptionBudgets, and the last answers of the API server, let one more group go beside these."""
        counted = self.trial.counted
        if counted.forbid_nothing:
            return True
        return counted.takes(pod for each in (*moved, unit) for pod in each.pods) is not None

    def _move(self, unit: Resident) -> list[Place] | None:
        """Take a group off, and place it elsewhere; None if not all of it fits, and then it is where it was."""
        if not self.elsewhere.may_hold(unit):
            return None
        besides = self.elsewhere.chosen.union(pod.node for pod in unit.pods)
        trial, mark, places = self.trial, self._checkpoint(), list[Place]()
        self._spend(len(unit.pods))
        self._release(unit)
        trial.statement.evict(*unit.pods)
        for pod in unit.pods:
            place = trial.paper.move(pod, besides)
            if place is None:
                self._rollback(mark)
                return None
            places.append(place)
        return places

    def _release(self, unit: Resident) -> None:
        trial = self.trial
        for pod in unit.pods:
            of = trial.pod_groups.get((pod.namespace, pod.pod_group)) if pod.pod_group else None
            trial.accounts.release(Use(unit.unit.queue, amounts(trial, pod), is_fixed(pod, of)))

    def fits(self) -> bool:
        """Whether the need fits as things are on paper."""
        self._spend(len(self.need.pods))
        mark = self._checkpoint()
        fits = self.trial.paper.place(self.need) is not None
        self._rollback(mark)
        return fits

    # --- giving back ---------------------------------------------------------------------------------------------
    def _without_spare(self, units: list[Resident]) -> Moves | None:
        """Leave out groups one by one that the need fits without, those that hold most first."""
        best = self._tried(units)
        for unit in sorted(units, key=lambda each: (-each.amounts.gpu_nano, each.uids)):
            fewer = [each for each in units if each is not unit]
            try:
                found = self._tried(fewer) if fewer else None
            except _TooLong:
                break
            if found is not None:
                units, best = fewer, found
        return best

    def _tried(self, units: Sequence[Resident]) -> Moves | None:
        """These groups moved, and then the need placed, from the beginning; None if one of them does not fit."""
        self._rollback(self._mark)
        moved = list[Place]()
        self._spend(len(self.need.pods))
        for unit in units:
            elsewhere = self._move(unit)
            if elsewhere is None:
                return None
            moved += elsewhere
        places = self.trial.paper.place(self.need)
        if places is None:
            return None
        return Moves(units=tuple(unit.unit for unit in units), places=places, moved=tuple(moved))
