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
from kube.client.clock import Clock
from kube.client.errors import Refused
from kube.client.retry import doubled_s
from kube.events import EventRecorder
from kube.telemetry.logevents import LogEvent, about
from kube.watch.signal import Signal
from scheduler.core.model.plan import GiveUp, Nominate
from scheduler.core.model.preemption import Ended, Nomination, Victim
from scheduler.core.preemption.eviction_history import Takes
from scheduler.core.preemption.nomination_record import MOST_BYTES, Record, evictions, pods_of, without
from scheduler.core.preemption.record_shares import added
from scheduler.core.report.state import QueueState
from scheduler.preemption.evictor import Evictions, Evictor, Wanted
from scheduler.preemption.nomination_record import NominationRecord, Wrote
from scheduler.telemetry.events import Answer, Emit, EvictedInVain
from scheduler.watch.cache import Cache
from wire.units import SECOND_NS

#: As whom the evictor knows this.
_ASKER: Final = "preemption"


class Victims:
    """Asks for them. ``stands``: whether a nomination stands as it is written; ``answered`` gets each answer."""

    def __init__(
        self,
        cache: Cache,
        *,
        evictor: Evictor,
        telling: Evictions,
        stands: Callable[[Nomination], bool],
        answered: Callable[[Nomination, Answer], None],
    ) -> None:
        self._cache = cache
        self._nominations = cache.cluster.commits.nominations
        self._evictor = evictor
        self._telling = telling
        self._stands = stands
        self._answered = answered
        #: Victims that were evicted, by nomination.
        self.evicted: dict[str, int] = {}

    def adopt(self, nomination: Nomination) -> None:
        """Take a nomination of an earlier leader: victims that are gone were evicted by that one."""
        self.evicted[nomination.id] = sum(not self._is_there(victim) for victim in nomination.victims)

    def ask(self, nominations: Iterable[Nomination]) -> None:
        """Have the victims evicted, unit by unit as they were chosen."""
        nominations = [nomination for nomination in nominations if nomination.victims]
        states = self._telling.states() if nominations else {}
        for nomination in nominations:
            for victim in nomination.victims:
                self._ask_for(nomination, victim, states)

    def ask_again(self, nominations: Iterable[Nomination]) -> None:
        """Ask for victims that were spared as their nominated pods would not have fitted then, and are due now."""
        due = [
            (nomination, victim)
            for nomination in nominations
            for victim in nomination.victims
            if not self._evictor.is_asking(victim.pod_uid, _ASKER) and self._is_due(nomination, victim)
        ]
        states = self._telling.states() if due else {}
        for nomination, victim in due:
            self._ask_for(nomination, victim, states)

    def has_on_its_way(self, nomination: Nomination, but: Collection[Victim] = ()) -> bool:
        """Whether a victim of a nomination, ``but`` for these, may yet be evicted."""
        return any(victim not in but and self._evictor.is_on_its_way(victim.pod_uid) for victim in nomination.victims)

    def forget_refusals(self) -> None:
        """Forget how often pods were refused that were not asked again for a while."""
        self._evictor.forget_refusals()

    def _ask_for(self, nomination: Nomination, victim: Victim, states: Mapping[str, QueueState]) -> None:
        note = self._telling.note(nomination, victim, states)

        def is_due() -> bool:
            return self._is_due(nomination, victim)

        def told(answer: Answer) -> None:
            if self._cache.cluster.pod(victim.pod_uid) is not None:
                self._cache.preemption.note_asked(victim.pod_uid)
                self._cache.wake.set()
            self._answered(nomination, answer)
            self._telling.told(nomination, victim, note, answer)

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

    def _is_due(self, nomination: Nomination, victim: Victim) -> bool:
        """Whether the nomination stands as written, its pods wait and will fit, and the victim is where it was."""
        if not self._stands(nomination):
            return False
        return self._is_there(victim) and self._is_waited_for(nomination) and self._cache.cluster.will_fit(nomination)

    def _is_waited_for(self, nomination: Nomination) -> bool:
        """Whether all nominated pods wait that are not on their way or bound already."""
        pods = [self._cache.cluster.pod(place.pod_uid) for place in nomination.places]
        if any(pod is None or pod.deleting or pod.gated for pod in pods):
            return False
        return any(self._nominations.waits(place.pod_uid) for place in nomination.places)

    def _is_there(self, victim: Victim) -> bool:
        pod = self._cache.cluster.pod(victim.pod_uid)
        return pod is not None and pod.node == victim.node and not pod.deleting


