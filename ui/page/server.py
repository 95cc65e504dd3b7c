"""The page over HTTP: its files, the state, its changes as server-sent events, and the path of one pod. GET only.

Answers that depend on a reader's rights are under ``/api``; the files are the same for all readers. Nothing of what
pods and people have written gets into HTML here: it goes out as JSON, and the page makes text of it.
"""

from __future__ import annotations

import functools
import gzip
import importlib.resources
import logging
import re
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol

import anyio
import anyio.to_thread
import msgspec
from aiohttp import web
from anyio.abc import TaskStatus

from admission.certificates.tls import FilesShown
from admission.connections import Entrance, Limits
from kube.client.errors import ApiError
from kube.serving import KEEP_ALIVE_S, running
from ui.explain.views import Unanswered
from ui.page.auth import Access, Denied
from ui.page.drawing import with_link
from ui.page.explanations import PageExplains, Question
from ui.page.stream import Frame
from ui.page.values import PageStruct, Sight, State, seen, seen_path
from ui.page.watch import Publishing

_TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def add_files(router: web.UrlDispatcher) -> None:
    """Add a route for each file; ``index.html`` is the page itself."""
    for name, (kind, body) in _files().items():
        router.add_get(f"/{'' if name == 'index.html' else name}", _file(kind, body), allow_head=False)


def _file(kind: str, body: bytes) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type=kind, charset="utf-8")

    return handler


@functools.cache
def _files() -> Mapping[str, tuple[str, bytes]]:
    """All of them and nothing else."""
    folder = importlib.resources.files("ui.page") / "static"
    found = {entry.name: entry for entry in folder.iterdir()}
    return {
        name: (_TYPES[f".{name.rpartition('.')[2]}"], entry.read_bytes())
        for name, entry in sorted(found.items())
        if f".{name.rpartition('.')[2]}" in _TYPES
    }


_log: Final = logging.getLogger(__name__)
#: A value as JSON.
encode: Final = msgspec.json.Encoder().encode

_LEVEL: Final = 5
#: An answer is sent in pieces, each of which has to be read within a time: more than aiohttp sends without waiting.
_PIECE_BYTES: Final = 128 * 1024
#: Nothing from elsewhere, nothing inline, nothing that makes code or HTML of a text, and no frame around it.
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
_NO_WEIGHT: Final = re.compile(r"q=0(\.0*)?")


# --- answers ---------------------------------------------------------------------------------------------------------
async def stated(request: web.Request, state: State, *, level: int = _LEVEL) -> web.Response:
    """A state, compressed where the reader accepts gzip: a large cluster is some megabytes, of few different words."""
    body = encode(state)
    is_packed = accepts_gzip(request.headers.get("Accept-Encoding", ""))
    if is_packed:
        body = await anyio.to_thread.run_sync(functools.partial(gzip.compress, compresslevel=level), body)
    answer = web.Response(body=body, content_type="application/json", headers={"Vary": "Accept-Encoding"})
    if is_packed:
        answer.headers["Content-Encoding"] = "gzip"
    return answer


def accepts_gzip(header: str) -> bool:
    """Whether an ``Accept-Encoding`` header names gzip (or every coding) with a weight above 0 (RFC 9110, 12.5.3)."""
    weights: dict[str, bool] = {}
    for entry in header.lower().split(","):
        coding, _, weight = (part.strip() for part in entry.partition(";"))
        weights[coding] = not _NO_WEIGHT.fullmatch(weight.replace(" ", ""))
    return weights.get("gzip", weights.get("*", False))


def told(status: int, why: str) -> web.Response:
    """Why there is no other answer."""
    return web.Response(status=status, body=encode({"error": why}), content_type="application/json")


def turned(why: Denied) -> web.Response:
    """Return why somebody is turned away."""
    answer = told(why.status, why.why)
    if why.status == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


# --- sending ---------------------------------------------------------------------------------------------------------
async def send_whole(request: web.Request, answer: web.Response, *, unread_s: float) -> web.StreamResponse:
    """Send it here and in pieces: aiohttp would wait for ever until all of it was read."""
    body = answer.body
    assert isinstance(body, bytes)  # noqa: S101 - all that is made here
    sent = web.StreamResponse(status=answer.status, headers=answer.headers)
    sent.content_length = len(body)
    if request.transport is not None:
        # What waits to be sent is to wait here, where it has an end, and not in a connection that is to be closed.
        request.transport.set_write_buffer_limits(0)
    try:
        await sent.prepare(request)
        for start in range(0, len(body) if request.method != "HEAD" else 0, _PIECE_BYTES):
            await send(request, sent.write(body[start : start + _PIECE_BYTES]), unread_s=unread_s)
        await send(request, sent.write_eof(), unread_s=unread_s)
    except ConnectionError:
        _log.debug("a reader has gone")
    return sent


