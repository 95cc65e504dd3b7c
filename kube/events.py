"""Events about objects, for people: bundled, written as fast as the API server takes them, in nobody's way.

The same event said again is not written again: it becomes a count on the first one (a series), written at most once in
``bundle_s``.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Any, Final

import anyio
import msgspec
from anyio.abc import TaskGroup

from kube.client import errors
from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.resources import EVENTS, Resource
from kube.client.retry import doubled_s
from wire.api_groups import MOST_NOTE_BYTES, NORMAL, Event, EventSeries
from wire.core import ObjectMeta, ObjectReference
from wire.rfc3339 import rfc3339_micro

_FIRST_IN_FLIGHT: Final = 4
#: An answer that took longer says that the server, or this process, has too much to do.
SLOW_S: Final = 1.0
_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 10.0


class EventPace:
    """Times are those of the event loop. ``most`` bounds the writes in flight.

    While writes are answered in time, more of them are in flight at once: additive increase, multiplicative decrease,
    as TCP does it (RFC 5681). Each round of answers in time allows one more; an answer that took long, 429, 5xx or a
    lost connection halves what is allowed. After a failure nothing is written for a while, which doubles with every
    further round of failures. What was not written is tried again.
    """

    def __init__(self, most: int) -> None:
        self.resume_at = -math.inf
        self._most = most
        self._allowed = float(min(_FIRST_IN_FLIGHT, most))
        self._failed_rounds = 0
        self._halved_at = -math.inf

    @property
    def in_flight(self) -> int:
        """How many writes may be in flight."""
        return int(self._allowed)

    def answered(self, began_at: float, now: float) -> None:
        """Take that a write was answered."""
        self._failed_rounds = 0
        if now - began_at > SLOW_S:
            self._allow_half(began_at, now)
        else:
            self._allowed = min(self._most, self._allowed + 1 / self._allowed)

    def failed(self, began_at: float, now: float, *, retry_after_s: float | None) -> float:
        """Take that a write failed in passing; return the seconds until writing goes on."""
        if self._allow_half(began_at, now):
            pause_s = doubled_s(_FIRST_PAUSE_S, self._failed_rounds, longest_s=_LONGEST_PAUSE_S)
            self._failed_rounds += 1
            self.resume_at = now + max(pause_s, retry_after_s or 0.0)
        return max(0.0, self.resume_at - now)

    def _allow_half(self, began_at: float, now: float) -> bool:
        """Allow half as many, once for all writes that were in flight together."""
        if began_at < self._halved_at:
            return False
        self._allowed, self._halved_at = max(1.0, self._allowed / 2), now
        return True


_log: Final = logging.getLogger(__name__)

#: Events about objects without a namespace go here, as Kubernetes' own components do it.
_CLUSTER_NAMESPACE: Final = "default"
_MOST_NAME_CHARACTERS: Final = 253


#: Errors that pass: the same write may succeed later.
_PASSING: Final = (errors.TooManyRequests, errors.ServerError, errors.Unreachable)


class EventSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much the reporting may cost."""

    #: Writes in flight at once, at most.
    in_flight: int = 16
    #: Events kept, unwritten or within ``bundle_s``; a further one is lost if all of them are still to be written.
    capacity: int = 100_000
    #: Least seconds between two writes about the same event.
    bundle_s: float = 60.0
    #: An event whose write failed in passing is tried again until it is this old, then given up.
    give_up_s: float = 600.0


class EventCounts(msgspec.Struct):
    """What became of what was recorded. Repeats that went into a count are in ``bundled``."""

    recorded: int = 0
    written: int = 0
    bundled: int = 0
    lost: int = 0
    refused: int = 0


class _Said(msgspec.Struct, frozen=True, gc=False):
    """What makes two events the same."""

    regarding: ObjectReference
    type: str
    reason: str
    action: str
    note: str


class _Bundle(msgspec.Struct, gc=False):
    """One event on the server, or on its way there, and how often it was said."""

    first_ns: int
    last_ns: int
    #: What makes its name unique.
    stamp: int
    is_final: bool
    count: int = 1
    #: The count that the server knows; 0 when it knows nothing yet.
    written: int = 0


