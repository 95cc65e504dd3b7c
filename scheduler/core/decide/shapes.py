"""Pods alone, shape by shape: the first that fits nowhere speaks for all that are left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scheduler.core.backlog.ranked import Turns
from scheduler.core.backlog.shape import Shape
from scheduler.core.decide.alone import Outcome, decide_alone
from scheduler.core.decide.attempts import Attempts
from scheduler.core.decide.kept_nodes import KeptOff
from scheduler.core.model.plan import Entry
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.priority_order import Rank
from scheduler.core.model.quota import Resources
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Verdict
from scheduler.core.queues.accounts import HeldBack


@dataclass(slots=True)
class WholeShape:
    """The pods of a shape in one decision: one of them a turn."""

    turns: Turns[Shape]
    attempts: Attempts
    entries: list[Entry]

    @property
    def rank(self) -> Rank | None:
        """The rank of the pod that is decided on next."""
        return self.turns.first()

    @property
    def queue(self) -> str:
        """The queue of all its pods."""
        return self.turns.of.key.queue

    @property
    def use(self) -> Resources:
        """What the pod that is decided on next would count for in it."""
        return self.attempts.snapshot.queues.asked(self.turns.of.key.cls)

    @property
    def least(self) -> Resources:
        """The least that it comes to use, wherever it is placed."""
        return self.attempts.snapshot.queues.least(self.turns.of.key.cls)

    @property
    def classes_next(self) -> Iterable[PodClass]:
        """The class of all its pods."""
        return (self.turns.of.key.cls,)

    def is_settled(self) -> bool:
        """Whether its class is known to fit nowhere, so that no turn is needed to say so."""
        key, attempts = self.turns.of.key, self.attempts
        if attempts.snapshot.supposes_nodes:
            return False
        if key.uid or key.cls not in attempts.classes.hopeless or key.cls not in attempts.classes.roomless:
            return False
        attempts.notes.shape_failed(key, attempts.classes.hopeless[key.cls], served=self.turns.taken)
        return True

    def decide(self) -> bool:
        """Decide on one pod; return whether there is another turn to come."""
        uid, snapshot = self.turns.take().uid, self.attempts.snapshot
        known = snapshot.pod(uid)
        if known is None:
            raise LookupError(f"pod {uid} waits, and is not known")
        pod = snapshot.judged(known, self.attempts.now_ns)
        if pod.blocker is not None or pod.cls != self.turns.of.key.cls:
            self._decide_misfiled(pod)
            return True
        outcome = decide_alone(pod, self.attempts, self.entries)
        key, notes, served = self.turns.of.key, self.attempts.notes, self.turns.taken - {uid}
        if isinstance(outcome, Verdict):
            notes.shape_failed(key, outcome, served=served)
        elif isinstance(outcome, HeldBack):
            elsewhere = self.attempts.classes.as_of_now(key.cls, outcome.verdict) if outcome.is_there else None
            notes.shape_held_back(key, outcome, served=served, elsewhere=elsewhere)
        elif isinstance(outcome, KeptOff):
            off, kept = (
                self.attempts.kept.off_of(key.queue, self.use, key),
                self.attempts.classes.as_of_now(key.cls, outcome.verdict),
            )
            notes.shape_kept_off(key, outcome.verdict, off, kept=kept, served=served)
        return outcome is Outcome.SERVED

    def _decide_misfiled(self, pod: PodRecord) -> None:
        """Decide on a pod whose volumes or others' terms have made it one of another shape since it was filed."""
        if pod.blocker is None and decide_alone(pod, self.attempts, self.entries) is Outcome.SERVED:
            return
        self.attempts.notes.misfiled(pod.uid)
        self.attempts.put_off()
