"""The explanations of a scheduler over HTTP: ``GET /explain/pod|podgroup/NAMESPACE/NAME?what-if=...``.

The API server's service proxy takes the header Authorization away when it passes a request on, so the token comes in a
header of ours. The number of questions that wait is bounded, in all and of each user; an answer holds for seconds.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import msgspec
from aiohttp import web

from cli.explaining.asking import TOKEN_HEADER
from cli.explaining.observing import Observer, Outcome
from cli.explaining.questions import KINDS, Asked, Unanswered
from cli.explaining.rights import Rights
from cli.explaining.supposing import Whole
from cli.remembering import Remembered
from kube.client.errors import ApiError
from scheduler.core.what_if.edit_text import MOST_CHARACTERS

_log: Final = logging.getLogger(__name__)

#: Changes that are supposed together.
MOST_EDITS: Final = 8
#: Questions that are answered or wait, in all and of one user; more are refused.
MOST_QUESTIONS: Final = 16
MOST_OF_ONE_USER: Final = 4
#: For this time an answer is given again, and this many are remembered.
HOLDS_S: Final = 2.0
_MOST_ANSWERS: Final = 64
#: Names of objects are no longer.
_LONGEST_NAME: Final = 253
#: Nobody has anything to send.
_LARGEST_BODY_BYTES: Final = 1024
_RETRY_AFTER_S: Final = 2

Explain = Callable[[Asked], Awaitable[Whole]]


class Answering:
    """``explain`` answers a question once ``is_in_step``; before that the scheduler has not read the cluster."""

    def __init__(self, explain: Explain, rights: Rights, observer: Observer | None = None) -> None:
        self._observer = observer or Observer()
        self._explain = explain
        self._rights = rights
        self._answers: Remembered[bytes | Unanswered] = Remembered(holds_s=HOLDS_S, most=_MOST_ANSWERS)
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
            self._observer.asked(outcome, anyio.current_time() - began)
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
