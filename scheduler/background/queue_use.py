"""Keeps what queues used over time (scheduler/core/queues/use_over_time.py), counted here or asked of a Prometheus.

Each tick adds what queues keep now, or a Prometheus is asked every ``fetch_s`` (kai-contract 4.11). What it said counts
until it is older than ``stale_s``; then use counts for nobody, and ``explain queue`` says so. Decisions never wait for
an answer. The record is in a ConfigMap of the scheduler's namespace, written every five minutes: a new leader continues
it, and programs show it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import anyio
import msgspec

from kube.client.api import Api
from kube.client.backoff import until_answered
from kube.client.clock import Clock
from kube.client.errors import ApiError, Forbidden, NotFound
from kube.client.resources import CONFIG_MAPS
from scheduler.background.prometheus import Malformed, NoAnswer, asking, queries, sums, used
from scheduler.core.model.settings import NodePool, own_name
from scheduler.core.queues.use_over_time import (
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
    without_gone,
    written,
)
from scheduler.settings import Asked, UseSource
from scheduler.watch.cache import Cache
from wire import names

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


_S: Final = 1_000_000_000
#: Key of the record in its ConfigMap.
_KEY: Final = "use"
_BETWEEN_WRITES_S: Final = 300


class QueueUse:
    """Counts and keeps the use of queues over time. ``clock``: the API server's."""

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
        return self._clock.now_ns() // _S

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
    """Asks for the use of queues over time. ``clock``: the API server's."""

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
        pause_s, stale_in_s = self._source.fetch_s, self._answered_s + self._source.stale_s + 1 - self._now_s()
        if 0 < stale_in_s < pause_s:
            await anyio.sleep(stale_in_s)
            self._note_if_stale()
            await self._keep()
            pause_s -= stale_in_s
        await anyio.sleep(pause_s)

    def _now_s(self) -> int:
        return self._clock.now_ns() // _S

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
            self._answered(msgspec.structs.replace(counts, k_milli=self._period.k_milli), answered_s)
        self._note_if_stale()

    def _note(self, found: UseOverTime) -> None:
        self._cache.cluster.queues.note_use_over_time(found)

    def _answered(self, found: UseOverTime, at_s: int) -> None:
        self._answered_s = at_s
        self._note(found)

    def _note_if_stale(self) -> None:
        if self._now_s() - self._answered_s > self._source.stale_s:
            stale = UseOverTime(k_milli=self._period.k_milli, source=Source.STALE, since_s=self._answered_s)
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
        answers = [
            sums(await prometheus.ask(each.allocated, now_s), await prometheus.ask(each.capacity, now_s))
            for each in queries(self._period, self._source.resolution_s, now_s)
        ]
        known = {queue.name for queue in self._cache.cluster.queues.records.all()}
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
