"""Explanations of a running scheduler: ``GET /explain/pod|podgroup/NAMESPACE/NAME?what-if=...`` over HTTPS.

The number of waiting questions is bounded, in all and by user, and an answer is kept for seconds. One question is
computed at a time, for ``MOST_S`` at most, in slices between decisions.
"""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import anyio
import msgspec
from aiohttp import web
from anyio.abc import TaskStatus

from admission.certificates.pair import YEAR_S, serving_certificate
from admission.certificates.tls import load, server_context
from admission.connections import Entrance, Limits
from gpu.node_use import NodeUse, idle_nano_seconds, is_idle
from gpu.reservation import Reservation
from kube.client.api import Api
from kube.client.clock import Clock, monotonic_ns
from kube.client.errors import ApiError
from kube.client.resources import POD_GROUPS, PODS, Resource
from kube.lead.replica import Replica
from kube.serving import running
from kube.telemetry.logevents import EventSink, ignore
from runtime.metrics.scheduler import ExplainEvent, Outcome, QuestionAnswered, SliceTook
from runtime.options.selection import POD
from runtime.reviews import Remembered, Users, may, token_of
from scheduler.app import Scheduler
from scheduler.core.cluster import Cluster
from scheduler.core.what_if.edit_text import MOST_CHARACTERS
from scheduler.watch.secondary import NodeUses
from ui.explain.explanation import TOKEN_HEADER, Explaining, Whole
from ui.explain.views import KINDS, Asked, GroupView, IdleShareView, Unanswered
from ui.inspect.tables import gpus_up
from ui.inspect.use import clock
from wire.api_groups import UserInfo
from wire.units import SECOND_NS

#: Of all time, over long.
SHARE: Final = 0.1
#: Seconds of work that are saved while nobody asks.
BURST_S: Final = 2.0


class Budget:
    """Counts what slices took. ``worked_s``: a clock of this thread's CPU time, which others' load does not move.

    Two slices never follow each other directly, and slices take a tenth of the time over seconds. Unused time is saved
    for ``BURST_S`` seconds of work, which is enough for the first question after a quiet time.
    """

    def __init__(
        self,
        *,
        worked_s: Callable[[], float] = time.thread_time,
        emit: EventSink[ExplainEvent] = ignore,
    ) -> None:
        self._emit = emit
        self._worked_s = worked_s
        self._left_s = BURST_S
        self._counted_at = float("-inf")
        #: When the next slice may begin, by the one before.
        self._next_at = float("-inf")

    def begins_at(self) -> float:
        """Return when the next slice may begin."""
        now = anyio.current_time()
        self._refill(now)
        return max(self._next_at, now if self._left_s > 0 else now - self._left_s / SHARE)

    @contextmanager
    def slice(self) -> Iterator[None]:
        """Count what is done inside; nothing may be awaited there."""
        began_s = self._worked_s()
        self._refill(anyio.current_time())
        try:
            yield
        finally:
            took_s = self._worked_s() - began_s
            self._left_s -= took_s
            self._next_at = anyio.current_time() + took_s
            self._emit(SliceTook(took_s))

    def _refill(self, now: float) -> None:
        if now > self._counted_at > float("-inf"):
            self._left_s = min(BURST_S, self._left_s + (now - self._counted_at) * SHARE)
        self._counted_at = now


#: (now, namespace) -> idle shares.
Idle = Callable[[int, str], tuple[IdleShareView, ...]]

#: A question is worked on for this time at most; what was found by then is the answer.
MOST_S: Final = 8.0
#: The slices of a question wait this long for decisions, in all, and look this often.
_DECISIONS_S: Final = 1.0
_LOOK_S: Final = 0.005
_NOT_LEADING: Final = (
    "this replica of the scheduler does not lead: failed attempts, and pods that are evicted for others, are not known"
)


