"""The webhooks over HTTPS.

The API server speaks HTTP/1.1 to webhooks on purpose and keeps connections alive. aiohttp.web serves it in the same
process and task group as everything else.

How each review was answered is sent as an event; runtime/processes/admission.py counts it.
"""

from __future__ import annotations

import enum
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import anyio.lowlevel
import msgspec
from aiohttp import web
from anyio.abc import TaskStatus

from admission.certificates.tls import Shown
from admission.connections import Entrance, Limits, listen
from admission.envelope import MalformedReview, Review
from admission.objects.review import ObjectAdmission
from admission.review import PodAdmission
from kube.serving import SERVER_LOG
from kube.telemetry.logevents import EventSink, ignore
from kube.telemetry.loglevel import LogLevel


class Answered(enum.Enum):
    """How a review was answered. The value is its stable name for machines."""

    #: Allowed as it came.
    ALLOWED = "allowed"
    #: Allowed with a patch.
    PATCHED = "patched"
    REFUSED = "refused"
    #: It could not be read: 400, so the API server does what the webhook's failurePolicy says.
    MALFORMED = "malformed"
    #: It is larger than an object can be, or our own code failed: 413 or 500.
    FAILED = "failed"


class ReviewAnswered(msgspec.Struct, frozen=True, gc=False):
    """``webhook`` answered a review, this long after the review began to arrive."""

    webhook: str
    answered: Answered
    took_s: float


def answered_by(review: dict[str, Any]) -> Answered:
    """How this review's answer answers."""
    response = review["response"]
    if not response["allowed"]:
        return Answered.REFUSED
    return Answered.PATCHED if "patch" in response else Answered.ALLOWED


log = logging.getLogger(__name__)

ADOPT_PATH = "/adopt--v1-pod"
MUTATE_PATH = "/mutate--v1-pod"
VALIDATE_PATH = "/validate--v1-pod"
#: KAI's (kai-contract, erratum 6).
QUEUE_PATH = "/validate-scheduling-run-ai-v2-queue"
POD_GROUP_PATH = "/validate-scheduling-run-ai-v2alpha2-podgroup"

#: A review holds an object twice at most, and the API server takes objects of up to 3 MiB.
_MAX_BODY_BYTES = 8 * 2**20

#: Longer than the API server keeps a connection on which nothing is asked (90 s). Were we the first to close it, its
#: next review could meet a connection that is about to go, and fail. Who keeps one for longer is no API server.
_KEEP_ALIVE_S = 150.0

#: Who was refused in the middle of a body is read from for so long, so that the answer arrives before the end.
_LINGER_S = 1.0

#: asyncio tells nobody when a closed TLS connection is really gone, so it is looked at.
_LOOK_AGAIN_S = 0.01

#: How long the API server waits for an answer: ``?timeout=10s`` of each review.
_WAITS: Final = re.compile(r"([0-9]{1,6})(ms|s)", re.ASCII)

_decoder = msgspec.json.Decoder()

