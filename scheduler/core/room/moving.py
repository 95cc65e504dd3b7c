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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from gpu.share import NANO_PER_DEVICE
from scheduler.core.model.preemption import Moves, NoMoves, Place
from scheduler.core.queues.accounts import Use
from scheduler.core.queues.use import is_fixed
from scheduler.core.room import protection
from scheduler.core.room.elsewhere import Elsewhere
from scheduler.core.room.movers import Movers
from scheduler.core.room.need import Need
from scheduler.core.room.search import MOST_PLACED
from scheduler.core.room.trial import Trial
from scheduler.core.room.units import Resident, amounts
from scheduler.core.room.vacating import Vacating

#: What was moved off the first node may be in the way of all else: this many nodes have a try as the first one.
_STARTS: Final = 8


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
