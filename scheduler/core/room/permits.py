"""Whether units may go one after the other, judged as they are chosen: each once, after all that went before it.

To judge all that were chosen again with each further one would cost their number squared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from scheduler.core.model.resources import Resources
from scheduler.core.room.budgets import Budgets
from scheduler.core.room.rules import Rules
from scheduler.core.room.table import ResidentTable


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
        more = self.budgets.takes(pod for unit in units for pod in unit.pods)
        if more is None or not self.budgets.allow(before.taken, more):
            return None
        return Gone(lost, before.taken + more)