_log: Final = logging.getLogger(__name__)
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
#: After a write that left nominations out, as the record has no room for them: each write is as long as the record.
_FULL_S: Final = 0.5


class Preemption:
    """Writes nominations and has their victims evicted. ``clock``: the API server's."""

    def __init__(
        self,
        api: Api,
        cache: Cache,
        *,
        evictor: Evictor,
        clock: Clock,
        events: EventRecorder,
        emit: Emit,
    ) -> None:
        self._cache = cache
        self._nominations = cache.cluster.commits.nominations
        self._clock = clock
        self._emit = emit
        self._record = NominationRecord(api, cache.cluster.settings.pool)
        self._victims = Victims(
            cache,
            evictor=evictor,
            telling=Evictions(cache, events, emit),
            stands=self._stands,
            answered=self._answered,
        )
        #: What holds and is to be written, by id.
        self._fresh: dict[str, Nomination] = {}
        #: What is on record, as it is written there, by id.
        self._kept: dict[str, Nomination] = {}
        #: What this process gave up, or could not write: it is not taken for a nomination if it is read again.
        self._over: set[str] = set()
        #: What is over and charged until that is on record: when it was given up (event loop's time), by id.
        self._ending: dict[str, float] = {}
        #: What namespaces took from others within the hour, and whether they kept it: of the record but for writes that
        #: were refused after evictions had been counted for them.
        self._takes = Takes()
        #: First nominated pods of nominations that were given up before anybody was evicted, as far as a write may yet
        #: add them.
        self._never: set[str] = set()
        #: What is being written for the first time, by id: it may be on record.
        self._sent: frozenset[str] = frozenset()
        self._is_read = self._is_taken = self._is_forbidden = False
        #: So long the text may be; what does not fit waits.
        self.most_bytes = MOST_BYTES
        #: Writes that were refused, or came second, in a row.
        self._refusals = self._overtakings = 0
        self._news = Signal()

    # --- what is decided -------------------------------------------------------------------------------------------
    def take(self, entry: Nominate | GiveUp) -> None:
        """Take what was decided: it is charged when this returns, or evicts nobody any more."""
        match entry:
            case Nominate(nomination=nomination):
                self._begin(nomination)
            case GiveUp(nomination_id=nomination_id, because=because):
                self._give_up(nomination_id, because)

    def _begin(self, nomination: Nomination) -> None:
        """Another leader's nomination may have come to stand since this was decided: then it is decided again."""
        try:
            self._nominations.put(nomination)
        except ValueError as error:
            _log.warning("a nomination is dropped: %s", error)
            self._cache.preemption.note_unwritten()
            self._cache.wake.set()
            return
        self._over.discard(nomination.id)
        self._fresh[nomination.id] = nomination
        self._news.set()

    def _give_up(self, nomination_id: str, because: Ended) -> None:
        nomination = self._nominations.get(nomination_id)
        if nomination is None or nomination_id in self._ending:
            return
        evicted = self._victims.evicted.pop(nomination_id, 0)
        if not evicted and not self._victims.has_on_its_way(nomination):
            self._never.add(nomination.places[0].pod_uid)
            self._take_back()
        if evicted and because is not Ended.BOUND:
            self._emit(EvictedInVain(evicted))
        extra = about(LogEvent.NOMINATION_ENDED, nomination=nomination_id, because=because.value, evicted=evicted)
        _log.info("a nomination is over", extra=extra)
        self._end(nomination)
        if self._fresh or nomination_id in self._ending:
            self._news.set()  # one that did not fit may fit now

    def _end(self, nomination: Nomination) -> None:
        """It is free at once if it is not on record, or nobody waits for what it keeps."""
        is_waited_for = any(self._nominations.waits(place.pod_uid) for place in nomination.places)
        if not is_waited_for or not self._may_be_written(nomination.id):
            self._drop(nomination.id)
            return
        self._ending[nomination.id] = anyio.current_time()
        self._nominations.end(nomination.id)
        self._fresh.pop(nomination.id, None)
        self._kept.pop(nomination.id, None)
        self._over.add(nomination.id)

    def _may_be_written(self, nomination_id: str) -> bool:
        return nomination_id in self._sent or nomination_id in self._record.ids

    def _drop_ended(self, *, now: bool = False) -> None:
        """Free what those kept whose end is on record, or ``now``: could not be written for too long."""
        before_s = anyio.current_time() - _ENDING_S
        done = [
            nomination_id
            for nomination_id, since_s in self._ending.items()
            if not self._may_be_written(nomination_id) or (now and since_s <= before_s)
        ]
        for nomination_id in done:
            self._drop(nomination_id)
        if done:
            self._cache.wake.set()
            self._victims.ask_again(self._kept.values())

    def _drop(self, nomination_id: str) -> None:
        self._nominations.drop(nomination_id)
        self._fresh.pop(nomination_id, None)
        self._kept.pop(nomination_id, None)
        self._ending.pop(nomination_id, None)
        self._over.add(nomination_id)

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
        """Whether the record lacks a claim that failed, or how a take ended, or has a nomination that is over.

        Or evictions for a nomination that could not be written. Evictions that no longer count go with the next write.
        """
        return (
            self._takes.has_news
            or self._takes.known != self._record.hour
            or self._record.claims != self._cache.preemption.failed_claims
            or any(nomination.id not in self._kept for nomination in self._record.record.nominations)
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
        self._cache.preemption.note_claims_known(self._record.claims, at_s=self._now_s())
        before, self._kept = self._kept, {}
        for nomination_id in [each for each in self._fresh if each not in before]:
            self._drop(nomination_id)
            self._cache.preemption.note_unwritten()
        for nomination in self._record.record.nominations:
            if nomination.id in self._over or self._is_another(nomination):
                continue
            try:
                self._nominations.put(nomination)
            except ValueError as error:
                _log.warning("a nomination of the record is left out: %s", error)
                continue
            self._kept[nomination.id] = nomination
            if nomination.id not in before:
                self._victims.adopt(nomination)
        for nomination_id in [each for each in before if each not in self._kept]:
            if (standing := self._nominations.get(nomination_id)) is not None:
                self._fresh[nomination_id] = standing
                self._news.set()
        self._drop_ended()
        self._ask(self._kept.values())
        self._takes.have(self._record.hour)
        self._settle_takes()
        self._note_evictions()
        self._cache.wake.set()

    def _is_another(self, nomination: Nomination) -> bool:
        """Whether another version of this nomination stands here."""
        known = self._nominations.get(nomination.id)
        return known is not None and known != nomination

    # --- writing -----------------------------------------------------------------------------------------------------
    def _now_s(self) -> int:
        return self._clock.now_ns() // SECOND_NS

    def _leaving(self) -> list[Nomination]:
        """What is over and stays on record, as an eviction for it is on its way."""
        return [
            nomination
            for nomination in self._record.record.nominations
            if nomination.id not in self._kept and self._victims.has_on_its_way(nomination)
        ]

    def _ready(self, leaving: Iterable[Nomination]) -> dict[str, Nomination]:
        """What may be written: no eviction is on its way of a pod that is no victim any more.

        A pod that one of those ``leaving`` names is in no other nomination until that one has left the record.
        """
        named = {uid for nomination in leaving for uid in pods_of(nomination)}
        return {
            nomination_id: nomination
            for nomination_id, nomination in self._fresh.items()
            if named.isdisjoint(pods_of(nomination))
            and not (
                (known := self._kept.get(nomination_id)) and self._victims.has_on_its_way(known, nomination.victims)
            )
        }

    async def _write(self) -> None:
        """One write for all that was decided and for all that is over."""
        leaving = self._leaving()
        fresh = self._ready(leaving)
        stay = self._kept.keys() | {nomination.id for nomination in leaving}
        record, hour = added(
            without(self._record.record, self._record.ids - stay),
            self._takes.hour(),
            [*fresh.values()],
            now_s=self._now_s(),
            most_bytes=self.most_bytes,
            texts=self._record.texts,
        )
        wanted = self._in_order(record)
        mine = [nomination for nomination in wanted.nominations if fresh.get(nomination.id) is nomination]
        if is_full := len(mine) < len(fresh):
            _log.warning("%d nominations wait, as the record has no room for their namespaces", len(fresh) - len(mine))
        self._sent = frozenset(nomination.id for nomination in wanted.nominations)
        wrote = await self._record.write(wanted, hour, self._cache.preemption.failed_claims)
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
        ages = {nomination.id: at for at, nomination in enumerate(self._nominations.all())}
        return Record(tuple(sorted(record.nominations, key=lambda nomination: ages.get(nomination.id, len(ages)))))

    def _written(self, mine: list[Nomination]) -> None:
        asked = []
        for nomination in mine:
            if self._fresh.get(nomination.id) is nomination:
                del self._fresh[nomination.id]
            if nomination.id not in self._over:
                self._kept[nomination.id] = nomination
                asked.append(nomination)
            extra = about(
                LogEvent.NOMINATION_MADE,
                nomination=nomination.id,
                action=nomination.action.value,
                victims=len(nomination.victims),
            )
            _log.info("who goes for whom is written", extra=extra)
        self._over &= self._record.ids
        self._drop_ended()
        self._ask(asked)
        self._takes.have(self._record.hour)
        self._take_back()
        self._note_evictions()

    async def _refuse(self, nominations: list[Nomination]) -> None:
        """They can't be written, so nobody goes for them. Evictions that were counted for them are not any more.

        They are dropped after a pause: they would be decided again in the same moment. One that was revised stands, as
        it keeps what was freed for it, and is written later.
        """
        await anyio.sleep(doubled_s(_FIRST_PAUSE_S, self._refusals, longest_s=_LONGEST_PAUSE_S))
        self._refusals += 1
        for nomination in nominations:
            if nomination.id in self._kept:
                self._news.set()
            elif self._fresh.get(nomination.id) is nomination:
                self._drop(nomination.id)
                self._cache.preemption.note_unwritten()
        self._note_evictions()
        self._cache.wake.set()

    def _ask(self, nominations: Iterable[Nomination]) -> None:
        if self._is_taken:
            self._victims.ask(nominations)

    def _take_back(self) -> None:
        """Nobody was evicted for these: they are no takes."""
        for first in self._never:
            self._takes.never(first)
        if not self._sent:
            self._never.clear()

    def _note_evictions(self) -> None:
        now_s = self._now_s()
        evicted = self._takes.known.evicted(now_s)
        self._cache.preemption.note_evicted(evictions(Record(evicted=evicted), now_s=now_s))
        self._cache.preemption.note_takers_wait(self._takes.waits(now_s))

    def _settle_takes(self) -> None:
        self._takes.settle(self._now_s(), lambda uid: self._cache.cluster.pod(uid) is not None)

    def pod_gone(self, uid: str) -> None:
        """A pod is gone, or has ended: if others were evicted for it not long ago, its namespace gave that up.

        What nobody was evicted for yet is given up as a nomination.
        """
        nomination = self._nominations.nominees.get(uid)
        if (
            nomination is not None
            and not self._victims.evicted.get(nomination.id)
            and not self._victims.has_on_its_way(nomination)
        ):
            return
        now_s = self._now_s()
        taken_by = self._nominations.victims.get(uid)
        if self._takes.gone(uid, now_s, taken_by=taken_by.namespace if taken_by is not None else ""):
            self._cache.preemption.note_takers_wait(self._takes.waits(now_s))

    def _answered(self, nomination: Nomination, answer: Answer) -> None:
        """A victim of a nomination was asked."""
        if answer is Answer.EVICTED and self._kept.get(nomination.id) == nomination:
            self._victims.evicted[nomination.id] = self._victims.evicted.get(nomination.id, 0) + 1
        elif answer is Answer.EVICTED and nomination.id in self._ending:
            self._emit(EvictedInVain(1))  # it was on its way
        if self._kept.get(nomination.id) != nomination or nomination.id in self._fresh:
            self._news.set()  # its end, or another version of it, waits for this answer

    def _stands(self, nomination: Nomination) -> bool:
        """Whether a nomination stands as it is written."""
        return (
            self._is_taken
            and self._kept.get(nomination.id) == nomination
            and self._nominations.get(nomination.id) == nomination
        )
