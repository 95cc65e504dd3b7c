"""Keeps a sink in step with the API server: list, then watch for ever.

The infinite part (``run``) only decides when to list, when to watch and how long to wait; ``relist`` and ``one_watch``
are finite. What the loops of the field's libraries get wrong and this one does not:

- 410 Gone, as a status or as an ERROR event, means a new list, never the same version again.
- A watch that ends is resumed from the last version seen; one that ends early is resumed after a back-off.
- A connection that says nothing, not even bookmarks, is taken for dead.
- A list whose version has jumped is of another history: etcd was restored from a snapshot. Replicas, which keep what
  they were shown before, have to know that (``on_set_back``).
- An object that does not decode stops nothing and is not forgotten: it stays in ``undecodable`` until it is replaced by
  one that decodes, or is gone.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskStatus
from typing_extensions import override

from kube.client import errors
from kube.client.api import Api, check, selectors
from kube.client.decoding import at_any_depth, object_key
from kube.client.resources import Resource
from kube.client.retry import Backoff, BackoffRange
from wire.core import Status
from wire.tombstones import has_jumped

T = TypeVar("T", bound=msgspec.Struct)


class Upserted(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """ADDED or MODIFIED: the same to a cache, and after a resume the server may say either."""

    obj: T
    resource_version: str


class Deleted(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """DELETED, with the object's last state."""

    obj: T
    resource_version: str


class Bookmarked(msgspec.Struct, frozen=True, gc=False):
    """BOOKMARK: all up to this version has been sent. Also what an unknown kind of event amounts to."""

    resource_version: str


class Failed(msgspec.Struct, frozen=True):
    """ERROR: the watch is over, mostly because its version is too old (410)."""

    status: Status


class Garbled(msgspec.Struct, frozen=True):
    """An object that does not decode. ``resource_version`` is "" when not even that could be told."""

    key: str
    resource_version: str
    is_deletion: bool
    error: str


WatchEvent: TypeAlias = Upserted[T] | Deleted[T] | Bookmarked | Failed | Garbled


