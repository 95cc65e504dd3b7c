"""What has to be freed of queues' limits, so that a need may be placed in its queue."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.core.model.quota import Resources
from scheduler.core.queues.accounts import Accounts
from scheduler.core.queues.tree import TreeQueue
from scheduler.core.room.units import Resident


class Limits:
    """By how much each queue on the way up is above its limit with a claim, and without the units that were taken."""

    def __init__(self, accounts: Accounts, taker: TreeQueue, claim: Resources) -> None:
        self._short: dict[int, list[int]] = {}
        for number in taker.path:
            limit, held = accounts.tree.queues[number].record.limit, accounts.of[number].held
            # What is not asked for is not looked at.
            short = [has + more - most if more > 0 else 0 for has, more, most in zip(held, claim, limit, strict=True)]
            if max(short) > 0:
                self._short[number] = short

    def are_met(self) -> bool:
        """Whether no queue is above its limit."""
        return all(max(short) <= 0 for short in self._short.values())

    def helps(self, unit: Resident) -> bool:
        """Whether a unit counts where something is short."""
        return any(
            lacks > 0 and has > 0
            for number, short in self._short.items()
            if number in unit.leaf.path
            for lacks, has in zip(short, unit.amounts, strict=True)
        )

    def take(self, unit: Resident, sign: int = 1) -> None:
        """It goes; with -1 it stays."""
        for number, short in self._short.items():
            if number in unit.leaf.path:
                short[:] = [lacks - sign * has for lacks, has in zip(short, unit.amounts, strict=True)]

    def are_met_without(self, unit: Resident) -> bool:
        """Whether it may stay."""
        self.take(unit, -1)
        found = self.are_met()
        self.take(unit)
        return found

    def prefix(self, units: Iterable[Resident]) -> int | None:
        """How many of the first units are enough; None if all of them are not. Nothing is taken by that."""
        taken: list[Resident] = []
        for unit in units:
            if self.are_met():
                break
            self.take(unit)
            taken.append(unit)
        found = len(taken) if self.are_met() else None
        for unit in taken:
            self.take(unit, -1)
        return found
