"""Members of a gang beyond its minimum: one after another, and the gang's rank is looked at again after each.

A gang that has just its minimum comes before those that have more (kai-contract 14.12). So it gets one member, and the
next one is placed in its new turn: by then another queue may have less of its share. While the minimum of a gang is on
its way none of the others is placed; but room is kept for them in their turn, or gangs that started a moment earlier
would get all of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.core.decide.alone import Outcome, decide_alone
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.beside_gang import BesideGang
from scheduler.core.decide.kept_nodes import KeptOff
from scheduler.core.groups.surplus import Surplus
from scheduler.core.model.plan import Entry
from scheduler.core.model.priority_order import ABOVE
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Verdict
from scheduler.core.queues.accounts import HeldBack


@dataclass(slots=True)
class Extras:
    """One gang's in one decision. ``above`` as in ``Candidate``. ``is_starting``: its minimum is on its way.

    ``may_sleep``: whether all of them fit nowhere, so that nothing is to be decided until that may have changed.
    """

    surplus: Surplus
    attempts: Attempts
    entries: list[Entry]
    above: int
    is_starting: bool
    may_sleep: bool = True
    #: The least that any of them would use that the queue does not take; may_sleep: what wakes them all.
    held_back: HeldBack | None = None
    #: Whether one of them fits on nodes only that are kept for others, or is left to the next decision.
    is_kept_off: bool = False
    is_put_off: bool = False
    #: Where the gang runs, if it asks for a place; and why the first member found none there.
    beside: BesideGang | None = None
    out_of_place: Verdict | None = None
    _has_failed: bool = False

    def turn(self) -> bool:
        """Decide until one is placed; return whether there is another turn to come."""
        while (pod := self.surplus.take()) is not None:
            if self.attempts.keep_room(pod) if self.is_starting else self._is_served(pod):
                self.surplus.placed()
                self.above = ABOVE
                return True
        return False

    def _is_served(self, pod: PodRecord) -> bool:
        outcome, notes = self._decided(pod), self.attempts.notes
        if isinstance(outcome, HeldBack):
            notes.say((pod.uid,), outcome.verdict)
            self._hold_back(outcome)
            return False
        if isinstance(outcome, KeptOff):
            notes.say((pod.uid,), outcome.verdict)
            self.is_kept_off = True
        if isinstance(outcome, Verdict):
            notes.say((pod.uid,), outcome)
        self.is_put_off = self.is_put_off or outcome is Outcome.PUT_OFF
        fits_nowhere = isinstance(outcome, Verdict) and notes.kept(pod.cls) is not None
        self.may_sleep = self.may_sleep and fits_nowhere and not pod.alone and self.held_back is None
        self._has_failed = True
        return outcome is Outcome.SERVED

    def _decided(self, pod: PodRecord) -> Outcome | Verdict | HeldBack | KeptOff:
        if self.beside is None:
            return decide_alone(pod, self.attempts, self.entries)
        outcome = self.beside.decide(pod, self.attempts, self.entries)
        if isinstance(outcome, Verdict) and outcome.topology is not None:
            self.out_of_place = self.out_of_place or outcome
        return outcome

    def _hold_back(self, held: HeldBack) -> None:
        """They sleep for their queue if it is what keeps all of them."""
        self.may_sleep = self.may_sleep and not self._has_failed
        known = self.held_back or held
        use, is_there = held.use.or_less(known.use), held.is_there or known.is_there
        self.held_back = HeldBack(held.verdict, use, is_there)
