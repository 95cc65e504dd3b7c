"""Why a pod of the page waits, and what would let it start: the answer of ``moorage explain pod``.

The scheduler answers where it explains; it is asked with the reader's own token. Else the page counts what it has read,
which is a cluster that is followed or a recorded run, and tries changes itself.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.config import Credentials
from kube.client.errors import ApiError
from runtime.options.selection import POD
from runtime.reviews import Remembered, token_of
from runtime.text import BadInput
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.queues.use_over_time import UseOverTime
from scheduler.core.what_if.explanation import with_residents
from ui.explain import explanation, tables
from ui.explain.explanation import Explaining, NoAnswer, NotServed, Whole
from ui.explain.views import Asked, Unanswered
from ui.inspect.reader import allowed
from ui.page.objects import Objects
from ui.page.timeline import Recorded
from ui.page.values import Explanation, Sight, Table
from ui.page.watch import Following
from ui.queues import reader
from ui.queues.count import NOW_NS, Counting, Known
from ui.queues.pools import About, EvictionsRead, Found, digested
from ui.tables import Sheet
from wire.core import Pod, PriorityClass
from wire.rfc3339 import rfc3339
from wire.units import SECOND_NS

#: The page tries changes for this time at most; what was found by then is the answer.
MOST_S: Final = 4.0
#: An answer of the page is given again, and what was counted is used again, for this time.
HOLDS_S: Final = 4.0
#: What was counted is used for this many times as long as counting took: so counting takes a fifth of the time at most.
_HOLDS_TIMES: Final = 4
_MOST_ANSWERS: Final = 32
#: Questions that are answered or wait, in all and of one user; more are refused.
MOST_QUESTIONS: Final = 16
MOST_OF_ONE_USER: Final = 4
_BY_SCHEDULER: Final = "the scheduler, from its own state"
_BY_PAGE: Final = "this page, from what it has read"
#: No answer of the page rests on these.
#: The page keeps less of pods than a scheduler (``objects.kept``), and reads no ResourceClaims.
NOT_KEPT: Final = "volumes and ResourceClaims of pods, and affinity of pods without GPUs: the page does not keep them"


class Listed(Found[Pod], frozen=True, kw_only=True):
    """Objects as they were at one moment, ``wall_s``. They are never changed, so another thread may count them."""

    wall_s: int


def listed(
    objects: Objects,
    wall_s: int,
    *,
    records: Mapping[str, EvictionsRead] | None = None,
    used: Mapping[str, UseOverTime] | None = None,
    classes: Sequence[PriorityClass] | None = None,
    unread: Sequence[str] = (),
) -> Listed:
    """List what the page has. ``wall_s``: the time of it."""
    return Listed(
        wall_s=wall_s,
        nodes=tuple(objects.nodes.values()),
        pods=tuple(objects.pods.values()),
        groups=tuple(objects.groups.values()),
        requests=tuple(objects.requests.values()),
        queues=tuple(objects.queues.values()),
        records=records or {},
        used=used or {},
        priority_classes=classes,
        unread=(*unread, NOT_KEPT),
    )


def counted(there: Listed, about: About | None = None) -> Known:
    """Count it, for the scheduler that decides on an object. The time grows with the number of pods."""
    counting = Counting(may_preempt=bool(there.records), about=about)
    return counting.count(digested(there, counting.read_pod))


#: Lists what there is to count: at this moment of a recorded run, None: now. Raises Unanswered where that says nothing.
Reads = Callable[[int | None], Awaitable[Listed]]
#: Asks a scheduler, with the reader's ``Authorization``. Raises NoAnswer, and BadInput for what it refuses.
Asks = Callable[[str, Asked], Awaitable[Whole]]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question: the pod, the reader, and what the reader may see. ``authorization``: as the reader sent it.

    ``at_ms``: the moment of a recorded run.
    """

    namespace: str
    name: str
    sight: Sight
    user: str = ""
    authorization: str = ""
    at_ms: int | None = None

    def asked(self) -> Asked:
        """Return it as the scheduler takes it."""
        return Asked(kind=POD, namespace=self.namespace, name=self.name, sees_others=self.sight.namespaces is None)


