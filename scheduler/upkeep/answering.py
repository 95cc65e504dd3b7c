"""How long reservation pods have been asked which device they hold. The clock of scheduler/core/assumed/slow_nodes.py.

Counted from when a reservation was seen, not from the decision: what the binder and the API server take is not the
node's fault.
"""

from __future__ import annotations

import anyio
from anyio.abc import TaskGroup

from scheduler.watch.cache import Cache


class Answering:
    """Tells the core when the time of an answer is over."""

    def __init__(self, cache: Cache, *, answer_s: float) -> None:
        self._cache = cache
        self._answer_s = answer_s
        #: Reservations (UIDs) that are waited for.
        self._awaited: set[str] = set()
        self._tasks: TaskGroup | None = None
        cache.on_device_asked = self._ask

    async def run(self) -> None:
        """Wait for answers until cancelled, also for those that were asked for before."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                for held in self._cache.reservations.values():
                    if not held.is_told:
                        self._ask(held.uid)
                await anyio.sleep_forever()
            finally:
                self._tasks = None
                self._awaited.clear()

    def _ask(self, reservation_uid: str) -> None:
        if self._tasks is not None and reservation_uid not in self._awaited:
            self._awaited.add(reservation_uid)
            self._tasks.start_soon(self._wait, reservation_uid)

    async def _wait(self, reservation_uid: str) -> None:
        await anyio.sleep(self._answer_s)
        self._awaited.discard(reservation_uid)
        if self._cache.cluster.commits.late(reservation_uid):
            self._cache.wake.set()
