"""The PodGroup says since when its gang has been below its minimum, so that a restart does not change it.

The annotation and its form are KAI's (``kai.scheduler/stale-podgroup-timestamp``, kai-contract 2.2 and 4.7): it is
written when the gang falls below its minimum, and removed when the gang is whole, has ended or has no pod left.

A process reads it for gangs that were below their minimum when it first looked; from then on it knows better itself.
What somebody else writes is put right. A time in the future, or none that can be read, counts as now. An old one is
believed, as in KAI: a user who may write a PodGroup may as well delete its pods.

Times are of the API server's clock, so it does not matter whether those of two leaders agree. Nothing waits for these
writes: one that fails is repeated, less and less often.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Final

import anyio

from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.errors import ApiError
from kube.client.patience import doubled_s
from kube.client.resources import POD_GROUPS
from kube.watch.signal import Signal
from scheduler.core.model.records import PodGroupRecord
from scheduler.watch.cache import Cache
from wire import names
from wire.rfc3339 import parse_ns, rfc3339

_log: Final = logging.getLogger(__name__)
_S: Final = 1_000_000_000
#: Between two writes on one PodGroup.
_PAUSE_S: Final = 5.0
_LONGEST_PAUSE_S: Final = 1800.0
#: Side by side.
_WRITES: Final = 4
#: The clock is read to the second, and is late by what an answer takes. So what is written is later by this, and no
#: gang is released too early.
_LATE_S: Final = 2.0
#: A stamp that is off by less is right.
_OFF_S: Final = 5.0

Key = tuple[str, str]


class Stamps:
    """Reads and writes since when gangs have been below their minimum. ``clock``: the API server's."""

    def __init__(self, api: Api, cache: Cache, *, clock: Clock) -> None:
        self._api = api
        self._cache = cache
        self._clock = clock
        #: PodGroup -> its state as read, and what its stamp should be; None: it should have none.
        self._wanted: dict[Key, tuple[PodGroupRecord, str | None]] = {}
        #: PodGroup -> (writes that failed in a row, when it may be written again).
        self._paused: dict[Key, tuple[int, float]] = {}
        self._writing: set[Key] = set()
        self._on_wanted = Signal()

    async def run(self) -> None:
        """Write until cancelled."""
        limiter = anyio.CapacityLimiter(_WRITES)
        self._writing.clear()
        async with anyio.create_task_group() as tasks:
            while True:
                for key in [key for key in self._wanted if key not in self._writing]:
                    self._writing.add(key)
                    tasks.start_soon(self._write, key, limiter)
                await self._on_wanted.wait()

    def since(self, group: PodGroupRecord, now: float) -> float:
        """Since when a gang has been below its minimum, by its stamp; ``now`` (event loop's time) at the latest."""
        stamp_ns = parse_ns(group.stale_since)
        if stamp_ns is None:
            return now
        return now - max(0.0, (self._clock.now_ns() - stamp_ns) / _S)

    def is_writing(self, key: Key) -> bool:
        """Whether a stamp of this PodGroup is being written."""
        return key in self._writing

    def put_right(self, since: Mapping[Key, float], now: float) -> None:
        """Have the stamps of all PodGroups say this: since when (event loop's time) each was below its minimum."""
        differing = {(group.namespace, group.name): (group, stamp) for group, stamp in self._differing(since, now)}
        self._paused = {key: told for key, told in self._paused.items() if key in differing or told[1] > now}
        self._wanted = {key: told for key, told in differing.items() if now >= self._paused.get(key, (0, now))[1]}
        if self._wanted:
            self._on_wanted.set()

    def _differing(self, since: Mapping[Key, float], now: float) -> Iterator[tuple[PodGroupRecord, str | None]]:
        for group in self._cache.cluster.pod_groups():
            began = since.get((group.namespace, group.name))
            if began is None:
                if group.stale_since and group.blocker is None:
                    yield group, None
            elif not self._is_right(group, began, now) and not self._is_starting(group, began, now):
                yield group, rfc3339(self._stamp_ns(began, now))

    def _is_right(self, group: PodGroupRecord, since: float, now: float) -> bool:
        written_ns = parse_ns(group.stale_since)
        return written_ns is not None and abs(written_ns - self._stamp_ns(since, now)) < _OFF_S * _S

    def _is_starting(self, group: PodGroupRecord, since: float, now: float) -> bool:
        """Whether a gang may be below its minimum only because its Bindings are seen one after another."""
        return now - since < _PAUSE_S and self._cache.cluster.is_gang_in_flight(group.namespace, group.name)

    def _stamp_ns(self, since: float, now: float) -> int:
        return self._clock.now_ns() - round((now - since - _LATE_S) * _S)

    async def _write(self, key: Key, limiter: anyio.CapacityLimiter) -> None:
        try:
            async with limiter:
                await self._write_once(key)
        finally:
            self._writing.discard(key)

    async def _write_once(self, key: Key) -> None:
        group, stamp = self._wanted.pop(key, (None, None))
        if group is None:
            return
        failures = self._paused.get(key, (0, 0.0))[0] + 1
        try:
            wanted = {"metadata": {"annotations": {names.STALE_SINCE: stamp}}}
            written = await self._api.patch(POD_GROUPS, group.name, wanted, namespace=group.namespace, uid=group.uid)
        except ApiError as error:
            pause_s = doubled_s(_PAUSE_S, failures, longest_s=_LONGEST_PAUSE_S)
            _log.warning("since when gang %s/%s is stale was not written, again in %.0f s: %s", *key, pause_s, error)
        else:
            failures, pause_s = 0, _PAUSE_S
            self._cache.note_pod_group(written)
        self._paused[key] = (failures, anyio.current_time() + pause_s)
