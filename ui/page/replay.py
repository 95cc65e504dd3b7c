"""A recorded run over HTTP: its state and the paths of its pods at any moment. All its readers have the same rights."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

import msgspec
from aiohttp import web
from typing_extensions import override

from ui.page.auth import Open
from ui.page.drawing import with_link
from ui.page.explanations import PageExplains, Question
from ui.page.server import HEADERS, Answering, Handler, stated, told
from ui.page.timeline import FileChanged, Recorded
from ui.page.values import State
from ui.page.visibility import EVERYTHING
from ui.page.watch import Publishing

_encode: Final = msgspec.json.Encoder().encode
_LEVEL: Final = 1  # it is asked for several times a second
#: Ms after the beginning, as ``at`` has them. No run is longer.
_MS: Final = re.compile(r"[0-9]{1,12}")


class Opened(Answering):
    """``epoch`` tells this run from others: what a reader knew of another one means nothing here.

    There is no stream: nothing happens in a run but what its reader asks for.
    """

    def __init__(
        self,
        recorded: Recorded,
        *,
        epoch: str,
        source: str,
        speed: float,
        hosts: Collection[str] | None,
        trace_url: str = "",
        explains: PageExplains | None = None,
    ) -> None:
        super().__init__(
            Publishing(epoch), recorded, Open(), source=source, hosts=hosts, trace_url=trace_url, explains=explains
        )
        self._recorded = recorded
        self._epoch = epoch
        self._speed = speed

    @override
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await super()._answer(request, handler)
        except FileChanged as error:
            answer = told(410, str(error))
            answer.headers.update(HEADERS)
            return answer

    @override
    async def _state(self, request: web.Request) -> web.StreamResponse:
        """All of it at the moment ``at``, or what is different there from what the reader knew, ``after``."""
        at_ms = self._at(request)
        if isinstance(at_ms, web.Response):
            return at_ms
        after = request.query.get("after", "")
        epoch, _, known = after.rpartition("-")
        known_ms = int(known) if epoch == self._epoch and _MS.fullmatch(known) else None
        async with self._recorded.at(at_ms, known_ms) as moment:
            is_whole = moment.changes is None
            state = State(
                id=f"{self._epoch}-{moment.at_ms}",
                source=self._source,
                changes=moment.frames.whole() if moment.changes is None else moment.changes,
                run=self._recorded.about(self._speed) if is_whole else None,
                at_ms=moment.at_ms,
                after="" if is_whole else after,
                unread=self._recorded.troubles(),
            )
        return await stated(request, state, level=_LEVEL)

    @override
    async def _pod(self, request: web.Request) -> web.StreamResponse:
        at_ms = self._at(request)
        if isinstance(at_ms, web.Response):
            return at_ms
        async with self._recorded.at(at_ms, at_ms) as moment:
            path = moment.frames.path(request.match_info["namespace"], request.match_info["name"])
        if path is None:
            return told(404, "there is no such pod at that moment")
        return web.Response(body=_encode(with_link(path, self._trace_url)), content_type="application/json")

    @override
    async def _explain(self, request: web.Request) -> web.StreamResponse:
        at_ms = self._at(request)
        if isinstance(at_ms, web.Response):
            return at_ms
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        return await self._explained(Question(namespace=namespace, name=name, sight=EVERYTHING, at_ms=at_ms))

    @override
    async def _changes(self, request: web.Request) -> web.StreamResponse:
        return told(404, "a recorded run is asked for its moments: /api/state?at=MILLISECONDS")

    def _at(self, request: web.Request) -> int | web.Response:
        """The moment that is asked for; without one the first."""
        if not self._recorded.is_in_step:
            return told(503, "the recorded run is being read")
        text = request.query.get("at", str(self._recorded.from_ms))
        if not _MS.fullmatch(text):
            return told(400, "at: allowed is a whole number of milliseconds after the beginning of the run")
        return int(text)
