"""Tells pods why they wait: condition PodScheduled=False and an event, only when what they say would change.

Commits come first: conditions are written a few at a time, each pod's at most once in a while, and never while the
pod is on its way to a node (the write would change the version that its Binding names).
"""

from __future__ import annotations

import logging
from typing import Final

import anyio
import msgspec

from gpu.dialects import aliyun
from kube.client.api import Api
from kube.client.clock import Clock, rfc3339
from kube.client.errors import ApiError, Conflict, NotFound
from kube.client.resources import PODS
from kube.events import EventRecorder
from kube.telemetry.logevents import LogEvent, about
from kube.watch.signal import Signal
from scheduler.core.model.plan import Explain
from scheduler.core.model.verdict import Code
from scheduler.status import reasons
from scheduler.status.reasons import Told
from scheduler.telemetry.observing import Observer
from scheduler.watch.cache import Cache
from wire import names
from wire.core import ObjectReference
from wire.events import WARNING

_log: Final = logging.getLogger(__name__)


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
        observer: Observer,
    ) -> None:
        self._api = api
        self._cache = cache
        self._clock = clock
        self._events = events
        self._condition_s = condition_s
        self._in_flight = in_flight
        self._observer = observer
        #: Why pods wait, as it was decided last.
        self.codes: dict[str, Code] = {}
        self._wanted: dict[str, Told] = {}
        #: Pods whose wish was not looked at yet, in order.
        self._fresh: dict[str, None] = {}
        #: Pod -> when its condition was last written (event loop's time).
        self._written_at: dict[str, float] = {}
        #: Pods whose condition is being written: one write of a pod at a time.
        self._writing: set[str] = set()
        self._wake = Signal()

    def want(self, entries: list[Explain]) -> None:
        """Take what one decision says of waiting pods. Pods that it does not name keep what they say."""
        for entry in entries:
            in_words: dict[bool, Told] = {}
            for uid in entry.pods:
                of_gpushare = self._asks_as_gpushare(uid)
                if of_gpushare not in in_words:
                    in_words[of_gpushare] = reasons.told(entry.verdict, of_gpushare=of_gpushare)
                told = in_words[of_gpushare]
                if self._wanted.get(uid) != told:
                    self._wanted[uid] = told
                    self._fresh[uid] = None
                    self._note(uid, entry.verdict.code)
        if self._fresh:
            self._wake.set()

    def _note(self, uid: str, code: Code) -> None:
        if self.codes.get(uid) is not code:
            self.codes[uid] = code
            self._observer.judged(code)
            self._cache.traces.waits(uid, code)

    def _asks_as_gpushare(self, uid: str) -> bool:
        """Whether a pod asks for memory of one device in the words of Aliyun's gpushare (A3)."""
        record = self._cache.cluster.pod(uid)
        if record is None or record.recorded is None or record.recorded.dialect != aliyun.NAME:
            return False
        return len(record.cls.request.shared) == 1

    def forget_gone(self) -> None:
        """Let go of what was said of pods that wait no more."""
        known = self._wanted.keys() | self._written_at.keys() | self.codes.keys()
        for uid in known - self._cache.waiting.keys():
            self._forget(uid)

    async def run(self) -> None:
        """Write conditions until cancelled."""
        limiter = anyio.CapacityLimiter(self._in_flight)
        async with anyio.create_task_group() as tasks:
            while True:
                due, next_at = self._take_due()
                for uid in due:
                    self._writing.add(uid)
                    tasks.start_soon(self._tell, uid, limiter)
                with anyio.move_on_after(next_at - anyio.current_time() if next_at else None):
                    await self._wake.wait()

    def _take_due(self) -> tuple[list[str], float | None]:
        """Pods to write now, and when the next one may be written."""
        now = anyio.current_time()
        due, later = [], []
        for uid in list(self._fresh):
            if uid not in self._cache.waiting:
                self._forget(uid)
                continue
            if uid in self._writing:
                continue
            at = self._written_at.get(uid, now - self._condition_s) + self._condition_s
            if at <= now:
                due.append(uid)
                del self._fresh[uid]
            else:
                later.append(at)
        return due, min(later, default=None)

    def _forget(self, uid: str) -> None:
        self._fresh.pop(uid, None)
        self._wanted.pop(uid, None)
        self._written_at.pop(uid, None)
        self.codes.pop(uid, None)

    async def _tell(self, uid: str, limiter: anyio.CapacityLimiter) -> None:
        try:
            async with limiter:
                await self._write(uid)
        except (Conflict, NotFound):
            if uid in self._cache.waiting:
                self._fresh[uid] = None  # it changed meanwhile: look again when the time has come
                self._written_at[uid] = anyio.current_time()
        except ApiError as error:
            _log.warning("the condition of pod %s was not written: %s", uid, error)
            self._fresh[uid] = None
            self._written_at[uid] = anyio.current_time()
        finally:
            self._writing.discard(uid)
            self._wake.set()

    async def _write(self, uid: str) -> None:
        told, waiting, record = self._wanted.get(uid), self._cache.waiting.get(uid), self._cache.cluster.pod(uid)
        if told is None or waiting is None or record is None or self._cache.cluster.is_in_flight(uid):
            self._wanted.pop(uid, None)  # should it come back, the same words are news again
            return
        said = next((c for c in waiting.conditions if c.type == names.CONDITION_POD_SCHEDULED), None)
        if said is not None and (said.status, said.reason, said.message) == ("False", told.reason, told.message):
            return
        others = [c for c in waiting.conditions if c.type != names.CONDITION_POD_SCHEDULED]
        condition = {
            "type": names.CONDITION_POD_SCHEDULED,
            "status": "False",
            "reason": told.reason,
            "message": told.message,
            "lastTransitionTime": rfc3339(self._clock.now_ns()),
        }
        conditions = [*msgspec.to_builtins(others), condition]
        self._written_at[uid] = anyio.current_time()
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
        place, trace = f"{record.namespace}/{record.name}", self._cache.traces.of(uid)
        extra = about(LogEvent.POD_WAITS, pod=place, reason=told.reason, **trace)
        _log.info("%s", told.message, extra=extra)
        regarding = ObjectReference(api_version="v1", kind="Pod", name=record.name, namespace=record.namespace, uid=uid)
        self._events.record(regarding, reason=told.reason, action="Scheduling", note=told.message, type=WARNING)