class _Envelope(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


class _Version(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    resource_version: str = ""


class _Versioned(msgspec.Struct, frozen=True, gc=False):
    metadata: _Version = _Version()


_envelope: Final = msgspec.json.Decoder(_Envelope)
_status: Final = msgspec.json.Decoder(Status)
_versioned: Final = msgspec.json.Decoder(_Versioned)


class WatchDecoder(Generic[T]):
    """Decodes the lines of one resource's watches. Raises nothing: what is wrong with a line is an event, too.

    It takes two steps, since what stands under ``object`` depends on ``type``: an ERROR holds a Status, a BOOKMARK an
    almost empty object. The inner piece is decoded at once, so that the view on the line does not outlive it.
    """

    def __init__(self, resource: Resource[T]) -> None:
        self._object: msgspec.json.Decoder[Any] = msgspec.json.Decoder(resource.type)

    def decode(self, line: bytes) -> WatchEvent[T]:
        """Return what one line says."""
        try:
            envelope = at_any_depth(_envelope, line)
        except msgspec.DecodeError as error:
            return Garbled("(unnamed)", "", is_deletion=False, error=str(error))
        try:
            return self._event(envelope)
        except msgspec.DecodeError as error:
            return _garbled(envelope, str(error))

    def _event(self, envelope: _Envelope) -> WatchEvent[T]:
        match envelope.type:
            case "ADDED" | "MODIFIED":
                obj = at_any_depth(self._object, envelope.object)
                return Upserted(obj, obj.metadata.resource_version)
            case "DELETED":
                obj = at_any_depth(self._object, envelope.object)
                return Deleted(obj, obj.metadata.resource_version)
            case "ERROR":
                return Failed(at_any_depth(_status, envelope.object))
            case _:
                return Bookmarked(at_any_depth(_versioned, envelope.object).metadata.resource_version)


def _garbled(envelope: _Envelope, error: str) -> Garbled | Failed:
    if envelope.type == "ERROR":
        return Failed(Status(message=error))
    try:
        version = at_any_depth(_versioned, envelope.object).metadata.resource_version
    except msgspec.DecodeError:
        version = ""
    return Garbled(object_key(envelope.object), version, is_deletion=envelope.type == "DELETED", error=error)


T_contra = TypeVar("T_contra", bound=msgspec.Struct, contravariant=True)
K = TypeVar("K")

_log: Final = logging.getLogger(__name__)

#: Lines that were already there and are taken in before other tasks get a turn (about 5 ms of decoding).
_LINES_PER_TURN: Final = 256
#: As many items of a list that nobody reads yet (about 5 ms as well).
_ITEMS_PER_TURN: Final = 1024
_HEARD_EVERY_S: Final = 1.0
_RELISTED: Final = (errors.Gone, errors.BadRequest, errors.NotFound, errors.TooLarge)


class Sink(Protocol[T_contra, K]):
    """Takes what a reflector sees. Between two calls the sink is as the server was at one version.

    A list is turned into what the sink keeps while its pages come, and taken in one piece when it is whole. So the
    objects of a long list are never in memory together, and a list that breaks off has changed nothing.
    """

    def keep(self, obj: T_contra) -> K:
        """What this sink keeps of an object. Changes nothing."""
        ...

    async def replace(self, kept: Sequence[K]) -> None:
        """Take the whole truth as of a list; what is not in it is gone.

        No half of it may be seen: a sink lets others run in here only where nobody reads it yet.
        """
        ...

    def upsert(self, obj: T_contra) -> None:
        """Take an object that is new or changed."""
        ...

    def delete(self, obj: T_contra) -> None:
        """Take an object's last state; it is gone."""
        ...


async def in_turns(items: Iterable[K], take: Callable[[K], None]) -> None:
    """Take a long list that nobody reads yet, piece by piece, so that others get their turns."""
    for number, item in enumerate(items, 1):
        take(item)
        if number % _ITEMS_PER_TURN == 0:
            await anyio.lowlevel.checkpoint()


class ReflectorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times of a reflector, in seconds."""

    #: The server is asked to end each watch after a time drawn from this range, so that watches don't pile up on one
    #: replica of it, and don't all come back at once.
    watch_least_s: int = 240
    watch_most_s: int = 480
    #: Without any line for so long the connection is taken for dead. Bookmarks come about once a minute.
    silence_s: float = 90.0
    #: A watch that ended sooner than this counts as failed.
    early_s: float = 5.0
    #: After this many 5xx answers in a row the version itself is suspected (a restored etcd answers 504, "too large
    #: resource version"): list again. A server that can't be reached is no reason: all would list when it comes back.
    server_errors_to_relist: int = 4
    backoff: BackoffRange = BackoffRange(first_s=0.5, most_s=30.0)


class Next(Enum):
    """What is to be done after a watch."""

    RESUME = "resume"
    RELIST = "relist"


@dataclass(slots=True)
class ReflectorCounts:
    """What has happened so far."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    undecodable: int = 0


class Reflector(Generic[T]):
    """Feeds one resource's objects into a sink.

    ``synced`` is set after the first complete list. ``undecodable`` holds, by ``namespace/name``, why an object that
    exists is not (or not in its present state) in the sink; who must not overlook objects looks there.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource[T],
        sink: Sink[T, Any],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        rng: random.Random,
        settings: ReflectorSettings = ReflectorSettings(),  # noqa: B008 - frozen
    ) -> None:
        self.synced = anyio.Event()
        self.undecodable: dict[str, str] = {}
        #: Why the last list failed, or the last watch was refused; "" after one that was not.
        self.trouble = ""
        #: Whether the last list was answered with 404: the server does not know this kind of objects.
        self.is_unknown = False
        #: Called with the error of a list or a watch that failed, and with None when a list was
        #: taken or a watch is open. It judges the errors, so here each is logged at level DEBUG only.
        self.on_answer: Callable[[errors.ApiError | None], None] | None = None
        #: Called with the version of a list and the one before it when history was set back in between.
        self.on_set_back: Callable[[str, str], None] | None = None
        self.counts = ReflectorCounts()
        self.resource = resource
        #: When the server was heard last, by a list or a line of a watch (event loop's time).
        self.heard_at = -math.inf
        self._api = api
        self._lag = api.lag
        self._sink = sink
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._rng = rng
        self._settings = settings
        self._decoder = WatchDecoder(resource)
        self._backoff = Backoff(settings.backoff, rng)
        self._version = ""
        #: Who waits for a list that begins from now on, and what is waited for meanwhile: a watch, or a back-off.
        self._behind: list[anyio.Event] = []
        self._waiting = anyio.CancelScope()
        if self._lag is not None:
            self._lag.follow(resource.plural)

    async def catch_up(self) -> None:
        """Have it list again at once; returns when the sink has taken that list: nothing from before it is missing.

        The watch is too late for who must know that nothing is missing, and does not say how late it is.
        """
        listed = anyio.Event()
        self._behind.append(listed)
        self._waiting.cancel()
        await listed.wait()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """List and watch until cancelled. ``started()`` is called after the first list."""
        started = False
        while True:
            if await self._attempt_list():
                if not started:
                    task_status.started()
                    started = True
                await self._watch_until_stale()

    async def _attempt_list(self) -> bool:
        waiting, self._behind = self._behind, []
        try:
            await self.relist()
        except errors.ApiError as error:
            self._behind += waiting
            self.trouble = str(error)
            self._answered(error)
            self.is_unknown = isinstance(error, errors.NotFound)
            await self._back_off("list", error)
            return False
        self.trouble, self.is_unknown = "", False
        self._answered(None)
        for listed in waiting:
            listed.set()
        return True

    async def _watch_until_stale(self) -> None:
        server_errors = 0
        while not self._behind:
            started_at = anyio.current_time()
            todo, error = await self._attempt_watch()
            if self._behind:
                return
            is_early = anyio.current_time() - started_at < self._settings.early_s
            if not is_early:
                self._backoff.succeed()
            if todo is Next.RELIST or error or is_early:
                await self._back_off("watch", error)
            server_errors = server_errors + 1 if isinstance(error, errors.ServerError) else 0
            if todo is Next.RELIST or server_errors >= self._settings.server_errors_to_relist:
                return

    async def _attempt_watch(self) -> tuple[Next, errors.ApiError | None]:
        try:
            return await self.one_watch(), None
        except errors.ApiError as error:
            self.trouble = str(error) if isinstance(error, errors.Forbidden | errors.Unauthorized) else ""
            self._answered(error)
            return _after(error), error

    async def relist(self) -> None:
        """List once and replace the sink's content. Raises kube.client.errors.ApiError."""
        listing = await self._api.digest(
            self.resource,
            self._sink.keep,
            namespace=self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
        )
        self.counts.lists += 1
        self.undecodable.clear()
        for bad in listing.undecoded:
            self._note_undecodable(bad.key, bad.error)
        before, self._version = self._version, listing.resource_version
        if self.on_set_back is not None and has_jumped(self._version, before):
            self.on_set_back(self._version, before)
        self.heard_at = anyio.current_time()
        if self._lag is not None:
            self._lag.listed(self.resource.plural)
        await self._sink.replace(listing.items)
        self.synced.set()

    async def one_watch(self) -> Next:
        """Watch once, from the last version seen, until it ends or falls silent. Raises kube.client.errors.ApiError."""
        self.counts.watches += 1
        silence_s = self._settings.silence_s
        todo = Next.RESUME
        with anyio.CancelScope(deadline=anyio.current_time() + silence_s) as listening:
            self._waiting = listening
            stream = self._api.stream(self.resource, self._query(), namespace=self._namespace)
            async with stream as (head, lines):
                check(head)
                self.trouble = ""
                self._answered(None)
                todo = await self._take_in(lines, listening)
        if listening.cancelled_caught and not self._behind:
            _log.warning("watch of %s: nothing heard for %.0f s, reconnecting", self.resource.plural, silence_s)
        return todo

    async def _take_in(self, lines: AsyncIterator[bytes], listening: anyio.CancelScope) -> Next:
        since_turn, moved_at = 0, -math.inf
        async for line in lines:
            now = self.heard_at = anyio.current_time()
            if now - moved_at >= _HEARD_EVERY_S:
                # Moving a deadline costs a timer each time; to the second is near enough.
                moved_at = now
                listening.deadline = now + self._settings.silence_s
            if self._apply(self._decoder.decode(line)) is Next.RELIST:
                return Next.RELIST
            since_turn += 1
            if since_turn == _LINES_PER_TURN:
                # Lines that are buffered already come without a suspension: a burst would stop everybody else.
                since_turn = 0
                await anyio.lowlevel.checkpoint()
        return Next.RESUME

    def _apply(self, event: WatchEvent[T]) -> Next:
        self.counts.events += 1
        match event:
            case Upserted():
                self._forget_undecodable(event.obj)
                self._note_lag(event.obj)
                self._sink.upsert(event.obj)
            case Deleted():
                self._forget_undecodable(event.obj)
                self._sink.delete(event.obj)
            case Failed():
                reason = event.status.message or event.status.reason
                _log.info("watch of %s ended by the server: %s", self.resource.plural, reason)
                return Next.RELIST
            case Garbled():
                self._note_undecodable(event.key, event.error)
                if event.is_deletion or not event.resource_version:
                    # The sink can't be told what is gone, or there is no version to go on from: only a list helps.
                    return Next.RELIST
            case Bookmarked():
                pass
        self._version = event.resource_version or self._version
        return Next.RESUME

    def _query(self) -> dict[str, str]:
        timeout_s = self._rng.randint(self._settings.watch_least_s, self._settings.watch_most_s)
        return {
            **selectors(label_selector=self._label_selector, field_selector=self._field_selector),
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout_s),
        }

    def _answered(self, error: errors.ApiError | None) -> None:
        if self.on_answer is not None:
            self.on_answer(error)

    def _note_lag(self, obj: Any) -> None:
        if self._lag is not None:
            self._lag.shown(self.resource.plural, obj.metadata)

    def _note_undecodable(self, key: str, error: str) -> None:
        self.counts.undecodable += 1
        self.undecodable[key] = error
        _log.error("%s %s can't be read and is left out: %s", self.resource.kind, key, error)

    def _forget_undecodable(self, obj: Any) -> None:
        if self.undecodable:
            metadata = obj.metadata
            self.undecodable.pop(f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name, None)

    async def _back_off(self, what: str, error: errors.ApiError | None) -> None:
        wait_s = self._backoff.fail()
        if isinstance(error, errors.TooManyRequests) and error.retry_after_s is not None:
            wait_s += error.retry_after_s
        level = logging.WARNING if error and self.on_answer is None else logging.DEBUG
        _log.log(
            level,
            "%s of %s: %s; again in %.1f s",
            what,
            self.resource.plural,
            error or "ended early",
            wait_s,
        )
        with anyio.move_on_after(wait_s) as self._waiting:
            await anyio.sleep_forever()


def _after(error: errors.ApiError) -> Next:
    # 400: the server can't make sense of the version. 404: the resource itself has gone, and its objects with it.
    # A line that is too long comes again after the same version.
    return Next.RELIST if isinstance(error, _RELISTED) else Next.RESUME


class Tee(Sink[T, tuple[Any, ...]]):
    """Gives each sink what it would be given alone, in the order of the sinks.

    The API server serves one watch for all of them.
    """

    def __init__(self, *sinks: Sink[T, Any]) -> None:
        self._sinks = sinks

    @override
    def keep(self, obj: T) -> tuple[Any, ...]:
        return tuple(sink.keep(obj) for sink in self._sinks)

    @override
    async def replace(self, kept: Sequence[tuple[Any, ...]]) -> None:
        for number, sink in enumerate(self._sinks):
            await sink.replace([each[number] for each in kept])

    @override
    def upsert(self, obj: T) -> None:
        for sink in self._sinks:
            sink.upsert(obj)

    @override
    def delete(self, obj: T) -> None:
        for sink in self._sinks:
            sink.delete(obj)
