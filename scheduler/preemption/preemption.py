"""Carries out preemption: what was decided is written, and then evicted; what is over leaves the record.

Nobody is evicted for a nomination that is not on the record in exactly these words, and victims are asked to go only
while it stands, its pods wait, and they will fit. Evictions of the hour are counted with the write that allows them, so
a crash between the two counts one too many, and never one too few.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import anyio

from kube.client.api import Api
from kube.client.backoff import doubled_s
from kube.client.clock import Clock
from kube.client.errors import Refused
from kube.events import EventRecorder
from kube.telemetry.logevents import LogEvent, about
from kube.watch.signal import Signal
from scheduler.core.model.plan import GiveUp, MakeRoom
from scheduler.core.model.preemption import Ended, Intent, Victim
from scheduler.core.preemption.eviction_history import Takes
from scheduler.core.preemption.nomination_record import MOST_BYTES, Record, evictions, without
from scheduler.core.preemption.record_shares import added
from scheduler.core.report.state import QueueState
from scheduler.preemption.evictor import Evictions, Evictor, Wanted
from scheduler.preemption.nomination_record import RoomRecord, Wrote
from scheduler.telemetry.observer import Answer, Observer
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


_log: Final = logging.getLogger(__name__)
_S: Final = 1_000_000_000
#: Between two looks for what is over. One write holds all of it.
_SWEEP_S: Final = 10.0
#: For so long the first decision of a term waits until the record is taken over.
_TAKING_S: Final = 10.0
#: So long, and up to a sweep longer, room is kept for an end that can't be written.
_ENDING_S: Final = 60.0
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 300.0
#: After a write that came second, doubled with each further one in a row.
_FIRST_GIVING_WAY_S: Final = 0.05
_LONGEST_GIVING_WAY_S: Final = 10.0
#: After a write that left intents out, as the record has no room for them: each write is as long as the record.
_FULL_S: Final = 0.5


class MakingRoom:
    """Writes intents and has their victims evicted. ``clock``: the API server's."""

    def __init__(
        self,
        api: Api,
        cache: Cache,
        *,
        evictor: Evictor,
        clock: Clock,
        events: EventRecorder,
        observer: Observer,
    ) -> None:
        self._cache = cache
        self._intents = cache.cluster.commits.intents
        self._clock = clock
        self._observer = observer
        self._record = RoomRecord(api, cache.cluster.settings.pool)
        self._victims = Victims(
            cache,
            evictor=evictor,
            telling=Evictions(cache, events, observer),
            stands=self._stands,
            answered=self._answered,
        )
        #: What holds and is to be written, by id.
        self._fresh: dict[str, Intent] = {}
        #: What is on record, as it is written there, by id.
        self._kept: dict[str, Intent] = {}
        #: What this process gave up, or could not write: it is not taken for an intent if it is read again.
        self._over: set[str] = set()
        #: What is over and charged until that is on record: when it was given up (event loop's time), by id.
        self._ending: dict[str, float] = {}
        #: What namespaces took from others within the hour, and whether they kept it: of the record but for writes that
        #: were refused after evictions had been counted for them.
        self._takes = Takes()
        #: First holders of intents that were given up before anybody was evicted, as far as a write may yet add them.
        self._never: set[str] = set()
        #: What is being written for the first time, by id: it may be on record.
        self._sent: frozenset[str] = frozenset()
        self._is_read = self._is_taken = self._is_forbidden = False
        #: So long the text may be; what does not fit waits.
        self.most_bytes = MOST_BYTES
        #: Writes that were refused, or came second, in a row.
        self._refusals = self._overtakings = 0
        self._news = Signal()
        evictor.on_refused = self._note_refused
        cache.room.on_gone = self._note_gone

    # --- what is decided -------------------------------------------------------------------------------------------
    def take(self, entry: MakeRoom | GiveUp) -> None:
        """Take what was decided: it is charged when this returns, or evicts nobody any more."""
        match entry:
            case MakeRoom(intent=intent):
                self._begin(intent)
            case GiveUp(intent_id=intent_id, because=because):
                self._give_up(intent_id, because)

    def _begin(self, intent: Intent) -> None:
        """Another leader's intent may have come to stand since this was decided: then it is decided again."""
        try:
            self._intents.put(intent)
        except ValueError as error:
            _log.warning("an intent is dropped: %s", error)
            self._cache.room.note_unwritten()
            self._cache.wake.set()
            return
        self._over.discard(intent.id)
        self._fresh[intent.id] = intent
        self._news.set()

    def _give_up(self, intent_id: str, because: Ended) -> None:
        intent = self._intents.get(intent_id)
        if intent is None or intent_id in self._ending:
            return
        evicted = self._victims.evicted.pop(intent_id, 0)
        if not evicted and not self._victims.has_on_its_way(intent):
            self._never.add(intent.places[0].pod_uid)
            self._take_back()
        if evicted and because is not Ended.BOUND:
            self._observer.evicted_in_vain(evicted)
        extra = about(LogEvent.ROOM_ENDED, intent=intent_id, because=because.value, evicted=evicted)
        _log.info("an intent is over", extra=extra)
        self._end(intent)
        if self._fresh or intent_id in self._ending:
            self._news.set()  # one that did not fit may fit now

    def _end(self, intent: Intent) -> None:
        """It is free at once if it is not on record, or nobody waits for what it keeps."""
        is_waited_for = any(self._intents.waits(place.pod_uid) for place in intent.places)
        if not is_waited_for or not self._may_be_written(intent.id):
            self._drop(intent.id)
            return
        self._ending[intent.id] = anyio.current_time()
        self._intents.end(intent.id)
        self._fresh.pop(intent.id, None)
        self._kept.pop(intent.id, None)
        self._over.add(intent.id)

    def _may_be_written(self, intent_id: str) -> bool:
        return intent_id in self._sent or intent_id in self._record.ids

    def _drop_ended(self, *, now: bool = False) -> None:
        """Free what those kept whose end is on record, or ``now``: could not be written for too long."""
        before_s = anyio.current_time() - _ENDING_S
        done = [
            intent_id
            for intent_id, since_s in self._ending.items()
            if not self._may_be_written(intent_id) or (now and since_s <= before_s)
        ]
        for intent_id in done:
            self._drop(intent_id)
        if done:
            self._cache.wake.set()
            self._victims.ask_again(self._kept.values())

    def _drop(self, intent_id: str) -> None:
        self._intents.drop(intent_id)
        self._fresh.pop(intent_id, None)
        self._kept.pop(intent_id, None)
        self._ending.pop(intent_id, None)
        self._over.add(intent_id)

    # --- a term ------------------------------------------------------------------------------------------------------
    async def begin(self) -> None:
        """Read the record, let stand what stands there, and take it over. Before the first decision of a term.

        A record that takes no writes holds nothing up for long: nobody is evicted for others until it does.
        """
        self._is_taken = False
        await self._read()
        with anyio.move_on_after(_TAKING_S):
            await self._take_over()
        self._news.set()

    async def run(self) -> None:
        """Write what is decided, until cancelled. The evictor runs on its own."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._sweep)
            while True:
                await self._news.wait()
                if not self._is_read:
                    await self._read()
                await self._take_over()
                if self._is_taken and (self._fresh or self._has_more()):
                    await self._write()
                elif self._fresh and not self._is_taken:
                    await self._refuse([*self._fresh.values()])

    async def _sweep(self) -> None:
        """What is over leaves the record now and then, and what did not fit is tried again."""
        while True:
            await anyio.sleep(_SWEEP_S)
            self._settle_takes()
            self._note_evictions()
            self._victims.forget_refusals()
            self._drop_ended(now=True)
            self._victims.ask_again(self._kept.values())
            self._news.set()

    def _has_more(self) -> bool:
        """Whether the record lacks a claim that failed, or how a take ended, or has an intent that is over.

        Or evictions for an intent that could not be written. Evictions that no longer count go with the next write.
        """
        return (
            self._takes.has_news
            or self._takes.known != self._record.hour
            or self._record.claims != self._cache.room.failed_claims
            or any(intent.id not in self._kept for intent in self._record.record.intents)
        )

    async def _read(self) -> None:
        try:
            await self._record.read()
        except Refused as error:
            if not self._is_forbidden:
                self._is_forbidden = True
                _log.error("nothing is evicted for others, as the record of it can't be read: %s", error)
            return
        self._is_forbidden = False
        self._is_read = True
        self._adopt()

    async def _take_over(self) -> None:
        """Write the record once, as it was read, before anything rests on it."""
        while self._is_read and not self._is_taken:
            match await self._record.take_over():
                case Wrote.WRITTEN:
                    self._is_taken = True
                    self._adopt()
                    self._overtakings = 0
                case Wrote.OVERTAKEN:
                    self._adopt()
                    await self._give_way()
                case Wrote.REFUSED | Wrote.UNREAD:
                    return

    async def _give_way(self) -> None:
        """Somebody else writes too, or a server says so: two that answer each other at once would never end."""
        await anyio.sleep(doubled_s(_FIRST_GIVING_WAY_S, self._overtakings, longest_s=_LONGEST_GIVING_WAY_S))
        self._overtakings += 1

    def _adopt(self) -> None:
        """Let stand what the record says, the oldest first, and ask for the victims.

        What was decided and never written gives way to it. What was written stands, even if it left the record.
        """
        self._cache.room.note_claims_known(self._record.claims, at_s=self._now_s())
        before, self._kept = self._kept, {}
        for intent_id in [each for each in self._fresh if each not in before]:
            self._drop(intent_id)
            self._cache.room.note_unwritten()
        for intent in self._record.record.intents:
            if intent.id in self._over or self._is_another(intent):
                continue
            try:
                self._intents.put(intent)
            except ValueError as error:
                _log.warning("an intent of the record is left out: %s", error)
                continue
            self._kept[intent.id] = intent
            if intent.id not in before:
                self._victims.adopt(intent)
        for intent_id in [each for each in before if each not in self._kept]:
            if (standing := self._intents.get(intent_id)) is not None:
                self._fresh[intent_id] = standing
                self._news.set()
        self._drop_ended()
        self._ask(self._kept.values())
        self._takes.have(self._record.hour)
        self._settle_takes()
        self._note_evictions()
        self._cache.wake.set()

    def _is_another(self, intent: Intent) -> bool:
        """Whether another version of this intent stands here."""
        known = self._intents.get(intent.id)
        return known is not None and known != intent

    # --- writing -----------------------------------------------------------------------------------------------------
    def _now_s(self) -> int:
        return self._clock.now_ns() // _S

    def _base(self) -> Record:
        """The record without what is over. That stays while an eviction for it is on its way."""
        over = [
            intent.id
            for intent in self._record.record.intents
            if intent.id not in self._kept and not self._victims.has_on_its_way(intent)
        ]
        return without(self._record.record, over)

    def _ready(self) -> dict[str, Intent]:
        """What may be written: no eviction is on its way of a pod that is no victim any more."""
        return {
            intent_id: intent
            for intent_id, intent in self._fresh.items()
            if not (known := self._kept.get(intent_id)) or not self._victims.has_on_its_way(known, intent.victims)
        }

    async def _write(self) -> None:
        """One write for all that was decided and for all that is over."""
        fresh = self._ready()
        record, hour = added(
            self._base(),
            self._takes.hour(),
            [*fresh.values()],
            now_s=self._now_s(),
            most_bytes=self.most_bytes,
            texts=self._record.texts,
        )
        wanted = self._in_order(record)
        mine = [intent for intent in wanted.intents if fresh.get(intent.id) is intent]
        if is_full := len(mine) < len(fresh):
            _log.warning("%d intents wait, as the record has no room for their namespaces", len(fresh) - len(mine))
        self._sent = frozenset(intent.id for intent in wanted.intents)
        wrote = await self._record.write(wanted, hour, self._cache.room.failed_claims)
        self._sent = frozenset()
        match wrote:
            case Wrote.WRITTEN:
                self._refusals = self._overtakings = 0
                self._written(mine)
                await anyio.sleep(_FULL_S if is_full else 0)
            case Wrote.OVERTAKEN:
                self._adopt()
                await self._give_way()
            case Wrote.REFUSED | Wrote.UNREAD:
                if wrote is Wrote.UNREAD:  # they may be on record
                    self._takes.have(self._record.hour)
                self._drop_ended()
                await self._refuse(mine)

    def _in_order(self, record: Record) -> Record:
        """By age: a new leader puts them in this order."""
        ages = {intent.id: at for at, intent in enumerate(self._intents.all())}
        return Record(tuple(sorted(record.intents, key=lambda intent: ages.get(intent.id, len(ages)))))

    def _written(self, mine: list[Intent]) -> None:
        asked = []
        for intent in mine:
            if self._fresh.get(intent.id) is intent:
                del self._fresh[intent.id]
            if intent.id not in self._over:
                self._kept[intent.id] = intent
                asked.append(intent)
            extra = about(LogEvent.ROOM_MADE, intent=intent.id, action=intent.action.value, victims=len(intent.victims))
            _log.info("who goes for whom is written", extra=extra)
        self._over &= self._record.ids
        self._drop_ended()
        self._ask(asked)
        self._takes.have(self._record.hour)
        self._take_back()
        self._note_evictions()

    async def _refuse(self, intents: list[Intent]) -> None:
        """They can't be written, so nobody goes for them. Evictions that were counted for them are not any more.

        They are dropped after a pause: they would be decided again in the same moment. One that was revised stands, as
        it keeps what was freed for it, and is written later.
        """
        await anyio.sleep(doubled_s(_FIRST_PAUSE_S, self._refusals, longest_s=_LONGEST_PAUSE_S))
        self._refusals += 1
        for intent in intents:
            if intent.id in self._kept:
                self._news.set()
            elif self._fresh.get(intent.id) is intent:
                self._drop(intent.id)
                self._cache.room.note_unwritten()
        self._note_evictions()
        self._cache.wake.set()

    def _ask(self, intents: Iterable[Intent]) -> None:
        if self._is_taken:
            self._victims.ask(intents)

    def _take_back(self) -> None:
        """Nobody was evicted for these: they are no takes."""
        for first in self._never:
            self._takes.never(first)
        if not self._sent:
            self._never.clear()

    def _note_evictions(self) -> None:
        now_s = self._now_s()
        evicted = self._takes.known.evicted(now_s)
        self._cache.room.note_evicted(evictions(Record(evicted=evicted), now_s=now_s))
        self._cache.room.note_takers_wait(self._takes.waits(now_s))

    def _settle_takes(self) -> None:
        self._takes.settle(self._now_s(), lambda uid: self._cache.cluster.pod(uid) is not None)

    def _note_gone(self, uid: str) -> None:
        """A pod is gone, or has ended: if others were evicted for it not long ago, its namespace gave that up.

        What nobody was evicted for yet is given up as an intent.
        """
        intent = self._intents.holders.get(uid)
        if intent is not None and not self._victims.evicted.get(intent.id) and not self._victims.has_on_its_way(intent):
            return
        now_s = self._now_s()
        taken_by = self._intents.victims.get(uid)
        if self._takes.gone(uid, now_s, taken_by=taken_by.namespace if taken_by is not None else ""):
            self._cache.room.note_takers_wait(self._takes.waits(now_s))

    def _note_refused(self, uid: str, is_refused: bool) -> None:
        self._cache.room.note_refused(uid, is_refused)
        self._cache.wake.set()

    def _answered(self, intent: Intent, answer: Answer) -> None:
        """A victim of an intent was asked."""
        if answer is Answer.EVICTED and self._kept.get(intent.id) == intent:
            self._victims.evicted[intent.id] = self._victims.evicted.get(intent.id, 0) + 1
        elif answer is Answer.EVICTED and intent.id in self._ending:
            self._observer.evicted_in_vain(1)  # it was on its way
        if self._kept.get(intent.id) != intent or intent.id in self._fresh:
            self._news.set()  # its end, or another version of it, waits for this answer

    def _stands(self, intent: Intent) -> bool:
        """Whether an intent stands as it is written."""
        return self._is_taken and self._kept.get(intent.id) == intent and self._intents.get(intent.id) == intent
