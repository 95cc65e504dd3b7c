"""Keeps the prices of the strategy ``priced`` up to date with the pods that come (scheduler/core/scores/prices.py).

Pods that come are counted under any strategy, and older ones halved; reports of fragmentation read these counts.
Counts are copied, prices are made from the copy beside the event loop, and the cluster takes them as a value. So a
decision reads prices that stand still, and nothing waits for them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import anyio
import anyio.to_thread

from scheduler.core.model.pod_kind import Kind
from scheduler.core.scores.prices import moved_percent, prices_of, typical_of
from scheduler.settings import PricingSettings
from scheduler.watch.cache import Cache

_log: Final = logging.getLogger(__name__)


class Pricing:
    """Makes prices now and then."""

    def __init__(self, cache: Cache, settings: PricingSettings) -> None:
        self._cache = cache
        self._settings = settings
        #: What the last prices were made from, and when.
        self._made_from: Mapping[Kind, int] = {}
        self._made_at = 0.0
        #: When counts were halved, or first looked at.
        self._halved_at: float | None = None

    def begin(self) -> None:
        """Make prices from what is known now, at once."""
        self.halve_if_due()
        self._made_at = anyio.current_time()
        cluster = self._cache.cluster
        self._made_from = cluster.arrivals.counts()
        cluster.note_prices(prices_of(typical_of(self._made_from)))

    async def run(self) -> None:
        """Look now and then whether prices are out of date, until cancelled."""
        while True:
            await anyio.sleep(self._settings.look_s)
            self.halve_if_due()
            counts = self._cache.cluster.arrivals.counts()
            if self._is_due(counts):
                await self._make(counts)

    def halve_if_due(self) -> None:
        """Let what came before count half after each half-life; also for a replica that does not lead, and counts."""
        now = anyio.current_time()
        if self._halved_at is None:
            self._halved_at = now
        elif now - self._halved_at >= self._settings.half_life_s:
            self._halved_at += self._settings.half_life_s
            self._cache.cluster.arrivals.halve()

    def _is_due(self, counts: Mapping[Kind, int]) -> bool:
        if anyio.current_time() - self._made_at >= self._settings.every_s:
            return True
        return moved_percent(self._made_from, counts) >= self._settings.moved_percent

    async def _make(self, counts: Mapping[Kind, int]) -> None:
        self._made_at, self._made_from = anyio.current_time(), counts
        typical = typical_of(counts)
        if self._settings.in_thread:
            prices = await anyio.to_thread.run_sync(prices_of, typical)
        else:
            prices = prices_of(typical)
        self._cache.cluster.note_prices(prices)
        _log.debug("prices made from %d pods", typical.pods)