async def send(request: web.Request, writing: Awaitable[None], *, unread_s: float) -> None:
    """Await a write. Raises ConnectionError for a reader that has gone, or reads nothing for this time."""
    try:
        with anyio.fail_after(unread_s):
            await writing
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()  # else what is not read yet would be waited for
        raise ConnectionAbortedError("a reader does not read") from None


#: An open stream says at least so often that it lives, and asks again what its reader may see.
PULSE_S: Final = 5.0
#: Nobody has anything to send.
_LARGEST_BODY_BYTES: Final = 1024
_PORT: Final = re.compile(r":[0-9]*$")


class PageLimits(msgspec.Struct, frozen=True):
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
    ``warnings`` says what the page's health is to say beside what can't be read; ``trace_url``:
    runtime/settings/page.py.
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
        limits: PageLimits | None = None,
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
        self._limits = limits or PageLimits()
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

    async def _sight(self, request: web.Request) -> Sight | Denied:
        # What is read but not drawn yet would look like a cluster that has nothing.
        is_drawn = self._drawn is None or self._drawn.is_set()
        if not (self._following.is_in_step and is_drawn):
            why = "; ".join(self._following.troubles()) or "the cluster is being read"
            return Denied(503, f"not in step with the cluster yet: {why}")
        try:
            return await self._access.sight(request.headers.get("Authorization", ""), self._namespaces)
        except* ApiError as failed:
            _log.warning("what a reader may see can't be asked: %s", failed.exceptions[0])
        return Denied(503, "the API server can't be asked what you may see")

    def _namespaces(self) -> Collection[str]:
        return {line.namespace for line in self._publishing.frames.pods.values()}

    # --- answers -----------------------------------------------------------------------------------------------------

    async def _state(self, request: web.Request) -> web.StreamResponse:
        """All of it."""
        sight = await self._sight(request)
        if isinstance(sight, Denied):
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
        if isinstance(sight, Denied):
            return turned(sight)
        path = self._publishing.frames.path(request.match_info["namespace"], request.match_info["name"])
        shown = seen_path(with_link(path, self._trace_url), sight) if path is not None else None
        if shown is None:
            return told(404, "there is no such pod, or you may not see it")
        return web.Response(body=encode(shown), content_type="application/json")

    async def _explain(self, request: web.Request) -> web.StreamResponse:
        """Why a pod waits, and what would let it start."""
        sight = await self._sight(request)
        if isinstance(sight, Denied):
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
        if isinstance(sight, Denied):
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


#: Four times as many as pages may be open: a browser has some more for all else that it asks.
CONNECTIONS: Final = 512
LIMITS: Final = Limits(connections=CONNECTIONS)


class Door:
    """A listening socket, where readers are limited in number and rate. ``shown``: what is shown there over TLS.

    Without it connections are taken as they are. Anybody beyond loopback who reaches the page's address gets as far as
    this, without a token. So nobody stays who says nothing: a handshake has 10 s, and a request 15 s. Of too many,
    those make room first that have asked nothing.
    """

    def __init__(
        self,
        listener: socket.socket,
        shown: FilesShown | None = None,
        *,
        limits: Limits = LIMITS,
        ask_within_s: float = KEEP_ALIVE_S,
    ) -> None:
        self._listener = listener
        self._shown = shown
        self._limits = limits
        self._ask_within_s = ask_within_s

    @property
    def address(self) -> str:
        """Where it is, as browsers have it."""
        host, port = self._listener.getsockname()[:2]
        return f"{'https' if self._shown else 'http'}://{f'[{host}]' if ':' in host else host}:{port}/"

    def warnings(self) -> tuple[str, ...]:
        """What will have to be seen to."""
        return (self._shown.trouble,) if self._shown and self._shown.trouble else ()

    async def let_in(self, answering: Answering, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Let readers in until cancelled. Started at once."""
        shown = self._shown
        serving = running(answering.app(), keep_alive_s=self._ask_within_s)
        async with serving as server, anyio.create_task_group() as tasks:
            entrance = Entrance(
                self._listener,
                lambda: shown.context if shown else None,
                server,
                limits=self._limits,
                is_asking=answering.is_answering,
            )
            if shown:
                tasks.start_soon(shown.run)
            tasks.start_soon(entrance.run)
            task_status.started()
