"""The page over HTTP: its files, the state, its changes as server-sent events, and the path of one pod. GET only.

Answers that depend on a reader's rights are under ``/api``; the files are the same for all readers. sending.py sends
the answers.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import anyio
import msgspec
from aiohttp import web

from cli.explaining.questions import Unanswered
from cli.page.access import Access, Turned
from cli.page.explaining import PageExplains, Question
from cli.page.files import Handler, add_files
from cli.page.frames import Frame
from cli.page.paths import with_link
from cli.page.publishing import Publishing
from cli.page.sending import HEADERS, encode, send, send_whole, stated, told, turned
from cli.page.sight import Sight, seen, seen_path
from cli.page.values import PageStruct, State
from kube.client.errors import ApiError

_log: Final = logging.getLogger(__name__)

#: An open stream says at least so often that it lives, and asks again what its reader may see.
PULSE_S: Final = 5.0
#: Nobody has anything to send.
_LARGEST_BODY_BYTES: Final = 1024
_PORT: Final = re.compile(r":[0-9]*$")


class Limits(msgspec.Struct, frozen=True):
    """What readers may take: ``streams`` that are open at one time, ``streams_of_one`` user where readers sign in.

    As many answers that tell all of the cluster may be under way at one time.

    ``unread_s``: a reader that reads nothing for this time, or is 128 KiB behind, counts as gone; the rights of such a
    stream could not be checked either.
    """

    streams: int = 128
    streams_of_one: int = 8
    unread_s: float = 20.0


class Health(PageStruct, frozen=True, gc=False):
    """What is wrong with what the page rests on: kinds that can't be read, and a silent API server, in seconds.

    ``idle``: which of the components do not work. ``warnings``: what takes nothing away yet, but must be seen to.
    """

    unread: tuple[str, ...] = ()
    silent_s: int = 0
    idle: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Source(Protocol):
    """What the page is made of: a cluster that is followed, or a recorded run."""

    @property
    def is_in_step(self) -> bool:
        """Whether all is read that was there at the beginning."""
        ...

    def troubles(self) -> tuple[str, ...]:
        """What can't be read, and why."""
        ...

    def silent_s(self) -> int:
        """For how many seconds nothing was heard, 0 while that is usual."""
        ...

    def idle(self) -> tuple[str, ...]:
        """Which of the components do not work, in sentences."""
        ...


