"""Records what queues used over time (scheduler/core/queues/use_over_time.py), counted here or read from a Prometheus.

Decisions never wait for an answer. The record is in a ConfigMap of the scheduler's namespace, written every five
minutes: a new leader continues it, and programs show it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from fractions import Fraction
from typing import Final, NamedTuple

import aiohttp
import anyio
import msgspec

from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.errors import ApiError, Forbidden, NotFound
from kube.client.resources import CONFIG_MAPS
from kube.client.retry import until_answered
from scheduler.core.model.settings import NodePool, own_name
from scheduler.core.queues.use_over_time import (
    Ppb,
    Source,
    UseOverTime,
    UsePeriod,
    UseRecord,
    begun,
    counted,
    counts_written,
    read,
    read_counts,
    use_over_time,
    window_began_s,
    without_gone,
    written,
)
from scheduler.settings import Asked, UseSource
from scheduler.watch.cache import Cache
from wire import names
from wire.units import SECOND_NS

#: What 10,000 queues take is a tenth of that.
MOST_BYTES: Final = 16 << 20
_MOST_BYTES_OF_ERROR: Final = 4096
_SHOWN: Final = 200


class NoAnswer(Exception):
    """Raised when there is no answer; says why, in one line."""


class Prometheus:
    """One server. Use it inside ``asking`` only."""

    def __init__(self, session: aiohttp.ClientSession, source: UseSource) -> None:
        self._session = session
        self._url = f"{source.url.rstrip('/')}/api/v1/query"
        self._timeout_s = source.timeout_s

    async def ask(self, query: str, at_s: int) -> bytes:
        """The answer to an instant query, as of a time in seconds since the epoch. Raises NoAnswer."""
        form = {"query": query, "time": str(at_s), "timeout": f"{self._timeout_s:g}s"}
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._session.post(self._url, data=form, allow_redirects=False) as response,
            ):
                if response.status != 200:
                    raise NoAnswer(await _refusal(response))
                return await _bounded(response, MOST_BYTES)
        except TimeoutError as error:
            raise NoAnswer(f"no answer within {self._timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswer(_in_one_line(str(error) or type(error).__name__)) from error


@asynccontextmanager
async def asking(source: UseSource) -> AsyncIterator[Prometheus]:
    """A Prometheus that can be asked."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=1),
        headers={"User-Agent": "moorage", "Accept": "application/json", "Accept-Encoding": "identity"},
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(),
        trust_env=False,
        auto_decompress=False,
    ) as session:
        yield Prometheus(session, source)


async def _refusal(response: aiohttp.ClientResponse) -> str:
    """What a server says that refuses; Prometheus says it in JSON."""
    body = await response.content.read(_MOST_BYTES_OF_ERROR)
    try:
        said = msgspec.json.decode(body, type=_Refusal).error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        said = ""
    return _in_one_line(f"HTTP {response.status} {said or response.reason or ''}".rstrip())


class _Refusal(msgspec.Struct):
    error: str = ""


async def _bounded(response: aiohttp.ClientResponse, most: int) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > most:
            raise NoAnswer(f"the answer is larger than {most >> 20} MiB")
    return bytes(body)


def _in_one_line(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)[:_SHOWN]


_QUEUE_LABEL: Final = "queue_name"
_PPB: Final = 10**9


class Queries(NamedTuple):
    """Of one dimension, in PromQL."""

    allocated: str
    capacity: str


#: In the order of ``Resources``. Both of a dimension are in one unit: cores, bytes, GPUs.
_SERIES: Final = (
    Queries("kai_queue_allocated_cpu_cores", 'kube_node_status_capacity{resource="cpu"}'),
    Queries("kai_queue_allocated_memory_bytes", 'kube_node_status_capacity{resource="memory"}'),
    Queries("kai_queue_allocated_gpus", 'kube_node_status_capacity{resource="nvidia_com_gpu"}'),
)


class Malformed(Exception):
    """Raised when an answer can't be used; says why."""


