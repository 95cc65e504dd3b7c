"""Keeps what queues used over time (scheduler/core/queues/use_over_time.py), for clusters where it counts.

Each tick adds what queues keep now, and gives the scheduler the result. The record is in a ConfigMap of the scheduler's
namespace, written every five minutes: a new leader continues it, and loses five minutes at most. Without a record, or
with one that can't be read, counting begins from nothing.

Times are of the API server's clock, so it does not matter whether those of two leaders agree.
"""

from __future__ import annotations

import logging
from typing import Final

import anyio

from kube.client.api import Api
from kube.client.clock import Clock
from scheduler.core.queues.use_over_time import (
    UsePeriod,
    UseRecord,
    begun,
    counted,
    counts_written,
    read,
    use_over_time,
    without_gone,
    written,
)
from scheduler.upkeep.queue_use_map import QueueUseMap
from scheduler.watch.cache import Cache
from wire import names

_log: Final = logging.getLogger(__name__)
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
