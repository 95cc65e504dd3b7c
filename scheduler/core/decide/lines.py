"""Gangs that ask the same, line by line: the first that can't start speaks for all that are left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scheduler.core.backlog.gang_lines import GangLine
from scheduler.core.backlog.ranked import Turns
from scheduler.core.decide import costs
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.gangs import whole_gang
from scheduler.core.decide.queue_use import asked_of, least_of
from scheduler.core.model.plan import Entry
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.priority_order import Rank
from scheduler.core.model.quota import Resources


@dataclass(slots=True)
class WholeLine:
    """The gangs of a line in one decision: one of them a turn."""

    turns: Turns[GangLine]
    attempts: Attempts
    entries: list[Entry]

    @property
    def rank(self) -> Rank | None:
        """The rank of the gang that is decided on next."""
        return self.turns.first()

    @property
    def queue(self) -> str:
        """The queue of all its gangs."""
        return self.turns.of.key.queue

    @property
    def use(self) -> Resources:
        """What the members that start the next gang would count for in it."""
        return asked_of(self.attempts.snapshot, self.turns.of.needed)

    @property
    def least(self) -> Resources:
        """The least that they come to use, wherever they are placed."""
        return least_of(self.attempts.snapshot, self.turns.of.needed)

    @property
    def classes_next(self) -> Iterable[PodClass]:
        """Of the members that start the next gang."""
        return [cls for cls, _ in self.turns.of.needed]

    def is_settled(self) -> bool:
        """Whether a gang that asks the same could not start: then they sleep on, and say what that one says."""
        return self.attempts.notes.has_failed(self.turns.of.key.alike)

    def decide(self) -> bool:
        """Decide on one gang; return whether there is another turn to come.

        There is none after a gang that neither starts nor says that its like can't: it is left to the next decision.
        The line stays awake then. So it does if its queue takes no more, or nodes are kept for others: each behind has
        to be looked at once, as far as the namespace may go on.
        """
        line = self.turns.of
        key, before = line.gang(self.turns.take()), len(self.entries)
        if key in self.attempts.settled_gangs:
            return True
        whole = whole_gang(self.attempts.snapshot.backlog.gang(key), self.attempts, self.entries)
        if whole is None:
            return True
        whole.decide()
        if whole.waits.is_held_back or whole.waits.is_kept_off:
            self.attempts.allowance.spend(line.key.namespace, costs.HOLDING_BACK)
            return self.attempts.allowance.has_left(line.key.namespace) or self.attempts.put_off()
        return len(self.entries) > before or whole.waits.alike != line.key.alike