class Judging:
    """``is_leading``: whether decisions are made here; a replica that follows answers by what it has read.

    ``idle``: idle shares of one namespace, "" for all, at a time; None: nobody follows what agents report.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        clock: Clock,
        is_leading: Callable[[], bool],
        budget: Budget | None = None,
        idle: Idle | None = None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._is_leading = is_leading
        self._budget = budget or Budget()
        self._idle = idle
        self._turn = anyio.Lock()

    async def explain(self, asked: Asked) -> Whole:
        """Explain a group. Raises Unanswered for one that is not there, and for changes that make no sense."""
        found = Explaining(self._cluster, asked)
        async with self._turn:
            until = anyio.current_time() + MOST_S
            patience_s = _DECISIONS_S
            while found.is_open:
                patience_s = await self._slice(until, patience_s)
                with self._budget.slice():
                    if anyio.current_time() < until:
                        found.go_on(self._wall_s(), is_settled=self._is_settled())
                        continue
                    found.explain_now(self._wall_s(), is_settled=self._is_settled())
                break
        left_out = (found.left_out,) if found.left_out else ()
        unread = (*(() if self._is_leading() else (_NOT_LEADING,)), *found.not_looked_at, *left_out)
        return Whole(group=self._with_idle(found.view(), asked), unread=unread)

    def _with_idle(self, view: GroupView, asked: Asked) -> GroupView:
        if self._idle is None or not view.waiting or view.starts:
            return view
        idle = self._idle(self._clock.now_ns(), "" if asked.sees_others else asked.namespace)
        return msgspec.structs.replace(view, idle=idle)

    async def _slice(self, until: float, patience_s: float) -> float:
        """Wait until a slice may begin; return what is left of the patience with decisions."""
        await anyio.sleep_until(min(until, self._budget.begins_at()))
        began = anyio.current_time()
        impatient_at = began + patience_s
        while self._is_leading() and not self._is_settled() and anyio.current_time() < impatient_at:  # noqa: ASYNC110 - time passes, too
            await anyio.sleep(_LOOK_S)
        return impatient_at - anyio.current_time()

    def _is_settled(self) -> bool:
        return self._is_leading() and self._cluster.is_decided(monotonic_ns())

    def _wall_s(self) -> int:
        return self._clock.now_ns() // SECOND_NS


#: For this time an answer of the API server holds.
RIGHTS_HOLD_S: Final = 20.0
#: Answers about what people may do that are remembered, and that are asked for at one time.
_MOST: Final = 1024
_AT_ONE_TIME: Final = 8


class Rights:
    """Asks the API server, with what ``api`` may: create tokenreviews and subjectaccessreviews.

    A TokenReview names the user, a SubjectAccessReview says whether the user may get the object, another one whether
    pods of other namespaces may be named.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._users = Users(api, holds_s=RIGHTS_HOLD_S)
        self._may: Remembered[bool] = Remembered(holds_s=RIGHTS_HOLD_S, most=_MOST)
        self._asking = anyio.CapacityLimiter(_AT_ONE_TIME)

    async def user(self, authorization: str) -> UserInfo:
        """Return the owner of a bearer token. Raises Unanswered, ApiError."""
        token = token_of(authorization)
        user = await self._users.of(token) if token else None
        if user is None:
            why = "the cluster does not know this token" if token else "a bearer token of the cluster is needed"
            raise Unanswered(401, why)
        return user

    async def check(self, user: UserInfo, kind: str, namespace: str, name: str) -> None:
        """Raise Unanswered for a user who may not get the object, ApiError where that can't be asked."""
        resource: Resource[Any] = PODS if kind == POD else POD_GROUPS
        if not await self._is_allowed(user, "get", resource, namespace, name):
            raise Unanswered(403, f"{user.username} may not get {resource.plural} {name} in namespace {namespace}")

    async def sees_others(self, user: UserInfo) -> bool:
        """Return whether a user may list the pods of all namespaces. Raises ApiError."""
        return await self._is_allowed(user, "list", PODS)

    async def _is_allowed(  # noqa: PLR0917 - what Kubernetes' authorization is asked
        self, user: UserInfo, verb: str, resource: Resource[Any], namespace: str = "", name: str = ""
    ) -> bool:
        async def ask() -> bool:
            async with self._asking:
                return await may(self._api, user, verb, resource, namespace, name)

        key = msgspec.json.encode((user, verb, resource.plural, namespace, name)).decode()
        return await self._may.get(key, ask)


_log: Final = logging.getLogger(__name__)

#: Changes that are supposed together.
MOST_EDITS: Final = 8
#: Questions that are answered or wait, in all and of one user; more are refused.
MOST_QUESTIONS: Final = 16
MOST_OF_ONE_USER: Final = 4
#: For this time an answer is given again, and this many are remembered.
ANSWERS_HOLD_S: Final = 2.0
_MOST_ANSWERS: Final = 64
#: Names of objects are no longer.
_LONGEST_NAME: Final = 253
#: Nobody has anything to send.
_LARGEST_BODY_BYTES: Final = 1024
_RETRY_AFTER_S: Final = 2

Explain = Callable[[Asked], Awaitable[Whole]]


