"""Writes the status of Queues: what each holds and asks for, its children, and what is wrong with it.

The scheduler counts all of it anyway. A second after a decision, queues that have changed are compared
with what their objects show, and what differs is written (paced.py). Only the leader writes.
"""

from __future__ import annotations

from typing import Any, Final

import anyio

from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.resources import QUEUES
from kube.watch.signal import Signal
from scheduler.core.report.queue_state import QueueState, queue_states
from scheduler.status.paced import PacedWrites
from scheduler.status.queue_fields import differences
from scheduler.watch.cache import Cache
from scheduler.watch.queue_sink import shown
from wire.rfc3339 import rfc3339

#: Between two writes of one queue.
EVERY_S: Final = 5.0
#: From a decision to a look at all queues, and between two looks.
_LOOK_S: Final = 1.0


class QueueStatuses:
    """Follows the accounts of queues, and writes where a Queue shows something else."""

    def __init__(self, api: Api, cache: Cache, *, clock: Clock) -> None:
        self._api = api
        self._cache = cache
        self._clock = clock
        self._states: dict[str, QueueState] = {}
        self._writes = PacedWrites[str]("the status of Queues", is_due=self._is_due, write=self._write, every_s=EVERY_S)
        self._decided = Signal()
        cache.queues.on_change = self._seen

    def decided(self) -> None:
        """A decision was made that is not the one before: sums may have changed."""
        self._decided.set()

    async def run(self) -> None:
        """Write until cancelled."""
        self._states = {}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._writes.run)
            while True:
                await self._decided.wait()
                await anyio.sleep(_LOOK_S)  # what comes with it, such as that its pods are bound, is one write
                self._look()

    def _look(self) -> None:
        """Take how queues stand by the counts of the last decision."""
        queues = self._cache.cluster.queues
        states = queue_states(queues.records.all(), queues.accounts(), queues.sums.sums)
        before, self._states = self._states, {state.record.name: state for state in states}
        for name, state in self._states.items():
            if before.get(name) != state:
                self._writes.look_at(name)

    def _seen(self, name: str) -> None:
        if self._cache.queues.get(name) is None:
            self._writes.forget(name)
        else:
            self._writes.look_at(name)

    def _is_due(self, name: str) -> bool:
        return bool(self._differences(name))

    def _differences(self, name: str) -> dict[str, Any]:
        state, known = self._states.get(name), self._cache.queues.get(name)
        if state is None or known is None or state.record.uid != known.uid:
            return {}
        return differences(state, known.what.status, now=rfc3339(self._clock.now_ns()))

    async def _write(self, name: str) -> None:
        known, patch = self._cache.queues.get(name), self._differences(name)
        if known is None or not patch:
            return
        queue = await self._api.patch(
            QUEUES, name, {"status": patch}, subresource="status", uid=known.uid, resource_version=known.rv
        )
        self._cache.queues.note(name, shown(queue))