def queries(period: UsePeriod, resolution_s: int, now_s: int) -> tuple[Queries, ...]:
    """What to ask about each dimension. ``resolution_s``: between two samples that are summed.

    The queries are KAI's, bounded in time and size: what was allocated to each queue, summed over the window, and what
    the cluster had, likewise. The allocation is the largest of equal series, since two scrapes of one scheduler, or two
    schedulers, may report the same. A Prometheus may scrape others that report such series, so the queries leave out
    NaN and values below 0; ``sums`` reads no other names, and no queue used more than the cluster had.
    """
    window_s = max(resolution_s, now_s - window_began_s(period, now_s))
    fading = f" * 0.5 ^ (({now_s} - time()) / {period.half_life_s})" if period.half_life_s else ""

    def summed(expression: str) -> str:
        return f"sum_over_time(({expression}{fading})[{window_s}s:{resolution_s}s])"

    return tuple(
        Queries(summed(f"max by ({_QUEUE_LABEL}) ({of.allocated} >= 0)"), summed(f"sum({of.capacity} >= 0)"))
        for of in _SERIES
    )


class Sums(NamedTuple):
    """The answers about one dimension. ``capacity`` None: Prometheus knows of none."""

    allocated: Mapping[str, Fraction]
    capacity: Fraction | None


class _Labels(msgspec.Struct, frozen=True, gc=False):
    queue: str = msgspec.field(default="", name=_QUEUE_LABEL)


class _Sample(msgspec.Struct, frozen=True, gc=False):
    metric: _Labels
    value: tuple[float, str]


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str
    result: msgspec.Raw = msgspec.Raw(b"[]")


class _Answer(msgspec.Struct, frozen=True):
    status: str
    error: str = ""
    data: _Data | None = None


def sums(allocated: bytes, capacity: bytes, names: Collection[str]) -> Sums:
    """Read two answers, of what is allocated those of queues of these names. Raises Malformed."""
    of = {each.metric.queue: _amount(each) for each in _vector(allocated) if each.metric.queue in names}
    all_of_it = [_amount(sample) for sample in _vector(capacity)]
    return Sums(of, sum(all_of_it, Fraction()) if all_of_it else None)


def _vector(answer: bytes) -> list[_Sample]:
    try:
        read = msgspec.json.decode(answer, type=_Answer)
        if read.status != "success" or read.data is None:
            raise Malformed(read.error[:_SHOWN] or f"status is {read.status[:_SHOWN]!r}; it must be 'success'")
        if read.data.result_type != "vector":
            raise Malformed(f"resultType is {read.data.result_type[:_SHOWN]!r}; it must be 'vector'")
        return msgspec.json.decode(read.data.result, type=list[_Sample])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"no answer of Prometheus: {str(error)[:_SHOWN]}") from error


def _amount(sample: _Sample) -> Fraction:
    try:
        value = float(sample.value[1])
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise Malformed(f"value is {sample.value[1][:_SHOWN]!r}; it must be a number, 0 or more")
    return Fraction(min(value, sys.float_info.max))


def used(answers: Sequence[Sums], period: UsePeriod, names: Collection[str]) -> UseOverTime:
    """The part of the cluster that each of these queues used, those below it included. Raises Malformed."""
    for of, series in zip(answers, _SERIES, strict=True):
        if of.capacity is None and any(of.allocated.values()):
            raise Malformed(f"there is {series.allocated}, and no {series.capacity}")
    if all(of.capacity is None for of in answers):
        raise Malformed("there is no kube_node_status_capacity (of kube-state-metrics)")
    found = {name: _part(answers, name) for name in names if any(name in of.allocated for of in answers)}
    return UseOverTime(of=found, weight_milli=period.weight_milli, source=Source.PROMETHEUS)


def _part(answers: Sequence[Sums], name: str) -> Ppb:
    cpu, mem, gpu = (
        min(_PPB, math.floor(of.allocated.get(name, Fraction()) * _PPB / of.capacity)) if of.capacity else 0
        for of in answers
    )
    return cpu, mem, gpu