class EventRecorder:
    """Reports events of one component. ``run`` writes them; ``record`` may be called before it and at any time.

    ``controller`` is the component (``kai-scheduler``), ``instance`` which of its processes. ``api`` should not repeat
    what the server turns away: the recorder does, and has to see it to write less at once.
    """

    def __init__(
        self,
        api: Api,
        *,
        clock: Clock,
        controller: str,
        instance: str,
        settings: EventSettings = EventSettings(),  # noqa: B008 - frozen
    ) -> None:
        self.counts = EventCounts()
        self._api = api
        self._clock = clock
        self._controller = controller
        self._instance = instance
        self._settings = settings
        self._bundles: dict[_Said, _Bundle] = {}
        #: Events to write now, by namespace, oldest first; the namespace that is next comes first. Every bundle that is
        #: not being written stands here or in ``_later``, once.
        self._fresh: OrderedDict[str, deque[_Said]] = OrderedDict()
        #: (loop time, order, what): when each other bundle is looked at next.
        self._later: list[tuple[float, int, _Said]] = []
        self._order = 0
        self._last_stamp = 0
        self._writing = 0
        #: Events of which the server knows nothing yet.
        self._unwritten = 0
        #: Set when there is something to write, and when a write is over.
        self._news = anyio.Event()
        self._all_written = anyio.Event()
        self._pace = EventPace(settings.in_flight)

    def record(
        self,
        regarding: ObjectReference,
        *,
        reason: str,
        action: str,
        note: str,
        type: str = NORMAL,  # noqa: A002 - the field's name on the wire
        is_final: bool = False,
    ) -> None:
        """Note an event about an object. Returns at once, in any state of the API server.

        ``is_final``: it can't be said again (a pod is bound once), so it is forgotten as soon as it is written.
        """
        self.counts.recorded += 1
        now_ns = self._clock.now_ns()
        said = _Said(regarding, type, reason, action, cut_utf8(note, MOST_NOTE_BYTES))
        bundle = self._bundles.get(said)
        if bundle is not None:
            bundle.count += 1
            bundle.last_ns = now_ns
            self.counts.bundled += 1
        elif self._has_room(regarding.namespace):
            self._last_stamp = max(now_ns, self._last_stamp + 1)
            self._bundles[said] = _Bundle(now_ns, now_ns, self._last_stamp, is_final)
            self._fresh.setdefault(regarding.namespace, deque()).append(said)
            self._unwritten += 1
            self._news.set()

    def _has_room(self, namespace: str) -> bool:
        """Whether one more can be kept, if need be in place of another one.

        That is one that is written and was not said again, or the newest of the namespace with most of those that are
        not: a namespace whose events fill the queue loses events of its own, and no other one does.
        """
        if len(self._bundles) < self._settings.capacity:
            return True
        if self._later:
            said = self._later[0][2]
            if self._bundles[said].count == self._bundles[said].written:
                heapq.heappop(self._later)
                del self._bundles[said]
                return True
        largest = max(self._fresh, key=lambda each: len(self._fresh[each]), default=namespace)
        if len(self._fresh.get(largest, ())) > len(self._fresh.get(namespace, ())) + 1:
            self._note_lost()
            del self._bundles[self._fresh[largest].pop()]
            self._note_known()
            return True
        self._note_lost()
        return False

    def _note_lost(self) -> None:
        if not self.counts.lost:
            _log.warning("%d events wait to be written: further ones are lost until there is room", len(self._bundles))
        self.counts.lost += 1

    async def run(self) -> None:
        """Write events until cancelled; what is unwritten then is lost."""
        async with anyio.create_task_group() as tasks:
            while True:
                self._news = anyio.Event()
                with anyio.CancelScope(deadline=self._start_writing(tasks)):
                    await self._news.wait()

    async def written(self) -> None:
        """Return when the server knows of every event that was recorded, or refused it."""
        while self._unwritten:
            self._all_written = anyio.Event()
            await self._all_written.wait()

    def _start_writing(self, tasks: TaskGroup) -> float:
        """Start as many writes as may be in flight; return when to look again (loop time)."""
        while self._writing < self._pace.in_flight:
            resume_at = self._pace.resume_at
            if anyio.current_time() < resume_at:
                return resume_at
            said = self._next()
            if said is None:
                return self._later[0][0] if self._later else math.inf
            self._writing += 1
            tasks.start_soon(self._write_on, said)
        return math.inf

    def _next(self) -> _Said | None:
        """Take what is to be written now; forget what was not said again within its window."""
        while self._later and self._later[0][0] <= anyio.current_time():
            _, _, said = heapq.heappop(self._later)
            bundle = self._bundles[said]
            if bundle.count > bundle.written:
                return said
            del self._bundles[said]
        for namespace, waiting in self._fresh.items():
            said = waiting.popleft()
            if waiting:
                self._fresh.move_to_end(namespace)
            else:
                del self._fresh[namespace]
            return said
        return None

    async def _write_on(self, said: _Said) -> None:
        """Write this one, and go on with further ones as long as the limit of writes in flight allows."""
        following: _Said | None = said
        while following is not None:
            await self._write(following)
            may_go_on = self._writing <= self._pace.in_flight and anyio.current_time() >= self._pace.resume_at
            following = self._next() if may_go_on else None
            if self._fresh and self._writing < self._pace.in_flight:
                self._news.set()
        self._writing -= 1
        self._news.set()

    async def _write(self, said: _Said) -> None:
        bundle, began_at = self._bundles[said], anyio.current_time()
        count = bundle.count
        try:
            await self._send(said, bundle)
        except _PASSING as error:
            retry_after_s = error.retry_after_s if isinstance(error, errors.Refused) else None
            wait_s = self._pace.failed(began_at, anyio.current_time(), retry_after_s=retry_after_s)
            if self._clock.now_ns() - bundle.last_ns < self._settings.give_up_s * 1e9:
                self._look_at(said, at=anyio.current_time() + wait_s)
            else:
                self._give_up(said, error)
            return
        except errors.ApiError as error:
            # The namespace is going, the event has aged away: a second try would end the same way.
            self._give_up(said, error)
            return
        self._pace.answered(began_at, anyio.current_time())
        self.counts.written += 1
        if not bundle.written:
            self._note_known()
        bundle.written = count
        if bundle.is_final:
            del self._bundles[said]
        else:
            self._look_at(said, at=anyio.current_time() + self._settings.bundle_s)

    async def _send(self, said: _Said, bundle: _Bundle) -> None:
        namespace = said.regarding.namespace or _CLUSTER_NAMESPACE
        if bundle.written:
            name = _name(said.regarding.name, bundle.stamp)
            await self._api.patch(EVENTS, name, {"series": _series(bundle)}, namespace=namespace)
            return
        try:
            await self._api.create(EVENTS, self._event(said, bundle, namespace), namespace=namespace)
        except errors.AlreadyExists:
            # No two events get the same name, so an earlier try of this one was carried out.
            _log.debug("event %s about %s was written before", said.reason, said.regarding.name)

    def _give_up(self, said: _Said, error: errors.ApiError) -> None:
        self.counts.refused += 1
        if not self._bundles.pop(said).written:
            self._note_known()
        _log.debug("event %s about %s not written: %s", said.reason, said.regarding.name, error)

    def _note_known(self) -> None:
        self._unwritten -= 1
        if not self._unwritten:
            self._all_written.set()

    def _event(self, said: _Said, bundle: _Bundle, namespace: str) -> Event:
        return Event(
            metadata=ObjectMeta(name=_name(said.regarding.name, bundle.stamp), namespace=namespace),
            event_time=rfc3339_micro(bundle.first_ns),
            # The server takes a series from two on.
            series=msgspec.convert(_series(bundle), EventSeries) if bundle.count > 1 else None,
            reporting_controller=self._controller,
            reporting_instance=self._instance,
            action=said.action,
            reason=said.reason,
            type=said.type,
            regarding=said.regarding,
            note=said.note,
        )

    def _look_at(self, said: _Said, *, at: float) -> None:
        self._order += 1
        heapq.heappush(self._later, (at, self._order, said))


