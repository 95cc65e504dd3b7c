"""Small loops beside decisions: nodes that answer late or join, the audit of the ledger, and prices."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from scheduler.core.model.pod_kind import Kind
from scheduler.core.scores.prices import moved_percent, prices_of, typical_of
from scheduler.settings import PricingSettings
from scheduler.telemetry.events import Emit, LedgerDiffers
from scheduler.watch.cache import Cache


class Answering:
    """Tells the core when the time of an answer is over.

    The time is counted from when a reservation was seen: what the binder and the API server take is not the node's
    fault.
    """

    def __init__(self, cache: Cache, *, answer_s: float) -> None:
        self._cache = cache
        self._answer_s = answer_s
        #: Reservations (UIDs) that are waited for.
        self._awaited: set[str] = set()
        self._tasks: TaskGroup | None = None

    async def run(self) -> None:
        """Wait for answers until cancelled, also for those that were asked for before."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                for held in self._cache.reservations.values():
                    if not held.is_told:
                        self.ask(held.uid)
                await anyio.sleep_forever()
            finally:
                self._tasks = None
                self._awaited.clear()

    def ask(self, reservation_uid: str) -> None:
        """Wait for the answer of a reservation, while it runs."""
        if self._tasks is not None and reservation_uid not in self._awaited:
            self._awaited.add(reservation_uid)
            self._tasks.start_soon(self._wait, reservation_uid)

    async def _wait(self, reservation_uid: str) -> None:
        await anyio.sleep(self._answer_s)
        self._awaited.discard(reservation_uid)
        if self._cache.cluster.commits.late(reservation_uid):
            self._cache.wake.set()


class JoiningNodes:
    """Says of nodes that they have settled. A node that is seen to join is looked at after ``settle_s``.

    A node that comes from another node pool takes nobody until what is on its way from there has arrived: the other
    scheduler's commits are not seen here before their pods are bound. A request takes 11 s at most
    (kube/client/retry.py).
    """

    def __init__(self, cache: Cache, *, settle_s: float) -> None:
        self._cache = cache
        self._settle_s = settle_s
        #: When each was first seen to join (event loop's time), and as which generation of the cluster.
        self._since: dict[tuple[str, int], float] = {}

    async def run(self) -> None:
        """Settle nodes until cancelled."""
        while True:
            self._look()
            due_s = min(self._since.values(), default=None)
            with anyio.move_on_after(None if due_s is None else due_s + self._settle_s - anyio.current_time()):
                await self._cache.on_joining.wait()

    def _look(self) -> None:
        now, cluster = anyio.current_time(), self._cache.cluster
        self._since = {joining: self._since.get(joining, now) for joining in cluster.joining.items()}
        for joining in [joining for joining, since in self._since.items() if now >= since + self._settle_s]:
            del self._since[joining]
            cluster.settle_node(joining[0])
            self._cache.wake.set()


_log: Final = logging.getLogger(__name__)

#: Nodes that are counted at a time (about a millisecond), and the pause after them.
_NODES: Final = 16
_PAUSE_S: Final = 1.0
#: From the start of one round to that of the next, at least: with few nodes, counting them was most of what an idle
#: scheduler did.
_ROUND_S: Final = 10.0


class Recounting:
    """Goes round all nodes, every ten seconds at most. A thousand take a minute.

    Each node's row in the ledger equals what is known of the objects (invariants.md, S12). A row that differs would be
    a bug of ours: it is logged as an error, and the node is counted again.
    """

    def __init__(self, cache: Cache, emit: Emit) -> None:
        self._cache = cache
        self._emit = emit
        self._left: list[str] = []

    async def run(self) -> None:
        """Count until cancelled."""
        next_round_s = 0.0
        while True:
            await anyio.sleep(_PAUSE_S)
            now_s = anyio.current_time()
            if not self._left:
                if now_s < next_round_s:
                    continue
                next_round_s = now_s + _ROUND_S
            self.look()

    def look(self) -> None:
        """Count some nodes, and have those counted again whose row is wrong."""
        cluster = self._cache.cluster
        self._left = self._left or cluster.node_names()
        some, self._left = self._left[:_NODES], self._left[_NODES:]
        for name in some:
            found = cluster.differences(name)
            if found:
                _log.error("the ledger is wrong, and is counted again: %s", "; ".join(found))
                self._emit(LedgerDiffers())
                cluster.count_again(name)
                self._cache.wake.set()


class Pricing:
    """Makes prices of the strategy ``priced`` now and then, by the pods that come (scheduler/core/scores/prices.py).

    They are made from a copy beside the event loop, and the cluster takes them as a value: within a decision they do
    not change.
    """

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
            prices = await to_thread.run_sync(prices_of, typical)
        else:
            prices = prices_of(typical)
        self._cache.cluster.note_prices(prices)
        _log.debug("prices made from %d pods", typical.pods)
