"""Feeds Queues: their specs to the core, and what they show to the writer of their status."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.core.convert.queues import queue_record
from scheduler.core.model.quota import QueueRecord
from scheduler.watch.cache import Cache, QueueShown
from scheduler.watch.fact_sink import FactSink
from scheduler.watch.shown import Shown
from wire.crds.queue import Queue

_Kept = tuple[QueueRecord, Shown[QueueShown]]


class QueueSink:
    """Takes each Queue twice: a status that changed makes no decision necessary. Those of other pools are not there."""

    def __init__(self, cache: Cache) -> None:
        self._pool = cache.cluster.settings.pool
        self._facts = FactSink(cache, cache.cluster.queues.records, queue_record)
        self._shown = cache.queues

    def keep(self, obj: Queue) -> _Kept | None:
        """What is kept of a Queue."""
        return (self._facts.keep(obj), shown(obj)) if self._is_here(obj) else None

    def _is_here(self, obj: Queue) -> bool:
        return self._pool is None or self._pool.takes(obj.metadata.labels)

    async def replace(self, kept: Sequence[_Kept | None]) -> None:
        """Take a list: what is not in it is gone."""
        here = [each for each in kept if each is not None]
        await self._facts.replace([record for record, _ in here])
        self._shown.replace({record.name: each for record, each in here})

    def upsert(self, obj: Queue) -> None:
        """Take a Queue."""
        if not self._is_here(obj):
            self.delete(obj)
            return
        self._facts.upsert(obj)
        self._shown.note(obj.metadata.name, shown(obj))

    def delete(self, obj: Queue) -> None:
        """Take a Queue's last state."""
        self._facts.delete(obj)
        self._shown.drop(obj.metadata.name)

    def in_step(self, is_in_step: bool) -> None:
        """Take whether changes come in."""
        self._facts.in_step(is_in_step)


def shown(queue: Queue) -> Shown[QueueShown]:
    """What a Queue shows."""
    meta = queue.metadata
    return Shown(meta.uid, meta.resource_version, QueueShown(queue.spec.display_name, queue.status))