def _series(bundle: _Bundle) -> dict[str, Any]:
    return {"count": bundle.count, "lastObservedTime": rfc3339_micro(bundle.last_ns)}


def _name(about: str, stamp: int) -> str:
    """``<object>.<time in hex>``: unique, since no two events of one recorder get the same stamp."""
    suffix = f".{stamp:016x}"
    return about[: _MOST_NAME_CHARACTERS - len(suffix)].rstrip(".-") + suffix


def about(resource: Resource[Any], metadata: ObjectMeta) -> ObjectReference:
    """Return the reference by which an event names its object.

    Without its resourceVersion, which would make the same event about an object that has changed another one.
    """
    return ObjectReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
    )


def cut_utf8(text: str, most_bytes: int) -> str:
    """Cut to a number of bytes of UTF-8, between characters, with an ellipsis where something is missing."""
    encoded = text.encode()
    if len(encoded) <= most_bytes:
        return text
    return encoded[: most_bytes - 3].decode("utf-8", "ignore") + "\N{HORIZONTAL ELLIPSIS}"


#: A burst is over so long after it began; what comes then begins another one.
WINDOW_S: Final = 600.0
#: As client-go has it.
PREFIX: Final = "(combined from similar events): "


class _Burst(msgspec.Struct, gc=False):
    """What came since ``began_s`` (event loop's time). ``rest``: object and note of the event for all others."""

    began_s: float
    count: int = 0
    rest: tuple[ObjectReference, str] | None = None


class Bursts:
    """Records events of one kind. What is alike is said by the caller, with each event.

    The first ones of a burst are written each, the others become a count on one more. When a team takes back 4,000
    GPUs, or a gang of 512 goes, an event for each pod says the same over and over, and costs the API server as much as
    the evictions do. client-go does likewise with more than ten events about one object that differ by their note
    (EventAggregator, whose words the note begins with).
    """

    def __init__(self, events: EventRecorder, *, reason: str, action: str) -> None:
        self._events = events
        self._reason = reason
        self._action = action
        #: The oldest first.
        self._bursts: dict[Hashable, _Burst] = {}

    def record(
        self,
        regarding: ObjectReference,
        note: str,
        *,
        alike: Hashable,
        most: int,
        type: str = NORMAL,  # noqa: A002 - as in EventRecorder.record
    ) -> None:
        """Note an event, or count it on that of others that are ``alike`` where ``most`` have had their own."""
        burst = self._burst(alike)
        burst.count += 1
        if burst.count > most:
            if burst.rest is None:
                burst.rest = regarding, PREFIX + note
            regarding, note = burst.rest
        self._events.record(regarding, reason=self._reason, action=self._action, note=note, type=type)

    def _burst(self, alike: Hashable) -> _Burst:
        now = anyio.current_time()
        while self._bursts and next(iter(self._bursts.values())).began_s + WINDOW_S <= now:
            del self._bursts[next(iter(self._bursts))]
        return self._bursts.setdefault(alike, _Burst(now))