_log: Final = logging.getLogger(__name__)


class QueueUseMap:
    """Reads and writes it, in the scheduler's namespace."""

    def __init__(self, api: Api, pool: NodePool | None) -> None:
        self._api = api
        self.name = own_name(names.QUEUE_USE, pool)

    async def read(self) -> Mapping[str, str]:
        """What is kept; nothing if there is none, or it may not be read."""
        return await until_answered(self._read)

    async def _read(self) -> Mapping[str, str]:
        try:
            found = await self._api.get(CONFIG_MAPS, self.name, namespace=names.SYSTEM_NAMESPACE)
        except NotFound:
            return {}
        except Forbidden as error:
            _log.error("use of queues over time is counted from now on, as the record may not be read: %s", error)
            return {}
        return found.data or {}

    async def write(self, data: Mapping[str, str]) -> bool:
        """Write these keys; return whether they are written. If not, the caller tries again later."""
        try:
            try:
                await self._api.patch(CONFIG_MAPS, self.name, {"data": data}, namespace=names.SYSTEM_NAMESPACE)
            except NotFound:
                new = {"metadata": {"name": self.name}, "data": data}
                await self._api.create(CONFIG_MAPS, new, namespace=names.SYSTEM_NAMESPACE)
        except ApiError as error:
            _log.warning("use of queues was not written to ConfigMap %s, again later: %s", self.name, error)
            return False
        return True


#: Key of the record in its ConfigMap.
_KEY: Final = "use"
_BETWEEN_WRITES_S: Final = 300


class QueueUse:
    """Counts and keeps the use of queues over time: each tick adds what they use now. ``clock``: the API server's."""

    def __init__(self, api: Api, cache: Cache, *, clock: Clock, period: UsePeriod) -> None:
        self._map = QueueUseMap(api, cache.cluster.settings.pool)
        self._cache = cache
        self._clock = clock
        self._period = period

    async def run(self) -> None:
        """Count until cancelled."""
        record = await self._kept()
        kept_s = record.at_s
        while True:
            record = self._counted(record)
            if abs(record.at_s - kept_s) >= _BETWEEN_WRITES_S and await self._is_kept(record):
                kept_s = record.at_s
            await anyio.sleep(self._period.tick_s)

    def _now_s(self) -> int:
        return self._clock.now_ns() // SECOND_NS

    def _counted(self, record: UseRecord) -> UseRecord:
        """The record with the use since the last tick; the scheduler goes by it from now on."""
        cluster = self._cache.cluster
        cluster.refresh()
        cluster.count_queues()
        queues = cluster.queues
        record = counted(record, self._period, self._now_s(), kept=queues.kept(), capacity=queues.capacity)
        if queues.records.is_current:
            record = without_gone(record, {queue.name for queue in queues.records.all()})
        queues.note_use_over_time(use_over_time(record, self._period))
        return record

    async def _kept(self) -> UseRecord:
        """The record of the leader before, or one of nothing."""
        text = (await self._map.read()).get(_KEY)
        if text is None:
            return begun(self._period, self._now_s())
        record = read(text)
        if isinstance(record, str):
            _log.warning("ConfigMap %s: %s: %s; use of queues is counted from now on", self._map.name, _KEY, record)
            return begun(self._period, self._now_s())
        return record

    async def _is_kept(self, record: UseRecord) -> bool:
        """Write the record; return whether it is written. If not, the next tick tries again."""
        counts = counts_written(use_over_time(record, self._period))
        return await self._map.write({_KEY: written(record), names.QUEUE_USE_COUNTS: counts})


#: Key of the time of the last answer, in seconds since the epoch.
_ANSWERED: Final = "answered"