#: Answers a review.
Judge = Callable[[Review], Review]


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where to listen. Port 0 takes a free one."""

    host: str = "0.0.0.0"  # noqa: S104 - a webhook in a pod is reached by the pod's address
    port: int = 9443
    #: How long to go on serving, not ready, after being told to stop: longer than it takes endpoints to be removed.
    drain_s: float = 10.0
    limits: Limits = Limits()


class WebhookServer:
    """Serves one PodAdmission and one ObjectAdmission.

    ``is_ready`` says whether what it depends on is there yet, beside the certificate.
    """

    def __init__(
        self,
        admission: PodAdmission,
        endpoint: Endpoint,
        shown: Shown,
        *,
        is_ready: Callable[[], bool],
        emit: EventSink[ReviewAnswered] = ignore,
        objects: ObjectAdmission | None = None,
    ) -> None:
        self._emit = emit
        self._admission = admission
        self._objects = objects or ObjectAdmission()
        self._endpoint = endpoint
        self._shown = shown
        self._is_ready = is_ready
        self._draining = False
        #: Connections of which a request is being read.
        self._asking: set[object] = set()
        #: One review is judged at a time, and between two of them everything else is served.
        self._turn = anyio.Lock()
        self._stop = anyio.Event()
        #: Set when ``run`` has ended.
        self.stopped = anyio.Event()

    def stop(self) -> None:
        """Begin to drain: not ready any more, still answering; ``run`` ends after ``drain_s``."""
        self._draining = True
        self._stop.set()

    async def run(self, *, task_status: TaskStatus[int] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until ``stop``, or until cancelled (then without draining). Reports the port once it listens.

        Raises ssl.SSLError or OSError when the first certificate can't be read or the port can't be had.
        """
        await self._shown.begin()
        runner = web.AppRunner(
            self.app(),
            access_log=None,
            logger=SERVER_LOG,
            keepalive_timeout=_KEEP_ALIVE_S,
            lingering_time=_LINGER_S,
            shutdown_timeout=self._endpoint.drain_s,
        )
        await runner.setup()
        try:
            limits = self._endpoint.limits
            with listen(self._endpoint.host, self._endpoint.port, limits) as listening:
                entrance = Entrance(
                    listening,
                    lambda: self._shown.context,
                    _serving(runner),
                    limits=limits,
                    is_asking=self._asking.__contains__,
                )
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._shown.run)
                    tasks.start_soon(entrance.run)
                    task_status.started(listening.getsockname()[1])
                    await self._stop.wait()
                    await anyio.sleep(self._endpoint.drain_s)
                    tasks.cancel_scope.cancel()
        finally:
            with anyio.move_on_after(self._endpoint.drain_s + 1, shield=True):
                await _close(runner)
            self.stopped.set()

    def app(self) -> web.Application:
        """Return the routes."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_post(ADOPT_PATH, self._adopt)
        app.router.add_post(MUTATE_PATH, self._mutate)
        app.router.add_post(VALIDATE_PATH, self._validate)
        app.router.add_post(QUEUE_PATH, self._queue)
        app.router.add_post(POD_GROUP_PATH, self._pod_group)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        LogLevel().add_to(app)
        return app

    async def _adopt(self, request: web.Request) -> web.Response:
        return await self._answer(request, "adopt", _at_once(self._admission.adopting))

    async def _mutate(self, request: web.Request) -> web.Response:
        return await self._answer(request, "mutate", _at_once(self._admission.mutating))

    async def _validate(self, request: web.Request) -> web.Response:
        return await self._answer(request, "validate", _at_once(self._admission.validating))

    async def _queue(self, request: web.Request) -> web.Response:
        return await self._answer(request, "queue", self._objects.knowing_queues)

    async def _pod_group(self, request: web.Request) -> web.Response:
        return await self._answer(request, "podgroup", _at_once(self._objects.of_group))

    async def _answer(
        self, request: web.Request, webhook: str, prepare: Callable[[], Awaitable[Judge]]
    ) -> web.Response:
        answer = await self._judged(request, webhook, prepare)
        if self._draining:
            # The API server would send its next review on this connection, maybe in the moment in which it is closed.
            answer.force_close()
        return answer

    async def _judged(
        self, request: web.Request, webhook: str, prepare: Callable[[], Awaitable[Judge]]
    ) -> web.Response:
        """Judge the review in the body, after what it needs was prepared.

        What can't be read is answered with 400, so the API server fails closed.
        """
        began = anyio.current_time()
        answered = Answered.FAILED
        try:
            body = await self._body(request)
            judge = await prepare()
            async with self._turn:
                await _is_waited_for(request, began)
                answer = judge(_decoder.decode(body))
            answered = answered_by(answer)
        except (msgspec.DecodeError, UnicodeError, RecursionError, MalformedReview) as error:
            answered = Answered.MALFORMED
            log.warning("malformed review: %s", error)
            return web.Response(status=400, text=f"malformed review: {error}")
        except (ConnectionResetError, TimeoutError):
            # The client gave up on its review or in the middle of it, or has sent too little: nobody reads this.
            late = web.Response(status=408)
            late.force_close()
            return late
        finally:
            self._emit(ReviewAnswered(webhook, answered, anyio.current_time() - began))
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

    async def _body(self, request: web.Request) -> bytes:
        """Read all of it. Raises TimeoutError when it does not come."""
        self._asking.add(request.protocol)
        try:
            with anyio.fail_after(self._endpoint.limits.body_s):
                return await request.read()
        finally:
            self._asking.discard(request.protocol)

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _readyz(self, _: web.Request) -> web.Response:
        if self._draining:
            return web.Response(status=503, text="draining")
        if not self._is_ready():
            return web.Response(status=503, text="namespaces are not known yet")
        if unready := self._shown.unready():
            return web.Response(status=503, text=unready)
        return web.Response(text="ok")


def _at_once(judge: Judge) -> Callable[[], Awaitable[Judge]]:
    """For reviews that need nothing but themselves."""

    async def prepared() -> Judge:
        return judge

    return prepared


async def _is_waited_for(request: web.Request, began: float) -> None:
    """Let others have their turn of the event loop. Raises TimeoutError if nobody waits for this one then."""
    await anyio.lowlevel.checkpoint()
    if _has_given_up(request, waited_s=anyio.current_time() - began):
        raise TimeoutError


def _has_given_up(request: web.Request, *, waited_s: float) -> bool:
    """Whether nobody waits for the answer: the connection is closed, or the time that the caller named is over."""
    if request.transport is None or request.transport.is_closing():
        return True
    named = _WAITS.fullmatch(request.query.get("timeout", ""))
    return named is not None and waited_s * (1000 if named[2] == "ms" else 1) >= int(named[1])


def _serving(runner: web.AppRunner) -> web.Server:
    """What serves the connections of a runner that is set up."""
    if runner.server is None:
        raise ValueError("the runner is not set up")
    return runner.server


async def _close(runner: web.AppRunner) -> None:
    """End all connections and wait until they are gone: TLS says goodbye, which takes the peer's answer."""
    handlers = _serving(runner).connections
    sockets = [handler.transport.get_extra_info("socket") for handler in handlers if handler.transport is not None]
    await runner.cleanup()
    while any(socket.fileno() != -1 for socket in sockets):  # noqa: ASYNC110 - asyncio has no event for it
        await anyio.sleep(_LOOK_AGAIN_S)