class Answering:
    """``explain`` answers a question once ``is_in_step``; before that the scheduler has not read the cluster."""

    def __init__(self, explain: Explain, rights: Rights, emit: EventSink[ExplainEvent] = ignore) -> None:
        self._emit = emit
        self._explain = explain
        self._rights = rights
        self._answers: Remembered[bytes | Unanswered] = Remembered(holds_s=ANSWERS_HOLD_S, most=_MOST_ANSWERS)
        #: Questions under way, by user.
        self._open: Counter[str] = Counter()
        self._busy: set[object] = set()
        self.is_in_step = False

    def is_answering(self, connection: object) -> bool:
        """Whether an answer is made on a connection (aiohttp's protocol of it)."""
        return connection in self._busy

    def app(self) -> web.Application:
        """Return the route."""
        app = web.Application(client_max_size=_LARGEST_BODY_BYTES)
        app.router.add_get("/explain/{kind}/{namespace}/{name}", self._get, allow_head=False)
        return app

    async def _get(self, request: web.Request) -> web.Response:
        self._busy.add(request.protocol)
        began = anyio.current_time()
        try:
            outcome, answer = await self._answered(request)
            self._emit(QuestionAnswered(outcome, anyio.current_time() - began))
            return answer
        finally:
            self._busy.discard(request.protocol)

    async def _answered(self, request: web.Request) -> tuple[Outcome, web.Response]:
        try:
            return Outcome.ANSWERED, _json(200, await self._answer(request))
        except Unanswered as refused:
            return Outcome.BUSY if refused.status == 503 else Outcome.REFUSED, _refusal(refused)
        except ApiError as error:
            _log.warning("what a reader may see can't be asked: %s", error)
            why = Unanswered(503, "the API server can't be asked what you may see")
            return Outcome.FAILED, _refusal(why)

    async def _answer(self, request: web.Request) -> bytes:
        if not self.is_in_step:
            raise Unanswered(503, "the scheduler has not read the cluster yet")
        asked = _asked(request)
        user = await self._rights.user(_authorization(request))
        await self._rights.check(user, asked.kind, asked.namespace, asked.name)
        asked = msgspec.structs.replace(asked, sees_others=await self._rights.sees_others(user))
        if self._open.total() >= MOST_QUESTIONS or self._open[user.username] >= MOST_OF_ONE_USER:
            raise Unanswered(503, "too many questions at one time")
        self._open[user.username] += 1
        try:
            answer = await self._answers.get(msgspec.json.encode(asked).decode(), lambda: self._explained(asked))
        finally:
            self._open[user.username] -= 1
            self._open += Counter()  # users without a question are forgotten
        if isinstance(answer, Unanswered):
            raise Unanswered(answer.status, answer.why)
        return answer

    async def _explained(self, asked: Asked) -> bytes | Unanswered:
        try:
            return msgspec.json.encode(await self._explain(asked))
        except Unanswered as refused:
            return refused


def _authorization(request: web.Request) -> str:
    """The API server's service proxy removes the header Authorization, so the token comes in a header of Moorage's."""
    return request.headers.get(TOKEN_HEADER, "") or request.headers.get("Authorization", "")


def _asked(request: web.Request) -> Asked:
    """Read a question. Raises Unanswered."""
    kind, namespace, name = (request.match_info[part] for part in ("kind", "namespace", "name"))
    lines = (line for text in request.query.getall("what-if", ()) for line in text.split("\n"))
    supposed = tuple(line for line in lines if line.strip())
    if kind not in KINDS:
        raise Unanswered(404, f"explain {kind[:_LONGEST_NAME]}: allowed are {' and '.join(KINDS)}")
    if max(len(namespace), len(name)) > _LONGEST_NAME:
        raise Unanswered(400, f"namespace and name: allowed are {_LONGEST_NAME} characters")
    if len(supposed) > MOST_EDITS:
        raise Unanswered(400, f"what-if: {len(supposed)} are given; allowed are {MOST_EDITS} together")
    if any(len(text) > MOST_CHARACTERS for text in supposed):
        raise Unanswered(400, f"what-if: allowed are {MOST_CHARACTERS} characters")
    return Asked(kind=kind, namespace=namespace, name=name, supposed=supposed)


def _json(status: int, body: bytes) -> web.Response:
    return web.Response(status=status, body=body, content_type="application/json")


def _refusal(refused: Unanswered) -> web.Response:
    answer = _json(refused.status, msgspec.json.encode({"error": refused.why}))
    if refused.status == 503:
        answer.headers["Retry-After"] = str(_RETRY_AFTER_S)
    return answer


