"""Tells pods why they wait: condition PodScheduled=False and an event, when the reason changes.

Commits come first: conditions are written a few at a time, each pod's at most once in a while, and never while the pod
is on its way to a node (the write would change the version that its Binding names). Reasons that soon pass, such as
others of the gang that are missing while a controller makes them, are told when they have lasted for a moment.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from heapq import heappop, heappush
from math import inf
from typing import Final

import anyio
import msgspec

from gpu.dialects import aliyun
from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.errors import ApiError, Conflict, NotFound
from kube.client.resources import PODS
from kube.events import EventRecorder
from kube.telemetry.logevents import LogEvent, about
from kube.watch.signal import Signal
from scheduler.conditions import messages
from scheduler.conditions.messages import Told
from scheduler.conditions.paced_writes import ByNamespace, Turns
from scheduler.conditions.suggestion_messages import pause_sentence
from scheduler.core.model.plan import Explain
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Code, Verdict
from scheduler.telemetry.events import Emit, Judged
from scheduler.watch.cache import Cache, Waiting
from wire import names
from wire.api_groups import WARNING
from wire.core import Condition, ObjectReference
from wire.rfc3339 import rfc3339
from wire.units import SECOND_NS

#: What is missing comes from a controller that is at work, as a rule.
PASSING: Final = frozenset(
    {
        Code.GANG_NOT_READY,
        Code.POD_GROUP_NOT_FOUND,
        Code.OWNER_NOT_SEEN,
        Code.NO_POD_GROUP,
        Code.NOT_GROUPED,
        Code.CLAIM_NOT_MADE,
    }
)
#: A gang to which nothing was added for so long is no longer taken to grow.
QUIET_S: Final = 1.0
#: A pod gets its condition this long after its reason was found, at the latest.
MOST_S: Final = 5.0
#: A pod for which others are evicted gets its condition after this time: a victim takes its time to end.
EVICTING_S: Final = 10.0

_Group = tuple[str, str] | None


class DelayedReasons:
    """Since when pods (UIDs) have a passing reason, and when something was last added to their gang."""

    def __init__(self) -> None:
        #: Since when others are being evicted for pods.
        self._evicting_since: dict[str, float] = {}
        self._since: dict[str, tuple[float, _Group]] = {}
        self._added_at: dict[_Group, float] = {}
        self._members: dict[_Group, int] = {}

    def take(self, entry: Explain, now: float) -> None:
        """Take what was decided about pods at a time of the event loop's clock."""
        code = entry.verdict.code
        if code is not Code.WAITS_FOR_VICTIMS:
            self._forget_evicting(entry.pods)
        if code not in PASSING:
            self._forget_growth(entry.pods)
        if code is Code.WAITS_FOR_VICTIMS:
            for uid in entry.pods:
                self._evicting_since.setdefault(uid, now)
        elif code in PASSING:
            self._note_growth(entry, now)

    def _note_growth(self, entry: Explain, now: float) -> None:
        for uid in entry.pods:
            if uid not in self._since:
                self._since[uid] = now, entry.pod_group
                self._members[entry.pod_group] = self._members.get(entry.pod_group, 0) + 1
                self._added_at[entry.pod_group] = now

    def told_from(self, uid: str) -> float:
        """When a pod may be told its reason; one whose reason does not pass, at once."""
        if uid not in self._since:
            return self._evicting_since.get(uid, -math.inf) + EVICTING_S
        since, group = self._since[uid]
        return min(since + MOST_S, (self._added_at[group] if group else since) + QUIET_S)

    def forget(self, uids: Collection[str]) -> None:
        """These pods have another reason now, or wait no more."""
        self._forget_evicting(uids)
        self._forget_growth(uids)

    def _forget_evicting(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self._evicting_since.pop(uid, None)

    def _forget_growth(self, uids: Iterable[str]) -> None:
        for uid in uids:
            if uid in self._since:
                _, group = self._since.pop(uid)
                self._members[group] -= 1
                if not self._members[group]:
                    del self._members[group], self._added_at[group]


_log: Final = logging.getLogger(__name__)

#: A condition whose reason is the same is written again for its counts after this many times ``condition_s``,
_COUNTS_AFTER: Final = 2
#: and this many of them a second, as far as counts have changed.
_COUNTS_PER_S: Final = 4
#: The most conditions a second that say that pods are being evicted.
EVICTING_PER_S: Final = 20
#: Pods that are looked at without a pause.
_LOOKS: Final = 500


class Status:
    """What pods should say, and what they are known to say."""

    def __init__(
        self,
        api: Api,
        cache: Cache,
        *,
        clock: Clock,
        events: EventRecorder,
        condition_s: float,
        in_flight: int,
        emit: Emit,
    ) -> None:
        self._api = api
        self._cache = cache
        self._clock = clock
        self._events = events
        self._condition_s = condition_s
        self._in_flight = in_flight
        self._emit = emit
        #: Why pods wait, as it was decided last.
        self.codes: dict[str, Code] = {}
        self._wanted: dict[str, Told] = {}
        self._growing = DelayedReasons()
        #: Pods that may be written now; and those that may be later, as a heap of (when, pod).
        self._fresh = ByNamespace[str]()
        self._later: list[tuple[float, str]] = []
        self._put_off: set[str] = set()
        #: Pods for which others are being evicted, and that may say so.
        self._turns = Turns(EVICTING_PER_S)
        #: Pod -> when its condition was last written (event loop's time).
        self._written_at: dict[str, float] = {}
        #: Pods in the order in which their conditions were written, or the counts in them compared: (when, pod).
        self._counted: deque[tuple[float, str]] = deque()
        self._counted_at: dict[str, float] = {}
        #: Pod -> the verdict that its words were compared with last.
        self._compared: dict[str, Verdict] = {}
        #: Pods whose condition is being written: one write of a pod at a time.
        self._writing: set[str] = set()
        #: Those of them that have to be looked at again when the write is over.
        self._changed_meanwhile: set[str] = set()
        #: Pod -> the sentence about what would help that its condition ends with (suggestions.py).
        self._helps: dict[str, str] = {}
        #: Pod -> the reason of its last event: one is recorded when the reason changes, not when the sentence does.
        self._recorded: dict[str, Told] = {}
        #: Pods whose condition tells a passing reason.
        self._told_passing: set[str] = set()
        self._wake = Signal()
        self._has_counted = Signal()

    def want(self, entries: Sequence[Explain]) -> None:
        """Take what one decision says of waiting pods. Pods that it does not name keep what they say."""
        for entry in entries:
            in_words: dict[tuple[bool, str], Told] = {}
            tells_others = messages.names_others(entry.verdict)
            self._growing.take(entry, anyio.current_time())
            for uid in entry.pods:
                how = self._asks_as_gpushare(uid), self._namespace(uid) if tells_others else ""
                if how not in in_words:
                    in_words[how] = self._in_words(uid, entry.verdict)
                self._note(uid, entry.verdict.code)
                self._want(uid, in_words[how])

    def suggest(self, uids: Iterable[str], sentence: str) -> None:
        """Have the conditions of pods that wait end with this sentence; "": with none."""
        for uid in uids:
            if self._helps.get(uid, "") == sentence or (sentence and uid not in self._wanted):
                continue
            if sentence:
                self._helps[uid] = sentence
            else:
                del self._helps[uid]
            if uid in self._wanted:
                self._look_at(uid)

    def _in_words(self, uid: str, verdict: Verdict) -> Told:
        return messages.told(
            verdict,
            reader=self._namespace(uid),
            of_gpushare=self._asks_as_gpushare(uid),
            filters=self._cache.cluster.ledger.filters,
        )

    def _namespace(self, uid: str) -> str:
        """The namespace of a pod, whose people read its condition; "" of one that is gone."""
        pod = self._cache.cluster.pod(uid)
        return pod.namespace if pod is not None else ""

    def _want(self, uid: str, told: Told) -> None:
        if self._wanted.get(uid) != told or self._says_pending(uid):
            self._wanted[uid] = told
            self._look_at(uid)

    def _look_at(self, uid: str) -> None:
        self._fresh.put(uid, self._namespace_of(uid))
        self._wake.set()

    def _namespace_of(self, uid: str) -> str:
        """The namespace of a pod; "" of one that is gone, which is forgotten when its turn comes."""
        record = self._cache.cluster.pod(uid)
        return "" if record is None else record.namespace

    def _note(self, uid: str, code: Code) -> None:
        if self.codes.get(uid) is not code:
            self.codes[uid] = code
            self._helps.pop(uid, None)  # it was tried while another reason held
            self._emit(Judged(uid, code))

    def _asks_as_gpushare(self, uid: str) -> bool:
        """Whether a pod asks for memory of one device in the words of Aliyun's gpushare (A3)."""
        record = self._cache.cluster.pod(uid)
        if record is None or record.recorded is None or record.recorded.dialect != aliyun.NAME:
            return False
        return len(record.cls.request.shared) == 1

    def forget_gone(self) -> None:
        """Forget what was said of pods that wait no more."""
        known = self._wanted.keys() | self._written_at.keys() | self._counted_at.keys() | self.codes.keys()
        for uid in [uid for uid in known if not self._cache.waits_here(uid)]:
            self._forget(uid)

    async def run(self) -> None:
        """Write conditions until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._count_again)
            while True:
                self._take_those_due()
                while len(self._writing) < self._in_flight and (uid := self._next()) is not None:
                    self._writing.add(uid)
                    tasks.start_soon(self._tell, uid)
                with anyio.move_on_after(self._next_in_s()):
                    await self._wake.wait()

    def _next_in_s(self) -> float | None:
        """For how long there is nothing to write, or no free hand; None: until something changes."""
        at = self._later[0][0] if self._later else inf
        if len(self._writing) < self._in_flight:
            at = min(at, self._turns.next_at)
        return None if at == inf else max(0.0, at - anyio.current_time())

    def _take_those_due(self) -> None:
        now = anyio.current_time()
        while self._later and self._later[0][0] <= now:
            _, uid = heappop(self._later)
            self._put_off.discard(uid)
            self._fresh.put(uid, self._namespace_of(uid))

    def _next(self) -> str | None:
        """A pod to write now; those that have to wait are put off on the way."""
        now = anyio.current_time()
        while self._fresh:
            uid = self._fresh.pop()
            at = self._may_be_written_at(uid)
            if not self._cache.waits_here(uid):
                self._forget(uid)
            elif uid in self._writing:
                self._changed_meanwhile.add(uid)
            elif at <= now and self.codes.get(uid) is Code.WAITS_FOR_VICTIMS:
                self._turns.put(uid, self._namespace_of(uid))
            elif at <= now:
                return uid
            elif uid not in self._put_off:
                self._put_off.add(uid)
                heappush(self._later, (at, uid))
        return self._turns.take(now, self._may_say_so)

    def _may_say_so(self, uid: str) -> bool:
        """Whether others are still evicted for a pod. One that is written now, or has to wait again, comes again."""
        is_waiting = self._cache.waits_here(uid) and self.codes.get(uid) is Code.WAITS_FOR_VICTIMS
        return is_waiting and uid not in self._writing and self._may_be_written_at(uid) <= anyio.current_time()

    def _may_be_written_at(self, uid: str) -> float:
        at = self._growing.told_from(uid)
        is_past = uid in self._told_passing and self.codes.get(uid) not in PASSING
        return at if is_past else max(at, self._written_at.get(uid, -inf) + self._condition_s)

    async def _count_again(self) -> None:
        """Bring counts in conditions up to date, until cancelled."""
        while True:
            while not self._counted:
                await self._has_counted.wait()
            age_s = anyio.current_time() - self._counted[0][0]
            await anyio.sleep(max(0.0, _COUNTS_AFTER * self._condition_s - age_s))
            self._count_one()
            # Also where nothing was due: what is by one sum of times may not be by the other, which is rounded.
            await anyio.sleep(1 / _COUNTS_PER_S)

    def _count_one(self) -> None:
        """Look for a pod whose counts have changed, and have it written; give up after many looks."""
        now = anyio.current_time()
        for _ in range(min(_LOOKS, len(self._counted))):
            at, uid = self._counted[0]
            if at + _COUNTS_AFTER * self._condition_s > now:
                return
            self._counted.popleft()
            verdict = self._cache.cluster.scheduling_queue.said.verdict(uid)
            if self._counted_at.get(uid) != at or verdict is None:
                continue
            if self._compared.get(uid) is not verdict:
                self._compared[uid] = verdict
                told = self._in_words(uid, verdict)
                if told != self._wanted.get(uid):
                    self._want(uid, told)
                    return
            if self._is_overwritten(uid):
                self._look_at(uid)
                return
            self._note_counted(uid)

    def _is_overwritten(self, uid: str) -> bool:
        """Whether a pod that waits does not say that it does.

        Another reason is left alone: two schedulers that both work may have two, and would write in turns for ever.
        """
        waiting = self._cache.waiting.get(uid)
        if waiting is None or uid not in self._wanted:
            return False
        said = _said(waiting)
        return said is None or said.status != "False" or self._says_pending(uid)

    def _says_pending(self, uid: str) -> bool:
        """Whether a pod says that its devices have to get ready (commit/claim_binding.py), and has none any more."""
        waiting = self._cache.waiting.get(uid)
        said = None if waiting is None else _said(waiting)
        is_pending = said is not None and said.reason == names.REASON_DEVICES_PENDING
        return is_pending and not self._cache.cluster.is_in_flight(uid)

    def _message(self, uid: str, told: Told) -> str:
        pause = pause_sentence(self._cache, uid, wall_s=self._clock.now_ns() // SECOND_NS)
        return messages.with_help(messages.with_help(told.message, pause), self._helps.get(uid, ""))

    def _note_counted(self, uid: str) -> None:
        at = self._counted_at[uid] = anyio.current_time()
        self._counted.append((at, uid))
        self._has_counted.set()

    def _forget(self, uid: str) -> None:
        self._growing.forget((uid,))
        self._told_passing.discard(uid)
        self._fresh.discard(uid)
        self._wanted.pop(uid, None)
        self._written_at.pop(uid, None)
        self._counted_at.pop(uid, None)
        self._compared.pop(uid, None)
        self._helps.pop(uid, None)
        self._recorded.pop(uid, None)
        self.codes.pop(uid, None)

    async def _tell(self, uid: str) -> None:
        try:
            await self._write(uid)
        except (Conflict, NotFound):
            if uid in self._cache.waiting:
                self._written_at[uid] = anyio.current_time()
                self._look_at(uid)  # it changed meanwhile: again when the time has come
        except ApiError as error:
            _log.warning("the condition of pod %s was not written: %s", uid, error)
            self._written_at[uid] = anyio.current_time()
            self._look_at(uid)
        finally:
            self._writing.discard(uid)
            if uid in self._changed_meanwhile:
                self._changed_meanwhile.discard(uid)
                self._look_at(uid)
            self._wake.set()

    def _told_now(self, uid: str) -> Told | None:
        """What a pod wants to say, with the counts of now: it may have waited for its turn."""
        verdict = self._cache.cluster.scheduling_queue.said.verdict(uid)
        if uid in self._wanted and verdict is not None and self._compared.get(uid) is not verdict:
            self._compared[uid] = verdict
            self._wanted[uid] = self._in_words(uid, verdict)
        return self._wanted.get(uid)

    async def _write(self, uid: str) -> None:
        told, waiting, record = self._told_now(uid), self._cache.waiting.get(uid), self._cache.cluster.pod(uid)
        if told is None or waiting is None or record is None or record.is_elsewhere:
            self._wanted.pop(uid, None)
            return
        if self._cache.cluster.is_in_flight(uid) or self._cache.cluster.claims.elsewhere.is_left_alone(uid):
            self._written_at[uid] = anyio.current_time()
            self._look_at(uid)  # should it come back, it says this still
            return
        if _says(waiting, told.reason, message := self._message(uid, told)):
            self._note_counted(uid)
            return
        others = [c for c in waiting.conditions if c.type != names.CONDITION_POD_SCHEDULED]
        condition = {
            "type": names.CONDITION_POD_SCHEDULED,
            "status": "False",
            "reason": told.reason,
            "message": message,
            "lastTransitionTime": rfc3339(self._clock.now_ns()),
        }
        conditions = [*msgspec.to_builtins(others), condition]
        self._written_at[uid] = anyio.current_time()
        self._note_counted(uid)
        if self.codes.get(uid) in PASSING:
            self._told_passing.add(uid)
        else:
            self._told_passing.discard(uid)
        pod = await self._api.patch(
            PODS,
            record.name,
            {"status": {"conditions": conditions}},
            namespace=record.namespace,
            subresource="status",
            uid=uid,
            resource_version=waiting.rv,
        )
        self._cache.note_pod(pod)
        self._record(uid, told, record)

    def _record(self, uid: str, told: Told, record: PodRecord) -> None:
        """Log the reason and record an event, if it is another one than last time."""
        if self._recorded.get(uid) == told:
            return
        self._recorded[uid] = told
        place, trace = f"{record.namespace}/{record.name}", self._cache.trace_of(uid)
        extra = about(LogEvent.POD_WAITS, pod=place, reason=told.reason, **trace)
        _log.info("%s", told.message, extra=extra)
        regarding = ObjectReference(api_version="v1", kind="Pod", name=record.name, namespace=record.namespace, uid=uid)
        self._events.record(regarding, reason=told.reason, action="Scheduling", note=told.message, type=WARNING)


def _said(waiting: Waiting) -> Condition | None:
    return next((c for c in waiting.conditions if c.type == names.CONDITION_POD_SCHEDULED), None)


def _says(waiting: Waiting, reason: str, message: str) -> bool:
    """Whether a pod's condition is what it should be."""
    said = _said(waiting)
    return said is not None and (said.status, said.reason, said.message) == ("False", reason, message)