class Answering:
    """``hosts``: names (without a port, which tunnels change) by which readers may ask for this page, None for any.

    ``drawn``: set once there is a first picture of what is followed; None: there is one from the start.
    ``warnings`` says what the page's health is to say beside what can't be read; ``trace_url``: cli/page/settings.py.
    ``explains``: None where no pod is explained.
    """

    def __init__(  # noqa: PLR0913 - keywords, each a part that a test may replace
        self,
        publishing: Publishing,
        following: Source,
        access: Access,
        *,
        source: str,
        hosts: Collection[str] | None,
        pulse_s: float = PULSE_S,
        drawn: anyio.Event | None = None,
        limits: Limits | None = None,
        warnings: Callable[[], tuple[str, ...]] = tuple,
        trace_url: str = "",
        explains: PageExplains | None = None,
    ) -> None:
        self._publishing = publishing
        self._drawn = drawn
        self._following = following
        self._access = access
        self._source = source
        self._hosts = hosts
        self._pulse_s = pulse_s
        self._limits = limits or Limits()
        #: By user, "" where nobody signs in.
        self._streams: Counter[str] = Counter()
        self._states: Counter[str] = Counter()
        self._warnings = warnings
        self._trace_url = trace_url
        self._explains = explains
        #: Connections on which an answer is made or sent.
        self._busy: set[object] = set()
        self._open: set[anyio.CancelScope] = set()

    def is_answering(self, connection: object) -> bool:
        """Whether an answer is made or sent on a connection (aiohttp's protocol of it)."""
        return connection in self._busy

    def app(self) -> web.Application:
        """Return the routes: GET and nothing else."""
        app = web.Application(client_max_size=_LARGEST_BODY_BYTES, middlewares=[self._guard])
        add_files(app.router)
        app.router.add_get("/api/state", self._state, allow_head=False)
        app.router.add_get("/api/changes", self._changes, allow_head=False)
        app.router.add_get("/api/pods/{namespace}/{name}", self._pod, allow_head=False)
        app.router.add_get("/api/explain/{namespace}/{name}", self._explain, allow_head=False)
        app.on_shutdown.append(self._end_streams)
        return app

    async def _end_streams(self, _: web.Application) -> None:
        """A stream never ends on its own: the process would wait for it without end."""
        for stream in self._open:
            stream.cancel()

    # --- at the door -------------------------------------------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn away who came by another name (DNS rebinding), and send the headers of a careful page with all else."""
        self._busy.add(request.protocol)
        try:
            answer = await self._answer(request, handler)
            return (
                await send_whole(request, answer, unread_s=self._limits.unread_s)
                if isinstance(answer, web.Response)
                else answer
            )
        finally:
            self._busy.discard(request.protocol)

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._hosts is not None and _PORT.sub("", request.host) not in self._hosts:
            answer: web.StreamResponse = told(421, f"this page is to be asked for as {' or '.join(self._hosts)}")
        else:
            try:
                answer = await handler(request)
            except web.HTTPException as error:
                answer = told(error.status, error.reason)
                answer.headers.update({name: error.headers[name] for name in ("Allow",) if name in error.headers})
        if not answer.prepared:
            answer.headers.update(HEADERS)
        return answer

    async def _sight(self, request: web.Request) -> Sight | Turned:
        # What is read but not drawn yet would look like a cluster that has nothing.
        is_drawn = self._drawn is None or self._drawn.is_set()
        if not (self._following.is_in_step and is_drawn):
            why = "; ".join(self._following.troubles()) or "the cluster is being read"
            return Turned(503, f"not in step with the cluster yet: {why}")
        try:
            return await self._access.sight(request.headers.get("Authorization", ""), self._namespaces)
        except* ApiError as failed:
            _log.warning("what a reader may see can't be asked: %s", failed.exceptions[0])
        return Turned(503, "the API server can't be asked what you may see")

    def _namespaces(self) -> Collection[str]:
        return {line.namespace for line in self._publishing.frames.pods.values()}

    # --- answers -----------------------------------------------------------------------------------------------------

    async def _state(self, request: web.Request) -> web.StreamResponse:
        """All of it."""
        sight = await self._sight(request)
        if isinstance(sight, Turned):
            return turned(sight)
        user = self._access.user(request.headers.get("Authorization", ""))
        if (why := self._too_many(self._states, user)) is not None:
            return why
        frames = self._publishing.frames
        with _one_more(self._states, user):
            state = State(
                id=frames.id,
                source=self._source,
                changes=seen(frames.whole(), sight),
                unread=self._following.troubles(),
                is_partly_hidden=sight != Sight(),
            )
            answer = await stated(request, state)
            answer.headers.update(HEADERS)
            return await send_whole(request, answer, unread_s=self._limits.unread_s)

    async def _pod(self, request: web.Request) -> web.StreamResponse:
        sight = await self._sight(request)
        if isinstance(sight, Turned):
            return turned(sight)
        path = self._publishing.frames.path(request.match_info["namespace"], request.match_info["name"])
        shown = seen_path(with_link(path, self._trace_url), sight) if path is not None else None
        if shown is None:
            return told(404, "there is no such pod, or you may not see it")
        return web.Response(body=encode(shown), content_type="application/json")

    async def _explain(self, request: web.Request) -> web.StreamResponse:
        """Why a pod waits, and what would let it start."""
        sight = await self._sight(request)
        if isinstance(sight, Turned):
            return turned(sight)
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        if not sight.sees(namespace) or self._publishing.objects.pod(namespace, name) is None:
            return told(404, "there is no such pod, or you may not see it")
        authorization = request.headers.get("Authorization", "")
        user = self._access.user(authorization)
        question = Question(namespace=namespace, name=name, sight=sight, user=user, authorization=authorization)
        return await self._explained(question)

    async def _explained(self, question: Question) -> web.Response:
        if self._explains is None:
            return told(404, "no pod is explained here")
        try:
            body = encode(await self._explains.explain(question))
        except Unanswered as refused:
            return told(refused.status, refused.why)
        return web.Response(body=body, content_type="application/json")

    async def _changes(self, request: web.Request) -> web.StreamResponse:
        """Changes from ``after`` (or Last-Event-ID) on, until the reader goes."""
        sight = await self._sight(request)
        if isinstance(sight, Turned):
            return turned(sight)
        user = self._access.user(request.headers.get("Authorization", ""))
        if (why := self._too_many(self._streams, user)) is not None:
            return why
        known = request.headers.get("Last-Event-ID", "") or request.query.get("after", "")
        answer = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        with _one_more(self._streams, user), anyio.CancelScope() as stream:
            self._open.add(stream)
            try:
                await answer.prepare(request)
                await self._tell(request, answer, known, sight)
            except ConnectionError:
                _log.debug("a reader has gone")
            finally:
                self._open.discard(stream)
        return answer

    def _too_many(self, under_way: Counter[str], user: str) -> web.Response | None:
        """Refuse a reader beyond the limit."""
        if under_way.total() >= self._limits.streams:
            return told(503, "too many pages are open")
        if user and under_way[user] >= self._limits.streams_of_one:
            return told(503, f"{self._limits.streams_of_one} pages of yours are open, and no more are allowed")
        return None

    async def _tell(self, request: web.Request, answer: web.StreamResponse, known: str, sight: Sight) -> None:
        """Tell each frame once; a reader that is too far behind, or whose rights have changed, has to read again.

        What is not read yet waits in the frames, not here: a slow reader costs no memory.
        """
        frames = self._publishing.frames
        while True:
            missed = frames.since(known)
            if missed is None or await self._sight(request) != sight:
                await self._send(request, answer.write(b"event: reset\ndata: {}\n\n"))
                return
            for frame in missed:
                event = _event(f"{frames.epoch}-{frame.revision}", frame, sight)
                await self._send(request, answer.write(event))
                known = f"{frames.epoch}-{frame.revision}"
            health = Health(
                unread=self._following.troubles(),
                silent_s=self._following.silent_s(),
                idle=self._following.idle(),
                warnings=self._warnings(),
            )
            await self._send(request, answer.write(b"event: health\ndata: " + encode(health) + b"\n\n"))
            with anyio.move_on_after(self._pulse_s):
                await self._publishing.wait_beyond(int(known.rpartition("-")[2]))

    async def _send(self, request: web.Request, writing: Awaitable[None]) -> None:
        await send(request, writing, unread_s=self._limits.unread_s)


@contextmanager
def _one_more(under_way: Counter[str], user: str) -> Iterator[None]:
    """Count one of a user; a user with none is forgotten."""
    under_way[user] += 1
    try:
        yield
    finally:
        under_way[user] -= 1
        if not under_way[user]:
            del under_way[user]


def _event(name: str, frame: Frame, sight: Sight) -> bytes:
    return b"id: %s\nevent: changes\ndata: %s\n\n" % (name.encode(), encode(seen(frame.changes, sight)))