#: Idle shares that are named, those that cost most first. A longer list would hide the rest of the answer.
MOST: Final = 10
#: Of its memory and of its multiprocessors (nodeagent/core/enforcement/tenants.py).
_AT_MOST: Final = "5%"


def idle_holders(
    held: Iterable[Reservation], use_on: Callable[[str], NodeUse | None], *, now_ns: int, namespace: str = ""
) -> tuple[IdleShareView, ...]:
    """Return those of one namespace, "" for all; those that have cost most come first.

    They are listed beside a waiting group where reports of working node agents name them (gpu/node_use.py), and are
    never a reason to evict.
    """
    found: list[tuple[int, IdleShareView]] = []
    for each in held:
        use = use_on(each.node) if each.book is not None and each.uuid else None
        if use is None or each.book is None:
            continue
        for uid, entry in each.book.entries.items():
            one = use.tenants.get((uid, each.uuid))
            where, _, name = entry.pod.partition("/")
            if one is None or not is_idle(use, one) or namespace not in {"", where}:
                continue
            message = (
                f"{entry.pod} holds {gpus_up(entry.nano)} of a GPU on node {each.node}, "
                f"and has used {_AT_MOST} of it at most since {clock(one.idle_since, now_ns)}"
            )
            view = IdleShareView(
                namespace=where,
                name=name,
                node=each.node,
                gpu_nano=entry.nano,
                idle_since=one.idle_since,
                message=message,
            )
            found.append((-idle_nano_seconds(entry.nano, one.idle_since, now_ns), view))
    found.sort(key=lambda pair: (pair[0], pair[1].namespace, pair[1].name, pair[1].node))
    return tuple(view for _, view in found[:MOST])


#: Connections that wait or are asked on; the API server keeps some open.
LIMITS: Final = Limits(connections=4 * MOST_QUESTIONS)
#: A certificate lives longer than any process.
_LIFETIME_S: Final = 10 * YEAR_S
_NAME: Final = "moorage-scheduler"


def certified(now_ns: int) -> ssl.SSLContext:
    """Return a context with a new certificate.

    The API server's service proxy verifies no certificate: one is made at each start, for encryption only.
    """
    made = serving_certificate(dns_names=[_NAME], now_ns=now_ns, lifetime_s=_LIFETIME_S)
    context = server_context()
    load(context, made.certificate, made.key)
    return context


def explained(
    replica: Replica,
    scheduler: Scheduler,
    *,
    api: Api,
    listener: socket.socket,
    context: ssl.SSLContext | None,
    emit: EventSink[ExplainEvent] = ignore,
) -> Explained:
    """Return a replica that explains from a scheduler's state at a listening socket."""
    judging = Judging(
        scheduler.cache.cluster,
        clock=api.clock,
        is_leading=lambda: scheduler.state.is_leading,
        budget=Budget(emit=emit),
        idle=None if scheduler.uses is None else _idle(scheduler, scheduler.uses),
    )
    return Explained(replica, Answering(judging.explain, Rights(api.unfenced()), emit), listener, context)


def _idle(scheduler: Scheduler, uses: NodeUses) -> Idle:
    def found(now_ns: int, namespace: str) -> tuple[IdleShareView, ...]:
        held = scheduler.cache.reservations.values() if uses.reports else ()
        return idle_holders(held, uses.use_on, now_ns=now_ns, namespace=namespace)

    return found


class Explained:
    """A replica and what it answers at a listening socket. ``context``: None serves without TLS."""

    def __init__(
        self, replica: Replica, answering: Answering, listener: socket.socket, context: ssl.SSLContext | None
    ) -> None:
        self._replica = replica
        self._answering = answering
        self._listener = listener
        self._context = context

    async def follow(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Follow, and answer."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._serve)
            await tasks.start(self._replica.follow)
            self._answering.is_in_step = True
            task_status.started()

    async def _serve(self) -> None:
        _log.info("explanations are served at %s", self._listener.getsockname())
        async with running(self._answering.app()) as server:
            await Entrance(
                self._listener,
                lambda: self._context,
                server,
                limits=LIMITS,
                is_asking=self._answering.is_answering,
            ).run()

    async def lead(self, *, anew: bool = True) -> None:
        """Work until cancelled."""
        await self._replica.lead(anew=anew)

    async def finish(self) -> None:
        """Begin nothing more; return when what was begun is done."""
        await self._replica.finish()
