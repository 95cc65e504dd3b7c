"""Carries out that what is left of a gang goes, and knows since when gangs have been below their minimum (S4).

Decisions say which gangs have had their time (scheduler/core/decide/stale_gangs.py), by the times that are noted here.
A gang of which a member has succeeded is at its end, and is left alone. The PodGroup says since when, so that a restart
does not change it: the annotation and its form are KAI's (``kai.scheduler/stale-podgroup-timestamp``, kai-contract 2.2
and 4.7), written when the gang falls below its minimum, removed when it is whole, has ended or has no pod left.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import anyio
import msgspec

from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.errors import ApiError
from kube.client.resources import POD_GROUPS, PODS
from kube.client.retry import doubled_s
from kube.events import Bursts, EventRecorder
from kube.telemetry.logevents import LogEvent, about
from kube.watch.signal import Signal
from scheduler.conditions import messages
from scheduler.conditions.messages import eviction_text
from scheduler.core.convert.pod_groups import pod_group_record, render_kept
from scheduler.core.convert.pods import pod_record
from scheduler.core.groups.quorum import Quorum, quorum
from scheduler.core.model.plan import Evict
from scheduler.core.model.records import PodGroupRecord
from scheduler.core.model.stale import Stale
from scheduler.preemption.evictor import ENDS, OF_GROUP, Evictor, Wanted
from scheduler.telemetry.events import Answer, Emit, EvictionAnswered, Evicts
from scheduler.watch.cache import Cache
from wire import names
from wire.api_groups import WARNING
from wire.core import ObjectReference, Pod
from wire.rfc3339 import parse_ns, rfc3339
from wire.units import SECOND_NS

_log: Final = logging.getLogger(__name__)
#: Between two writes on one PodGroup.
_PAUSE_S: Final = 5.0
_LONGEST_PAUSE_S: Final = 1800.0
#: Side by side.
_WRITES: Final = 4
#: The clock is read to the second, and is late by what an answer takes. So what is written is later by this, and no
#: gang is released too early.
_LATE_S: Final = 2.0
#: A stamp that is off by less is right.
_OFF_S: Final = 5.0

Key = tuple[str, str]
#: To be written on a PodGroup; None: taken away.
Annotations: TypeAlias = dict[str, str | None]


class Stamps:
    """Reads and writes since when gangs have been below their minimum. ``clock``: the API server's."""

    def __init__(self, api: Api, cache: Cache, *, clock: Clock) -> None:
        self._api = api
        self._cache = cache
        self._clock = clock
        #: PodGroup -> its state as read, and annotations as they should be; None: it should have none.
        self._wanted: dict[Key, tuple[PodGroupRecord, Annotations]] = {}
        #: PodGroup -> (writes that failed in a row, when it may be written again).
        self._paused: dict[Key, tuple[int, float]] = {}
        self._writing: set[Key] = set()
        self._on_wanted = Signal()

    async def run(self) -> None:
        """Write until cancelled."""
        limiter = anyio.CapacityLimiter(_WRITES)
        self._writing.clear()
        async with anyio.create_task_group() as tasks:
            while True:
                for key in [key for key in self._wanted if key not in self._writing]:
                    self._writing.add(key)
                    tasks.start_soon(self._write, key, limiter)
                await self._on_wanted.wait()

    def since(self, group: PodGroupRecord, now: float) -> float:
        """Since when a gang has been below its minimum, by its stamp; ``now`` (event loop's time) at the latest."""
        stamp_ns = parse_ns(group.stale_since)
        if stamp_ns is None:
            return now
        return now - max(0.0, (self._clock.now_ns() - stamp_ns) / SECOND_NS)

    def is_writing(self, key: Key) -> bool:
        """Whether a stamp of this PodGroup is being written."""
        return key in self._writing

    def keep(self, group: PodGroupRecord) -> None:
        """Have a PodGroup say at once that its minimums rose: nobody can tell that afterwards."""
        key = (group.namespace, group.name)
        if key not in self._paused and (wanted := _kept(group)):
            self._wanted[key] = (group, wanted)
            self._on_wanted.set()

    def put_right(self, since: Mapping[Key, float], now: float) -> None:
        """Have the stamps of all PodGroups say this: since when (event loop's time) each was below its minimum.

        And have those whose minimums rose say which ones their pods have.
        """
        differing = {
            (group.namespace, group.name): (group, wanted)
            for group in self._cache.cluster.pod_groups()
            if (wanted := {**self._stamp(group, since, now), **_kept(group)})
        }
        self._paused = {key: told for key, told in self._paused.items() if key in differing or told[1] > now}
        self._wanted = {key: told for key, told in differing.items() if now >= self._paused.get(key, (0, now))[1]}
        if self._wanted:
            self._on_wanted.set()

    def _stamp(self, group: PodGroupRecord, since: Mapping[Key, float], now: float) -> Annotations:
        """The stamp of a PodGroup, where it has another one."""
        began = since.get((group.namespace, group.name))
        if began is None:
            return {names.STALE_SINCE: None} if group.stale_since and group.blocker is None else {}
        if self._is_right(group, began, now) or self._is_starting(group, began, now):
            return {}
        return {names.STALE_SINCE: rfc3339(self._stamp_ns(began, now))}

    def _is_right(self, group: PodGroupRecord, since: float, now: float) -> bool:
        written_ns = parse_ns(group.stale_since)
        return written_ns is not None and abs(written_ns - self._stamp_ns(since, now)) < _OFF_S * SECOND_NS

    def _is_starting(self, group: PodGroupRecord, since: float, now: float) -> bool:
        """Whether a gang may be below its minimum only because its Bindings are seen one after another."""
        return now - since < _PAUSE_S and self._cache.cluster.is_gang_in_flight(group.namespace, group.name)

    def _stamp_ns(self, since: float, now: float) -> int:
        return self._clock.now_ns() - round((now - since - _LATE_S) * SECOND_NS)

    async def _write(self, key: Key, limiter: anyio.CapacityLimiter) -> None:
        try:
            async with limiter:
                await self._write_once(key)
        finally:
            self._writing.discard(key)

    async def _write_once(self, key: Key) -> None:
        group, annotations = self._wanted.pop(key, (None, {}))
        if group is None:
            return
        failures = self._paused.get(key, (0, 0.0))[0] + 1
        try:
            wanted = {"metadata": {"annotations": annotations}}
            written = await self._api.patch(POD_GROUPS, group.name, wanted, namespace=group.namespace, uid=group.uid)
        except ApiError as error:
            pause_s = doubled_s(_PAUSE_S, failures, longest_s=_LONGEST_PAUSE_S)
            _log.warning("how gang %s/%s stands was not written, again in %.0f s: %s", *key, pause_s, error)
        else:
            failures, pause_s = 0, _PAUSE_S
            self._cache.note_pod_group(written)
        self._paused[key] = (failures, anyio.current_time() + pause_s)


