"""Gangs that can't be whole any more are released: what is left of them is evicted after a grace time (S4).

A gang starts whole, but a member may be deleted on its way, refused by kubelet, or lost with its node. Then the rest
holds devices for nothing. If the gang is not whole again within the grace time (kai-contract 4.7: 60 s, or what its
PodGroup says in ``stalenessGracePeriod``, where less than nothing is for ever), its bound members are evicted,
PodDisruptionBudgets respected, so that their controller starts them again, together. A member that is on its way when
the time is over is waited for; that it was on its way, and failed, gives no second time.
A gang of which a member has succeeded is at its end, and is left alone, as far as its pods still tell (as in KAI).
So is one whose PodGroup asks for what is not supported, or contradicts itself: nobody knows what its minimum means.
A gang that waiting members could complete is not released yet: the next decisions place them (kai-contract 14.13). They
have half a minute for it.
The PodGroup says since when it has been below its minimum (stale_stamps.py), so that a restart changes nothing.

The cache only makes it look: what is evicted is judged on quorum reads of the PodGroup and of all pods around it. The
evictor (scheduler/room/evicting.py) asks for them; after a refusal, or no clear answer, the gang is judged again later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import anyio

from kube.client.api import Api
from kube.client.clock import monotonic_ns
from kube.client.errors import ApiError
from kube.client.patience import doubled_s
from kube.client.resources import POD_GROUPS, PODS
from kube.events import EventRecorder
from kube.telemetry.logevents import LogEvent, about
from scheduler.core.convert.pod_groups import pod_group_record
from scheduler.core.convert.pods import pod_record
from scheduler.core.decide.completing import can_complete, candidates
from scheduler.core.groups.quorum import Quorum, quorum
from scheduler.core.model.records import PodGroupRecord
from scheduler.room.evicting import ENDS, Evictor, Wanted
from scheduler.status import reasons
from scheduler.telemetry.observing import Answer, Evicts, Observer
from scheduler.upkeep.stale_stamps import Key, Stamps
from scheduler.watch.cache import Cache
from wire import names
from wire.core import ObjectReference, Pod
from wire.events import WARNING

_log: Final = logging.getLogger(__name__)
_LONGEST_PAUSE_S: Final = 1800.0
#: A PodGroup may have a shorter grace time than all others.
_LONGEST_BETWEEN_LOOKS_S: Final = 10.0
#: So long a gang is not released after its time because waiting members could complete it.
_HELD_S: Final = 30.0
#: Waiting members that are tried at one look: some 50 microseconds each. A gang that has more of them is tried alone.
_TRIES: Final = 500
_ENDED: Final = frozenset({names.SUCCEEDED, names.FAILED})


@dataclass(slots=True, eq=False)
class _Asked:
    """What is left of a gang, as it was judged. ``left``: pods whose eviction is not over. ``is_over``: judge again."""

    left: int
    is_over: bool = False


class Releasing:
    """Looks for gangs below their minimum, and releases them when their time is over."""

    def __init__(
        self,
        api: Api,
        cache: Cache,
        *,
        evictor: Evictor,
        events: EventRecorder,
        observer: Observer,
        grace_s: float,
    ) -> None:
        self._api = api
        self._cache = cache
        self._evictor = evictor
        self._events = events
        self._observer = observer
        self._grace_s = grace_s
        #: Gang -> since when (event loop's time) it has been below its minimum.
        self._since: dict[Key, float] = {}
        self._stamps = Stamps(api, cache, clock=api.clock)
        #: Gangs with a stamp that is out of date: they were seen not to be below their minimum.
        self._recovered: set[Key] = set()
        self._has_looked = False
        #: Gangs whose evictions are asked for.
        self._asked: dict[Key, _Asked] = {}
        #: Gang -> (evictions that were refused in a row, when to ask again).
        self._refused: dict[Key, tuple[int, float]] = {}
        #: What gangs were told about words of theirs that are left out of account, by UID and reason.
        self._said: dict[tuple[str, str], str] = {}
        cache.on_gang = self._note

    async def run(self) -> None:
        """Look now and then: a tenth of the grace time is soon enough."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stamps.run)
            while True:
                await anyio.sleep(min(self._grace_s / 10, _LONGEST_BETWEEN_LOOKS_S))
                await self.look()

    def _note(self, key: Key) -> None:
        """A gang that was whole again, be it between two looks, has all of the grace time again.

        Before the first look not all of its pods may be known.
        """
        if not self._has_looked or not (key in self._since or self._is_stamped(key)):
            return
        if not self._cache.cluster.is_broken_gang(*key):
            self._since.pop(key, None)
            self._recovered.add(key)

    def _is_stamped(self, key: Key) -> bool:
        group = self._cache.cluster.pod_group(*key)
        return group is not None and bool(group.stale_since)

    def _began(self, key: Key, group: PodGroupRecord, now: float) -> float:
        """Since when a gang has been below its minimum that is seen to be so."""
        if key in self._since:
            return self._since[key]
        return now if key in self._recovered else self._stamps.since(group, now)

    async def look(self) -> None:
        """Release what has been below its minimum for the grace time; say what of its words is left out of account."""
        self._tell_unclear()
        self._evictor.forget_refusals()
        now = anyio.current_time()
        broken = {(group.namespace, group.name): group for group in self._cache.cluster.broken_gangs()}
        finished = self._cache.finished
        self._since = {key: self._began(key, group, now) for key, group in broken.items() if key not in finished}
        self._has_looked = True
        self._recovered = {key for key in self._recovered if self._is_stamped(key) or self._stamps.is_writing(key)}
        self._stamps.put_right(self._since, now)
        due = [key for key, since in self._since.items() if self._is_over(broken[key], now - since)]
        held = self._completing([broken[key] for key in due], now)
        self._refused = {key: told for key, told in self._refused.items() if key in self._since}
        for key in due:
            is_due = now >= self._refused.get(key, (0, now))[1] and key not in self._asked
            if is_due and key not in held and not self._cache.cluster.is_gang_in_flight(*key):
                await self._release_safely(key, broken[key])

    def _completing(self, due: Iterable[PodGroupRecord], now: float) -> set[Key]:
        """Gangs that waiting members could complete, and those that are tried at the next look."""
        snapshot, held, tries = self._cache.cluster.snapshot(), set[Key](), 0
        for group in due:
            key = (group.namespace, group.name)
            if self._is_over(group, now - self._since[key] - _HELD_S):
                continue
            waiting = candidates(snapshot, group, monotonic_ns())
            if tries and tries + len(waiting) > _TRIES:
                held.add(key)
                continue
            tries += len(waiting)
            if can_complete(snapshot, group, waiting, monotonic_ns()):
                held.add(key)
        return held

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
            note = reasons.unread_staleness_text(group.unread_stale, grace_s=self._grace_s)
            yield names.REASON_MALFORMED_GROUP, note

    def _is_over(self, group: PodGroupRecord, broken_s: float) -> bool:
        """Whether a gang that has been below its minimum for so long has had its time."""
        if group.stale_ns is None:
            return broken_s >= self._grace_s
        return 0 <= group.stale_ns <= broken_s * 1_000_000_000

    async def _release_safely(self, key: Key, group: PodGroupRecord) -> None:
        """What is refused (a PodDisruptionBudget) or not answered is judged again, less and less often."""
        try:
            await self._release(group)
        except ApiError as error:
            self._pause(key, str(error))

    def _pause(self, key: Key, because: str) -> None:
        refusals = self._refused.get(key, (0, 0.0))[0] + 1
        pause_s = doubled_s(self._grace_s, refusals, longest_s=_LONGEST_PAUSE_S)
        self._refused[key] = (refusals, anyio.current_time() + pause_s)
        _log.warning("the rest of gang %s/%s was not released, looking again in %.0f s: %s", *key, pause_s, because)

    async def _release(self, group: PodGroupRecord) -> None:
        """Evict the bound members, if the API server agrees that they are too few. Raises ApiError."""
        now = pod_group_record(await self._api.get(POD_GROUPS, group.name, namespace=group.namespace))
        listed = await self._api.list(PODS, namespace=group.namespace)
        members = [
            pod for pod in listed.items if (pod.metadata.annotations or {}).get(names.POD_GROUP_NAME) == group.name
        ]
        active = [
            pod
            for pod in members
            if pod.spec.node_name and pod.metadata.deletion_timestamp is None and pod.status.phase not in _ENDED
        ]
        bound = [found for pod in active if (found := pod_record(pod, self._cache.cluster.settings)) is not None]
        state = quorum(now, bound, self._cache.cluster.is_in_flight)
        is_at_its_end = any(pod.status.phase == names.SUCCEEDED for pod in members)
        if (
            is_at_its_end
            or not state.is_broken
            or now.blocker
            or now.stale_ns != group.stale_ns
            or now.uid != group.uid
        ):
            return
        asked = self._asked[group.namespace, group.name] = _Asked(len(active))
        for pod in sorted(active, key=lambda member: member.metadata.name):
            self._ask(group, pod, state, asked)

    def _ask(self, group: PodGroupRecord, pod: Pod, state: Quorum, asked: _Asked) -> None:
        key, meta = (group.namespace, group.name), pod.metadata

        def is_due() -> bool:
            return not asked.is_over and self._is_due(group)

        def told(answer: Answer) -> None:
            self._observer.asked_to_go(Evicts.STALE_GANG, answer)
            if answer is Answer.EVICTED:
                self._tell(group, pod, state)
            asked.left -= answer in ENDS
            if answer not in ENDS and not asked.is_over:
                asked.is_over = True
                self._pause(key, f"pod {meta.name} was not evicted ({answer.value})")
            if (asked.is_over or not asked.left) and self._asked.get(key) is asked:
                del self._asked[key]

        self._evictor.ask(
            Wanted(uid=meta.uid, namespace=meta.namespace, name=meta.name, asker="stale gang", is_due=is_due, told=told)
        )

    def _is_due(self, group: PodGroupRecord) -> bool:
        """Whether the gang is still below its minimum, and no member on its way: requests take time."""
        key = (group.namespace, group.name)
        return key in self._since and not self._cache.cluster.is_gang_in_flight(*key)

    def _tell(self, group: PodGroupRecord, pod: Pod, state: Quorum) -> None:
        gang, member = f"{group.namespace}/{group.name}", f"{pod.metadata.namespace}/{pod.metadata.name}"
        note = reasons.eviction_text(state.minimum, state.short(), member)
        extra = about(LogEvent.POD_EVICTED, gang=gang, pod=member, minimum=state.minimum)
        _log.info("evicted: its gang is below its minimum", extra=extra)
        self._events.record(_reference(group), reason=names.REASON_EVICT, action="Evicting", note=note, type=WARNING)


def _reference(group: PodGroupRecord) -> ObjectReference:
    return ObjectReference(
        api_version=POD_GROUPS.api_version,
        kind=POD_GROUPS.kind,
        name=group.name,
        namespace=group.namespace,
        uid=group.uid,
    )
