"""Victims of intents on record: asked to go while their intent stands, its holders wait, and they will fit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from scheduler.core.model.preemption import Intent, Victim
from scheduler.core.report.queue_state import QueueState
from scheduler.room.evicting import Evictor, Wanted
from scheduler.room.telling import Evictions
from scheduler.telemetry.observing import Answer
from scheduler.watch.cache import Cache

#: As whom the evictor knows this.
_ASKER: Final = "room"


class Victims:
    """Asks for them. ``stands``: whether an intent stands as it is written; ``answered`` gets each answer."""

    def __init__(
        self,
        cache: Cache,
        *,
        evictor: Evictor,
        telling: Evictions,
        stands: Callable[[Intent], bool],
        answered: Callable[[Intent, Answer], None],
    ) -> None:
        self._cache = cache
        self._intents = cache.cluster.commits.intents
        self._evictor = evictor
        self._telling = telling
        self._stands = stands
        self._answered = answered
        #: Victims that were evicted, by intent.
        self.evicted: dict[str, int] = {}

    def adopt(self, intent: Intent) -> None:
        """Take an intent of an earlier leader: victims that are gone were evicted by that one."""
        self.evicted[intent.id] = sum(not self._is_there(victim) for victim in intent.victims)

    def ask(self, intents: Iterable[Intent]) -> None:
        """Have the victims evicted, unit by unit as they were chosen."""
        intents = [intent for intent in intents if intent.victims]
        states = self._telling.states() if intents else {}
        for intent in intents:
            for victim in intent.victims:
                self._ask_for(intent, victim, states)

    def ask_again(self, intents: Iterable[Intent]) -> None:
        """Ask for victims that were spared as their holders would not have fitted then, and are due now."""
        due = [
            (intent, victim)
            for intent in intents
            for victim in intent.victims
            if not self._evictor.is_asking(victim.pod_uid, _ASKER) and self._is_due(intent, victim)
        ]
        states = self._telling.states() if due else {}
        for intent, victim in due:
            self._ask_for(intent, victim, states)

    def has_on_its_way(self, intent: Intent, but: Collection[Victim] = ()) -> bool:
        """Whether a victim of an intent, ``but`` for these, may yet be evicted."""
        return any(victim not in but and self._evictor.is_on_its_way(victim.pod_uid) for victim in intent.victims)

    def forget_refusals(self) -> None:
        """Forget how often pods were refused that were not asked again for a while."""
        self._evictor.forget_refusals()

    def _ask_for(self, intent: Intent, victim: Victim, states: Mapping[str, QueueState]) -> None:
        note = self._telling.note(intent, victim, states)

        def is_due() -> bool:
            return self._is_due(intent, victim)

        def told(answer: Answer) -> None:
            if self._cache.cluster.pod(victim.pod_uid) is not None:
                self._cache.room.note_asked(victim.pod_uid)
                self._cache.wake.set()
            self._answered(intent, answer)
            self._telling.told(intent, victim, note, answer)

        self._evictor.ask(
            Wanted(
                uid=victim.pod_uid,
                namespace=victim.namespace,
                name=victim.name,
                asker=_ASKER,
                is_due=is_due,
                told=told,
                past_budgets=victim.past_budgets,
            )
        )

    def _is_due(self, intent: Intent, victim: Victim) -> bool:
        """Whether the intent stands as it is written, its holders wait and will fit, and the victim is where it was."""
        if not self._stands(intent):
            return False
        return self._is_there(victim) and self._is_waited_for(intent) and self._cache.cluster.will_fit(intent)

    def _is_waited_for(self, intent: Intent) -> bool:
        """Whether all holders wait that are not on their way or bound already."""
        pods = [self._cache.cluster.pod(place.pod_uid) for place in intent.places]
        if any(pod is None or pod.deleting or pod.gated for pod in pods):
            return False
        return any(self._intents.waits(place.pod_uid) for place in intent.places)

    def _is_there(self, victim: Victim) -> bool:
        pod = self._cache.cluster.pod(victim.pod_uid)
        return pod is not None and pod.node == victim.node and not pod.deleting