def _kept(group: PodGroupRecord) -> Annotations:
    """What a PodGroup should say of its minimums that rose, where it says something else."""
    if group.kept == group.written_kept or group.blocker is not None:
        return {}
    text = None if group.kept is None else render_kept(group.kept)
    return {} if text is None and group.written_kept is None else {names.KEPT_MINIMUM: text}


@dataclass(slots=True, eq=False)
class _Asked:
    """What is left of a gang, as it was judged. ``left``: pods whose eviction is not over. ``is_over``: judge again."""

    left: int
    is_over: bool = False


class Releasing:
    """Looks for gangs below their minimum, and releases those whose time is over, as it is decided."""

    def __init__(
        self,
        api: Api,
        cache: Cache,
        *,
        evictor: Evictor,
        events: EventRecorder,
        emit: Emit,
        staleness_grace_s: float,
    ) -> None:
        self._api = api
        self._cache = cache
        self._evictor = evictor
        self._events = events
        self._evicted = Bursts(events, reason=names.REASON_EVICT, action="Evicting")
        self._emit = emit
        self._grace_s = staleness_grace_s
        #: Gang -> since when (event loop's time) it has been below its minimum.
        self._since: dict[Key, float] = {}
        self._stamps = Stamps(api, cache, clock=api.clock)
        #: Gangs with a stamp that is out of date: they were seen not to be below their minimum.
        self._recovered: set[Key] = set()
        self._has_looked = False
        #: Gangs that were decided to go, and are read; and those whose evictions are asked for.
        self._decided: dict[Key, Evict] = {}
        self._on_decided = Signal()
        self._asked: dict[Key, _Asked] = {}
        #: Gang -> (evictions that were refused in a row, when to ask again).
        self._refused: dict[Key, tuple[int, float]] = {}
        #: What gangs were told about words of theirs that are left out of account, by UID and reason.
        self._said: dict[tuple[str, str], str] = {}
        cache.cluster.stale.staleness_grace_ns = round(staleness_grace_s * SECOND_NS)

    async def run(self) -> None:
        """Look now and then, as often as gangs are judged, and release what is decided to go; until cancelled."""
        for key in [*self._decided]:
            del self._decided[key]
            self._publish(key)
        every_s = self._cache.cluster.stale.interval_ns / SECOND_NS
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stamps.run)
            tasks.start_soon(self._release_decided)
            while True:
                await anyio.sleep(every_s)
                self.look()

    def take(self, entry: Evict) -> None:
        """Take what was decided. The gang is not decided on again before it is over."""
        if self._is_going(entry.pod_group):
            return
        self._decided[entry.pod_group] = entry
        self._on_decided.set()
        self._publish(entry.pod_group)

    def _is_going(self, key: Key) -> bool:
        return key in self._decided or key in self._asked

    def _publish(self, key: Key) -> None:
        """Have decisions go by what is known of a gang now."""
        gang = None
        if key in self._since:
            _, again = self._refused.get(key, (0, None))
            gang = Stale(
                since_ns=round(self._since[key] * SECOND_NS),
                again_ns=None if again is None else round(again * SECOND_NS),
                is_going=self._is_going(key),
            )
        if self._cache.cluster.note_stale(key, gang):
            self._cache.wake.set()

    def gang_changed(self, key: Key) -> None:
        """Give a gang that was whole again, be it between two looks, all of the grace time again.

        Before the first look not all of its pods may be known.
        """
        if not self._has_looked:
            return
        group = self._cache.cluster.pod_group(*key)
        if group is not None and group.kept is not None and group.written_kept != group.kept:
            self._stamps.keep(group)
        if not (key in self._since or self._is_stamped(key)):
            return
        if not self._cache.cluster.is_broken_gang(*key):
            self._since.pop(key, None)
            self._recovered.add(key)
            self._publish(key)

    def _is_stamped(self, key: Key) -> bool:
        group = self._cache.cluster.pod_group(*key)
        return group is not None and bool(group.stale_since)

    def _began(self, key: Key, group: PodGroupRecord, now: float) -> float:
        """Since when a gang has been below its minimum that is seen to be so."""
        if key in self._since:
            return self._since[key]
        return now if key in self._recovered else self._stamps.since(group, now)

    def look(self) -> None:
        """See which gangs are below their minimum; say what of their words is left out of account."""
        self._tell_unclear()
        self._evictor.forget_refusals()
        now = anyio.current_time()
        if not self._has_looked:
            self._cache.cluster.keep_placed_minimums()
        broken = {(group.namespace, group.name): group for group in self._cache.cluster.broken_gangs()}
        finished = self._cache.finished
        self._since = {key: self._began(key, group, now) for key, group in broken.items() if key not in finished}
        self._has_looked = True
        self._recovered = {key for key in self._recovered if self._is_stamped(key) or self._stamps.is_writing(key)}
        self._stamps.put_right(self._since, now)
        self._refused = {key: told for key, told in self._refused.items() if key in self._since}
        for key in {**self._since, **self._cache.cluster.stale.gangs}:
            self._publish(key)

    def _tell_unclear(self) -> None:
        """Tell each PodGroup once, long before its time is over if it ever is."""
        said: dict[tuple[str, str], str] = {}
        for group in self._cache.cluster.pod_groups():
            for reason, note in self._unclear(group):
                key = (group.uid, reason)
                said[key] = note
                if self._said.get(key) != note:
                    self._events.record(_reference(group), reason=reason, action="Reading", note=note, type=WARNING)
        self._said = said

    def _unclear(self, group: PodGroupRecord) -> Iterator[tuple[str, str]]:
        if group.unread_stale is not None:
            note = messages.unread_staleness_text(group.unread_stale, grace_s=self._grace_s)
            yield names.REASON_MALFORMED_GROUP, note

    async def _release_decided(self) -> None:
        while True:
            for key, entry in [*self._decided.items()]:
                await self._release_safely(key, entry)
                del self._decided[key]
                self._publish(key)
            await self._on_decided.wait()

    async def _release_safely(self, key: Key, entry: Evict) -> None:
        """What is refused (a PodDisruptionBudget) or not answered is judged again, less and less often."""
        try:
            await self._release(entry)
        except ApiError as error:
            self._pause(key, str(error))
        except Exception:  # noqa: BLE001 - the edge of one gang (S11)
            _log.exception("the release of gang %s/%s was broken off", *key)
            self._pause(key, "it was broken off")

    def _pause(self, key: Key, because: str) -> None:
        refusals = self._refused.get(key, (0, 0.0))[0] + 1
        pause_s = doubled_s(self._grace_s, refusals, longest_s=_LONGEST_PAUSE_S)
        self._refused[key] = (refusals, anyio.current_time() + pause_s)
        self._publish(key)
        _log.warning("the rest of gang %s/%s was not released, looking again in %.0f s: %s", *key, pause_s, because)

    async def _release(self, entry: Evict) -> None:
        """Evict the bound members that were decided on, if the API server agrees that they are too few.

        Raises ApiError.
        """
        (namespace, name), known = entry.pod_group, self._cache.cluster.pod_group(*entry.pod_group)
        now = pod_group_record(await self._api.get(POD_GROUPS, name, namespace=namespace))
        listed = await self._api.list(PODS, namespace=namespace)
        members = [pod for pod in listed.items if (pod.metadata.annotations or {}).get(names.POD_GROUP_NAME) == name]
        active = [
            pod
            for pod in members
            if pod.spec.node_name
            and pod.metadata.deletion_timestamp is None
            and pod.status.phase not in names.ENDED_PHASES
        ]
        bound = [found for pod in active if (found := pod_record(pod, self._cache.cluster.settings)) is not None]
        if known is None or (now.uid, now.stale_ns, now.minimums) != (
            entry.pod_group_uid,
            known.stale_ns,
            known.minimums,
        ):
            return  # it is judged again once the watch has shown it
        now = msgspec.structs.replace(now, kept=known.kept)
        state = quorum(now, bound, self._cache.cluster.is_in_flight)
        is_at_its_end = any(pod.status.phase == names.SUCCEEDED for pod in members)
        if is_at_its_end or now.blocker or not state.is_broken:
            return
        chosen = {victim.pod_uid for victim in entry.pods}
        going = sorted((pod for pod in active if pod.metadata.uid in chosen), key=lambda member: member.metadata.name)
        asked = _Asked(len(going))
        if going:
            self._asked[entry.pod_group] = asked
        for pod in going:
            self._ask(now, pod, state, asked)

    def _ask(self, group: PodGroupRecord, pod: Pod, state: Quorum, asked: _Asked) -> None:
        key, meta = (group.namespace, group.name), pod.metadata

        def is_due() -> bool:
            return not asked.is_over and self._is_due(group)

        def told(answer: Answer) -> None:
            self._emit(EvictionAnswered(Evicts.STALE_GANG, answer))
            if answer is Answer.EVICTED:
                self._tell(group, pod, state)
            asked.left -= answer in ENDS
            if answer not in ENDS and not asked.is_over:
                asked.is_over = True
                self._pause(key, f"pod {meta.name} was not evicted ({answer.value})")
            if (asked.is_over or not asked.left) and self._asked.get(key) is asked:
                del self._asked[key]
                self._publish(key)

        self._evictor.ask(
            Wanted(uid=meta.uid, namespace=meta.namespace, name=meta.name, asker="stale gang", is_due=is_due, told=told)
        )

    def _is_due(self, group: PodGroupRecord) -> bool:
        """Whether the gang is still below its minimum, and no member on its way: requests take time."""
        key = (group.namespace, group.name)
        return key in self._since and not self._cache.cluster.is_gang_in_flight(*key)

    def _tell(self, group: PodGroupRecord, pod: Pod, state: Quorum) -> None:
        gang, member = f"{group.namespace}/{group.name}", f"{pod.metadata.namespace}/{pod.metadata.name}"
        note = eviction_text(state.minimum, state.short(), member)
        extra = about(LogEvent.POD_EVICTED, gang=gang, pod=member, minimum=state.minimum)
        _log.info("evicted: its gang is below its minimum", extra=extra)
        self._evicted.record(_reference(group), note, alike=group.uid, most=OF_GROUP, type=WARNING)


def _reference(group: PodGroupRecord) -> ObjectReference:
    return ObjectReference(
        api_version=POD_GROUPS.api_version,
        kind=POD_GROUPS.kind,
        name=group.name,
        namespace=group.namespace,
        uid=group.uid,
    )
