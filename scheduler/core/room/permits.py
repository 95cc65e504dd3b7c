"""Whether units may go one after the other, judged as they are chosen: each once, after all that went before it.

To judge all that were chosen again with each further one would cost their number squared. Nor are they judged again
where one of them stays after all: the others take less then than they did with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from scheduler.core.model.preemption import Respect
from scheduler.core.model.quota import NOTHING, Resources
from scheduler.core.room.budgets import Budgets
from scheduler.core.room.rules import Rules
from scheduler.core.room.table import ResidentTable
from scheduler.core.room.units import Resident


class Gone(NamedTuple):
    """What those that go take: of queues, by number, and of budgets, by their place."""

    lost: Mapping[int, Resources]
    taken: Counter[int]


#: Nobody has gone.
NOBODY: Final = Gone({}, Counter())


@dataclass(slots=True)
class Permits:
    """Rules and budgets of one search."""

    table: ResidentTable
    rules: Rules
    budgets: Budgets

    def go(self, rows: Sequence[int], before: Gone = NOBODY) -> Gone | None:
        """What has gone once these have, after those ``before``; None if one of them may not."""
        units = self.table.at(rows)
        lost = self.rules.permit(units, before.lost)
        if lost is None or self.budgets.forbid_nothing:
            return None if lost is None else Gone(lost, before.taken)
        more = self.budgets.takes(pod for unit in self._protected(units, before.lost) for pod in unit.pods)
        if more is None or not self.budgets.allow(before.taken, more):
            return None
        return Gone(lost, before.taken + more)

    def back(self, row: int, gone: Gone) -> Gone:
        """What has gone if this one, which is among them, stays. The others may go without it (test_rules.py)."""
        unit, lost = self.table.at([row])[0], dict(gone.lost)
        for number in unit.leaf.path:
            lost[number] = lost.get(number, NOTHING).minus(unit.amounts)
        if self.budgets.forbid_nothing or self.rules.settings.budgets is not Respect.ALWAYS:
            return Gone(lost, gone.taken)  # nobody knows whether it was counted: then others may take less
        more = self.budgets.takes(unit.pods)
        return Gone(lost, gone.taken - more if more else gone.taken)

    def _protected(self, units: Sequence[Resident], before: Mapping[int, Resources]) -> Iterator[Resident]:
        """Those for which budgets count, with what goes before each."""
        lost = dict(before)
        for unit in units:
            if not self.rules.outgrows_budgets(unit, lost):
                yield unit
            self.rules.take(unit, lost)