class PageExplains:
    """``asks``: None where there is no scheduler to ask.

    It counts in a thread, so that the page goes on, one question at a time, and at most a part of the time.
    """

    def __init__(self, reads: Reads, *, clock: Clock, asks: Asks | None = None) -> None:
        self._reads = reads
        self._clock = clock
        self._asks = asks
        self._turn = anyio.Lock()
        self._kept: _Kept | None = None
        self._answers: Remembered[_Answer | Unanswered] = Remembered(holds_s=HOLDS_S, most=_MOST_ANSWERS)
        #: Questions under way, by user.
        self._open: Counter[str] = Counter()

    async def explain(self, question: Question) -> Explanation:
        """Explain a pod. Raises Unanswered."""
        with self._one_more(question.user):
            whole, why = await self._by_scheduler(question)
            if whole is not None:
                return _explanation(_Answer(whole, self._clock.now_ns() // SECOND_NS), by=_BY_SCHEDULER, why="")
            return _explanation(await self._by_page(question), by=_BY_PAGE, why=why)

    @contextmanager
    def _one_more(self, user: str) -> Iterator[None]:
        if self._open.total() >= MOST_QUESTIONS or (user and self._open[user] >= MOST_OF_ONE_USER):
            raise Unanswered(503, "too many questions at one time")
        self._open[user] += 1
        try:
            yield
        finally:
            self._open[user] -= 1
            self._open += Counter()  # users without a question are forgotten

    async def _by_scheduler(self, question: Question) -> tuple[Whole | None, str]:
        """Its answer; or None, and why there is none."""
        if self._asks is None:
            return None, ""
        try:
            return await self._asks(question.authorization, question.asked()), ""
        except NotServed:
            return None, ""
        except NoAnswer as error:
            return None, str(error)
        except BadInput as error:
            raise Unanswered(404, str(error)) from error

    async def _by_page(self, question: Question) -> _Answer:
        asked = question.asked()
        key = f"{question.at_ms}/{msgspec.json.encode(asked).decode()}"
        answer = await self._answers.get(key, lambda: self._explained(asked, question.at_ms))
        if isinstance(answer, Unanswered):
            raise Unanswered(answer.status, answer.why)
        return answer if question.sight.queues else _without_queues(answer)

    async def _explained(self, asked: Asked, at_ms: int | None) -> _Answer | Unanswered:
        async with self._turn:
            try:
                kept = await self._counted(asked, at_ms)
                whole = await anyio.to_thread.run_sync(explained, kept.known, asked, kept.wall_s)
            except Unanswered as refused:
                return refused
        return _Answer(whole, kept.wall_s)

    async def _counted(self, asked: Asked, at_ms: int | None) -> _Kept:
        """What was counted not long ago for the same scheduler, or what there is now."""
        kept, about = self._kept, About(kind=asked.kind, namespace=asked.namespace, name=asked.name)
        is_old = kept is None or kept.at_ms != at_ms or anyio.current_time() >= kept.until
        if kept is None or is_old or not kept.known.is_for(about):
            self._kept = None
            there = await self._reads(at_ms)
            known, took_s = await anyio.to_thread.run_sync(_timed, there, about)
            until = anyio.current_time() + max(HOLDS_S, _HOLDS_TIMES * took_s)
            kept = self._kept = _Kept(known, there.wall_s, at_ms, until)
        return kept


class _Kept(msgspec.Struct, frozen=True):
    """What was counted, and until when it is used."""

    known: Known
    wall_s: int
    at_ms: int | None
    until: float


class _Answer(msgspec.Struct, frozen=True):
    """An answer, and the time of what it rests on."""

    whole: Whole
    wall_s: int


def _timed(there: Listed, about: About) -> tuple[Known, float]:
    """Count it; also how long that took."""
    began = time.monotonic()
    return counted(there, about), time.monotonic() - began


class _Still:
    """A cluster that stays as it was read."""

    generation: Final = 0

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def snapshot(self) -> Snapshot:
        return self._snapshot


def explained(known: Known, asked: Asked, wall_s: int, *, most_s: float = MOST_S) -> Whole:
    """Explain a pod from what was counted, within a time. Raises Unanswered."""
    until = time.monotonic() + most_s
    snapshot = with_residents(known.snapshot, now_ns=NOW_NS, wall_s=wall_s)
    found = Explaining(_Still(snapshot), asked, now_ns=lambda: NOW_NS)
    found.explain_now(wall_s, is_settled=False)
    while found.is_open and time.monotonic() < until:
        found.go_on(wall_s, is_settled=False)
    left_out = (found.left_out,) if found.left_out else ()
    return Whole(group=found.view(), unread=(*known.unread, *found.not_looked_at, *left_out))


def _without_queues(answer: _Answer) -> _Answer:
    group = msgspec.structs.replace(answer.whole.group, queues=())
    return _Answer(msgspec.structs.replace(answer.whole, group=group), answer.wall_s)


def _explanation(answer: _Answer, *, by: str, why: str) -> Explanation:
    whole = answer.whole
    return Explanation(
        by=by,
        not_by_scheduler=why,
        at=rfc3339(answer.wall_s * SECOND_NS),
        tables=tuple(map(_table, tables.group_sheets(whole.group))),
        unread=whole.unread,
    )


def _table(sheet: Sheet) -> Table:
    return Table(
        title=sheet.title,
        columns=tuple(sheet.columns),
        rows=tuple(tuple(cell.text for cell in row) for row in sheet.rows),
    )


_NOT_IN_RUNS: Final = (
    "configmaps (the record of evictions, and what queues used over time): a recorded run does not hold them"
)


def scheduler(credentials: Credentials, *, signs_in: bool) -> Asks:
    """Ask the scheduler: with the reader's token where readers sign in, else as the owner of these credentials."""

    async def ask(authorization: str, asked: Asked) -> Whole:
        return await explanation.passed_on(_of_reader(credentials, authorization) if signs_in else credentials, asked)

    return ask


def _of_reader(credentials: Credentials, authorization: str) -> Credentials:
    """The same API server, for the owner of a token and nobody else."""

    async def shown() -> str:
        return f"Bearer {token_of(authorization)}"

    return Credentials(
        server=credentials.server,
        ca_file=credentials.ca_file,
        ca_data=credentials.ca_data,
        verify=credentials.verify,
        tls_server_name=credentials.tls_server_name,
        proxy=credentials.proxy,
        authorization=shown,
    )


def cluster(api: Api, objects: Objects, following: Following, clock: Clock) -> Reads:
    """List what is followed, and read what only explanations need."""

    async def read(_: int | None) -> Listed:
        if objects.namespaces is not None:
            raise Unanswered(409, "not all pods are read here (-n), so nothing true can be said; ask: moorage explain")
        wall_s = clock.now_ns() // SECOND_NS
        unread: list[str] = []
        records, used, classes = await _read(api, objects, wall_s, unread)
        unread += following.troubles()
        return listed(objects, wall_s, records=records, used=used, classes=classes, unread=unread)

    return read


async def _read(
    api: Api, objects: Objects, wall_s: int, unread: list[str]
) -> tuple[dict[str, EvictionsRead], dict[str, UseOverTime], Sequence[PriorityClass] | None]:
    """Read the records of evictions, what queues used over time, and PriorityClasses. Raises Unanswered."""
    records: dict[str, EvictionsRead] = {}
    used: dict[str, UseOverTime] = {}

    async def read_evictions() -> None:
        records.update(await reader.evictions(api, tuple(objects.queues.values()), wall_s, unread))

    async def read_use() -> None:
        used.update(await reader.use_over_time(api, tuple(objects.queues.values())))

    try:
        await allowed(read_evictions, "configmaps (the record of evictions)", unread)
        await allowed(read_use, "configmaps (what queues used over time, if that counts)", unread)
        return records, used, await reader.priority_classes(api)
    except ApiError as error:
        raise Unanswered(503, f"the API server can't be asked for the record of evictions: {error}") from error


def run(recorded: Recorded) -> Reads:
    """List what a recorded run had at a moment. Raises FileChanged."""

    async def read(at_ms: int | None) -> Listed:
        wanted_ms = at_ms or 0
        async with recorded.at(wanted_ms, wanted_ms) as moment:
            wall_s = (recorded.began_ms + moment.at_ms) // 1000
            return listed(moment.frames.objects, wall_s, unread=(*recorded.troubles(), _NOT_IN_RUNS))

    return read
