"""Events about objects, for people: late, bundled, lost under pressure, and never in anybody's way.

``record`` only notes; a worker writes, at its own rate. The same event said again is not written again: it becomes a
count on the first one (a series), written at most once in ``bundle_s``.
"""

from __future__ import annotations

import heapq
import logging
import math
from dataclasses import dataclass
from typing import Any, Final

import anyio
import msgspec

from kube.client import errors
from kube.client.api import Api
from kube.client.clock import Clock, rfc3339_micro
from kube.client.resources import EVENTS, Resource
from wire.core import ObjectMeta, ObjectReference
from wire.events import MOST_NOTE_BYTES, NORMAL, Event, EventSeries

_log: Final = logging.getLogger(__name__)

#: Events about objects without a namespace go here, as Kubernetes' own components do it.
_CLUSTER_NAMESPACE: Final = "default"
_MOST_NAME_CHARACTERS: Final = 253


class EventSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much the reporting may cost."""

    #: Writes a second in the long run, and how many may come at once after a pause.
    writes_per_s: float = 50.0
    burst: int = 100
    #: Events that may wait to be written first; further ones are lost.
    capacity: int = 5000
    #: Least seconds between two writes about the same event.
    bundle_s: float = 60.0


@dataclass(slots=True)
class EventCounts:
    """What became of what was recorded. Repeats that went into a count are in ``bundled``."""

    recorded: int = 0
    written: int = 0
    bundled: int = 0
    lost: int = 0
    refused: int = 0


class _Said(msgspec.Struct, frozen=True):
    """What makes two events the same."""

    regarding: ObjectReference
    type: str
    reason: str
    action: str
    note: str


@dataclass(slots=True)
class _Bundle:
    """One event on the server, or on its way there, and how often it was said."""

    first_ns: int
    last_ns: int
    namespace: str
    name: str
    is_final: bool
    count: int = 1
    #: The count that the server knows; 0 when it knows nothing yet.
    written: int = 0


class EventRecorder:
    """Reports events of one component. ``run`` writes them; ``record`` may be called before it and at any time.

    ``controller`` is the component (``kai-scheduler``), ``instance`` which of its processes.
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
        #: (loop time, order, what): when each bundle is looked at next; every bundle stands here once.
        self._due: list[tuple[float, int, _Said]] = []
        self._order = 0
        self._unwritten = 0
        self._last_stamp = 0
        self._news = anyio.Event()
        self._pace = _Pace(settings.writes_per_s, settings.burst)

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
        """Note an event about an object. Returns at once, whatever the state of the API server.

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
        elif self._unwritten >= self._settings.capacity:
            self.counts.lost += 1
        else:
            self._bundles[said] = _Bundle(
                now_ns, now_ns, regarding.namespace or _CLUSTER_NAMESPACE, self._name(regarding.name, now_ns), is_final
            )
            self._unwritten += 1
            self._look_at(said, at=-math.inf)
            self._news.set()

    async def run(self) -> None:
        """Write events until cancelled; what is unwritten then is lost."""
        while True:
            await self._until_due()
            _, _, said = heapq.heappop(self._due)
            await self._tend(said)

    async def _until_due(self) -> None:
        while not self._due or self._due[0][0] > anyio.current_time():
            due_at = self._due[0][0] if self._due else math.inf
            self._news = anyio.Event()
            with anyio.CancelScope(deadline=due_at):
                await self._news.wait()

    async def _tend(self, said: _Said) -> None:
        bundle = self._bundles[said]
        if bundle.count == bundle.written:
            # Not said again within the window.
            del self._bundles[said]
            return
        await self._pace.wait()
        if await self._attempt_write(said, bundle) and not bundle.is_final:
            self._look_at(said, at=anyio.current_time() + self._settings.bundle_s)
        else:
            del self._bundles[said]

    async def _attempt_write(self, said: _Said, bundle: _Bundle) -> bool:
        count = bundle.count
        is_first = bundle.written == 0
        try:
            if is_first:
                self._unwritten -= 1
                await self._api.create(EVENTS, self._event(said, bundle), namespace=bundle.namespace)
            else:
                await self._api.patch(EVENTS, bundle.name, {"series": self._series(bundle)}, namespace=bundle.namespace)
        except errors.ApiError as error:
            # The namespace is going, the event has aged away, the server is busy: not worth a second try.
            self.counts.refused += 1
            _log.debug("event %s about %s not written: %s", said.reason, said.regarding.name, error)
            return False
        self.counts.written += 1
        bundle.written = count
        return True

    def _event(self, said: _Said, bundle: _Bundle) -> Event:
        return Event(
            metadata=ObjectMeta(name=bundle.name, namespace=bundle.namespace),
            event_time=rfc3339_micro(bundle.first_ns),
            # The server takes a series from two on.
            series=msgspec.convert(self._series(bundle), EventSeries) if bundle.count > 1 else None,
            reporting_controller=self._controller,
            reporting_instance=self._instance,
            action=said.action,
            reason=said.reason,
            type=said.type,
            regarding=said.regarding,
            note=said.note,
        )

    @staticmethod
    def _series(bundle: _Bundle) -> dict[str, Any]:
        return {"count": bundle.count, "lastObservedTime": rfc3339_micro(bundle.last_ns)}

    def _look_at(self, said: _Said, *, at: float) -> None:
        self._order += 1
        heapq.heappush(self._due, (at, self._order, said))

    def _name(self, about: str, now_ns: int) -> str:
        """``<object>.<time in hex>``: unique, since no two of one recorder get the same stamp."""
        self._last_stamp = max(now_ns, self._last_stamp + 1)
        suffix = f".{self._last_stamp:016x}"
        return about[: _MOST_NAME_CHARACTERS - len(suffix)].rstrip(".-") + suffix


class _Pace:
    """Lets so many through a second, and a burst after a pause (generic cell rate algorithm)."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._interval_s = 1.0 / per_s
        self._slack_s = (burst - 1) / per_s
        #: When the next one would come if all came evenly.
        self._even_at = -math.inf

    async def wait(self) -> None:
        """Return when one more may pass."""
        self._even_at = max(self._even_at, anyio.current_time())
        await anyio.sleep_until(self._even_at - self._slack_s)
        self._even_at += self._interval_s


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
    """Cut to so many bytes of UTF-8, between characters, with an ellipsis where something is missing."""
    encoded = text.encode()
    if len(encoded) <= most_bytes:
        return text
    return encoded[: most_bytes - 3].decode("utf-8", "ignore") + "\N{HORIZONTAL ELLIPSIS}"