class AskedUse:
    """Asks a Prometheus for the use of queues over time, every ``fetch_s`` (as in KAI). ``clock``: the API server's.

    An answer counts until it is older than ``staleness_period_s``. Then use counts for no queue, and ``explain queue``
    says so.
    """

    def __init__(self, api: Api, cache: Cache, *, clock: Clock, period: UsePeriod, source: UseSource) -> None:
        self._map = QueueUseMap(api, cache.cluster.settings.pool)
        self._cache = cache
        self._clock = clock
        self._period = period
        self._source = source
        #: When Prometheus answered last, in seconds since the epoch; 0: never.
        self._answered_s = 0
        self._said = ""
        self._kept = ""
        self._kept_s = 0

    async def run(self) -> None:
        """Ask until cancelled."""
        await self._go_on()
        async with (self._source.asking or asking)(self._source) as prometheus:
            while True:
                await self._look(prometheus)
                await self._keep()
                await self._pause()

    async def _pause(self) -> None:
        """Wait until Prometheus is asked again; what it said may become stale before that."""
        pause_s, stale_in_s = (
            self._source.fetch_s,
            self._answered_s + self._source.staleness_period_s + 1 - self._now_s(),
        )
        if 0 < stale_in_s < pause_s:
            await anyio.sleep(stale_in_s)
            self._note_if_stale()
            await self._keep()
            pause_s -= stale_in_s
        await anyio.sleep(pause_s)

    def _now_s(self) -> int:
        return self._clock.now_ns() // SECOND_NS

    @property
    def _used(self) -> UseOverTime:
        return self._cache.cluster.queues.used

    async def _go_on(self) -> None:
        """Go by what the leader before was told, unless that is out of date."""
        kept = await self._map.read()
        counts, answered = read_counts(kept.get(names.QUEUE_USE_COUNTS, "")), kept.get(_ANSWERED, "")
        is_time = answered.isascii() and answered.isdigit() and len(answered) <= len(str(self._now_s()))
        answered_s = int(answered) if is_time else 0
        if answered_s <= self._now_s() and not isinstance(counts, str) and counts.source is Source.PROMETHEUS:
            self._answered(msgspec.structs.replace(counts, weight_milli=self._period.weight_milli), answered_s)
        self._note_if_stale()

    def _note(self, found: UseOverTime) -> None:
        self._cache.cluster.queues.note_use_over_time(found)

    def _answered(self, found: UseOverTime, at_s: int) -> None:
        self._answered_s = at_s
        self._note(found)

    def _note_if_stale(self) -> None:
        if self._now_s() - self._answered_s > self._source.staleness_period_s:
            stale = UseOverTime(weight_milli=self._period.weight_milli, source=Source.STALE, since_s=self._answered_s)
            self._note(stale)

    async def _look(self, prometheus: Asked) -> None:
        """Ask once; the scheduler goes by the answer from now on."""
        now_s = self._now_s()
        try:
            found = await self._fetched(prometheus, now_s)
        except (NoAnswer, Malformed) as error:
            self._say(f"Prometheus at {self._source.url} does not say what queues used over time: {error}")
            self._note_if_stale()
            return
        self._say("")
        self._answered(found, now_s)

    async def _fetched(self, prometheus: Asked, now_s: int) -> UseOverTime:
        known = {queue.name for queue in self._cache.cluster.queues.records.all()}
        answers = [
            sums(await prometheus.ask(each.allocated, now_s), await prometheus.ask(each.capacity, now_s), known)
            for each in queries(self._period, self._source.resolution_s, now_s)
        ]
        return used(answers, self._period, known)

    def _say(self, wrong: str) -> None:
        """Log what is wrong, once."""
        if wrong and wrong != self._said:
            _log.warning("%s", wrong)
        elif self._said and not wrong:
            _log.info("Prometheus at %s answers again", self._source.url)
        self._said = wrong

    async def _keep(self) -> None:
        """Write what counts: now and then, and at once where it begins or ceases to count."""
        counts, now_s = counts_written(self._used), self._now_s()
        state = f"{self._used.source} {self._used.since_s}"
        if state == self._kept and now_s - self._kept_s < _BETWEEN_WRITES_S:
            return
        if await self._map.write({names.QUEUE_USE_COUNTS: counts, _ANSWERED: str(self._answered_s)}):
            self._kept, self._kept_s = state, now_s
