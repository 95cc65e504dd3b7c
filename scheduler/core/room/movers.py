"""Groups that may be moved, by node, as a statement stands (moving.py).

They are the same for all needs of a look as long as nothing is charged, so they are read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from gpu.share import NANO_PER_DEVICE
from scheduler.core.nodes.table import GPUS, IDLE, LEAVING, Bools, Int64s
from scheduler.core.room import protection
from scheduler.core.room.kept_slots import KeptSlots
from scheduler.core.room.trial import Trial
from scheduler.core.room.units import Resident, amounts

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
        for node, units in self._on.items():
            free[position_of[node]] += sum(self.nano_on(node, unit) for unit in units)
        return free

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
