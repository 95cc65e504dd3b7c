"""Moving: a need that fits in what is free in all, but not where it is (KAI's consolidation).

Nodes are looked at by how many GPUs could be moved off them, fewest first. What may be moved there goes group by group,
each only if all its pods find places on other nodes, until the need fits. Then groups that are not needed stay. Nobody
is evicted without a place: what is found was placed as a whole, on one working copy.

A gang is moved whole or not at all, but for pods above its minimum, which are moved one by one. Nobody is moved whose
successor nobody would make (``PodRecord.moves_as``).

A search places a limited number of pods on paper, as the other searches do (search.py). What it has found by then
stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from gpu.share import NANO_PER_DEVICE
from scheduler.core.model.records import PodClass
from scheduler.core.model.room import Moves, NoMoves, Place
from scheduler.core.nodes.table import GPUS, Int64s
from scheduler.core.queues.accounts import Use
from scheduler.core.queues.use import is_fixed
from scheduler.core.room import protection
from scheduler.core.room.need import Need
from scheduler.core.room.search import MOST_PLACED
from scheduler.core.room.slots import slots
from scheduler.core.room.trial import Trial
from scheduler.core.room.units import Resident, amounts

_S: Final = 1_000_000_000
#: The most nodes that are looked at for one need.
_MOST_NODES: Final = 64
#: What was moved off the first node may be in the way of all else: this many nodes have a try as the first one.
_STARTS: Final = 8
#: More pods than that on one node are not told apart, so that sums stay small.
_AS_MANY: Final = 1 << 20


def find_moves(need: Need, trial: Trial, *, most_placed: int = MOST_PLACED) -> Moves | NoMoves:
    """Say who is to be moved for a need. Statement and accounts are left as they were.

    ``most_placed``: pods that are placed on paper at most, beside those of the last try.
    """
    if need.is_fixed or trial.settings.most_moved_groups <= 0 or not _is_free_in_all(need, trial):
        return NoMoves()
    trial.residents.refresh(trial)
    if not trial.residents.movable:
        return NoMoves()
    if protection.delayed_until_s(need, trial.evicted.get(need.owner), trial.wall_s):
        return NoMoves()
    mark = trial.statement.checkpoint(), trial.accounts.checkpoint()
    moving = _Moving(need, trial, most_placed)
    try:
        if moving.fits():
            return NoMoves(placed=moving.placed)  # it fits when those are gone that go anyway
        found = moving.found()
        return msgspec.structs.replace(found or NoMoves(), placed=moving.placed)
    finally:
        trial.statement.rollback(mark[0])
        trial.accounts.rollback(mark[1])


def _is_free_in_all(need: Need, trial: Trial) -> bool:
    """Whether there are as many GPUs free as a need asks, wherever they are; parts of shared devices count as well."""
    table = trial.statement.table
    free = int(table.free[GPUS].clip(min=0).sum()) * NANO_PER_DEVICE
    free += sum(device.free_nano for devices in table.devices for device in devices if device.is_open)
    pods = need.pods if need.quorum is None else need.quorum.needed(need.pods)
    return sum(pod.cls.demand.gpus for pod in pods) * NANO_PER_DEVICE <= free


class _TooLong(Exception):
    """More was tried than one search may."""


@dataclass(slots=True)
class _Moving:
    """One need's search. ``nodes``: those that were chosen, which take no mover. ``placed``: pods, on paper."""

    need: Need
    trial: Trial
    most_placed: int
    placed: int = 0
    nodes: set[str] = field(default_factory=set)
    _mark: tuple[int, int] = field(init=False)
    #: What nodes hold of each class, as long as nobody else is moved.
    _held: dict[PodClass, Int64s] = field(default_factory=dict)
    #: By queue, how long its groups run before they may be moved.
    _unmoved_ns: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._mark = self._checkpoint()

    def _checkpoint(self) -> tuple[int, int]:
        return self.trial.statement.checkpoint(), self.trial.accounts.checkpoint()

    def _rollback(self, mark: tuple[int, int]) -> None:
        self.trial.statement.rollback(mark[0])
        self.trial.accounts.rollback(mark[1])

    def found(self) -> Moves | None:
        """Who is moved."""
        trial = self.trial
        units = [unit for unit in trial.residents.movable.values() if not self._is_protected(unit)]
        taken = map(trial.pods.records.get, trial.taken) if trial.budgets else ()
        trial.counted.spend(pod for pod in taken if pod is not None and not pod.deleting)
        by_node = self._by_node(units)
        try:
            for first in range(min(_STARTS, len(by_node))):
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

    # --- who may be moved ----------------------------------------------------------------------------------------
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

    def _by_node(self, units: Sequence[Resident]) -> list[tuple[str, list[Resident]]]:
        """Nodes with what may be moved off them, those first that have the least; the smallest groups first."""
        statement, on = self.trial.statement, dict[str, list[Resident]]()
        for unit in units:
            for node in dict.fromkeys(pod.node for pod in unit.pods):
                if node in statement.position_of:
                    on.setdefault(node, []).append(unit)
        free = self._free_nano()
        mass = {node: sum(unit.amounts.gpu_nano for unit in there) for node, there in on.items()}
        order = sorted((mass[node], node) for node in on if mass[node])
        few = [node for least, node in order if self._least(on[node]) <= free][:_MOST_NODES]
        return [(node, sorted(on[node], key=lambda unit: (unit.amounts.gpu_nano, unit.unit.pods))) for node in few]

    def _free_nano(self) -> int:
        table = self.trial.statement.table
        free = int(table.free[GPUS].clip(min=0).sum()) * NANO_PER_DEVICE
        return free + sum(device.free_nano for devices in table.devices for device in devices if device.is_open)

    def _least(self, units: Sequence[Resident]) -> int:
        return min(unit.amounts.gpu_nano for unit in units)

    # --- who is moved --------------------------------------------------------------------------------------------
    def _begin_again(self) -> None:
        self._rollback(self._mark)
        self._held.clear()

    def _enough(self, by_node: Sequence[tuple[str, list[Resident]]]) -> list[Resident] | None:
        """Groups that can be moved so that the need fits; None if that is not found."""
        moved: dict[tuple[str, ...], Resident] = {}
        self._begin_again()
        self.nodes.clear()
        for node, units in by_node:
            self.nodes.add(node)
            before = len(moved)
            for unit in units:
                if len(moved) >= self.trial.settings.most_moved_groups:
                    return None
                if unit.unit.pods in moved or not self._is_allowed([*moved.values(), unit]):
                    continue
                if self._move(unit) is None:
                    continue
                moved[unit.unit.pods] = unit
                if self.fits():
                    return [*moved.values()]
            if len(moved) == before:
                self.nodes.discard(node)
        return None

    def _is_allowed(self, units: Sequence[Resident]) -> bool:
        """Whether PodDisruptionBudgets, and the last answers of the API server, let all of these go."""
        return self.trial.counted.takes(pod for unit in units for pod in unit.pods) is not None

    def _move(self, unit: Resident) -> list[Place] | None:
        """Take a group off, and place it elsewhere; None if not all of it fits, and then it is where it was."""
        besides = self.nodes.union(pod.node for pod in unit.pods)
        if not self._may_fit(unit, besides):
            return None
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
        self._held.clear()
        return places

    def _may_fit(self, unit: Resident, besides: Set[str]) -> bool:
        """Whether other nodes hold as many pods of each class, as far as counting tells.

        Mostly they do not. The group is not taken off for that: what it leaves is on nodes that it does not return to.
        Where rules on labels decide, nothing is counted, as they may change when it goes.
        """
        at = [*map(self.trial.statement.position_of.get, besides)]
        off = [position for position in at if position is not None]
        for cls, count in Counter(pod.moves_as for pod in unit.pods).items():
            if cls is None or cls.rules is not None:
                continue
            if cls not in self._held:
                self._held[cls] = np.minimum(slots(self.trial.statement, cls), _AS_MANY)
            held = self._held[cls]
            if int(held.sum()) - int(held[off].sum()) < count:
                return False
        return True

    def _release(self, unit: Resident) -> None:
        trial = self.trial
        group = trial.pod_groups.get(unit.unit.group)
        for pod in unit.pods:
            of = group if pod.pod_group else None
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
        for unit in sorted(units, key=lambda each: (-each.amounts.gpu_nano, each.unit.pods)):
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
        self._begin_again()
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
