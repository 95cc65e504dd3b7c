"""What is to be done, by keys: each key once, never twice at the same time, and later after a failure."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Awaitable, Callable, Iterable

import anyio
from anyio.abc import TaskGroup

from kube.client.backoff import Backoff, BackoffRange
from kube.watch.signal import Signal

#: Does the work of a key; whether it is done. Raises nothing.
Work = Callable[[str], Awaitable[bool]]


class Backlog:
    """Keys with work to do. ``at_once``: the number that are worked on side by side."""

    def __init__(self, *, at_once: int, backoff: BackoffRange, rng: random.Random) -> None:
        self._at_once = at_once
        self._range = backoff
        self._rng = rng
        self._ready: dict[str, None] = {}
        #: (time of the event loop, key): when a key that failed is ready again. The failed ones by key.
        self._later: list[tuple[float, str]] = []
        self._failed: dict[str, Backoff] = {}
        #: Keys that are in `_later` without having failed.
        self._again: set[str] = set()
        #: Keys that are worked on; True: there is more to do, of which the work under way may not know.
        self._active: dict[str, bool] = {}
        self._news = Signal()

    def __len__(self) -> int:
        """How many keys have work to do."""
        return len(self._ready) + len(self._later) + len(self._active)

    def add(self, key: str) -> None:
        """There is work to do. A key that has failed still waits for its time."""
        if key in self._active:
            self._active[key] = True
        elif key not in self._failed:
            self._ready[key] = None
            self._news.set()

    def again(self, key: str) -> None:
        """Have a key worked on again after the longest wait, and sooner if there is news of it: it has not failed."""
        if key not in self._again:
            self._again.add(key)
            heapq.heappush(self._later, (anyio.current_time() + self._range.most_s, key))

    def failures(self, key: str) -> int:
        """How often in a row the work of a key has failed."""
        return self._failed[key].failures if key in self._failed else 0

    async def run(self, keys: Iterable[str], work: Work) -> None:
        """Work until cancelled, on these keys first."""
        self._ready, self._later, self._failed, self._active = dict.fromkeys(keys), [], {}, {}
        self._again = set()
        async with anyio.create_task_group() as tasks:
            while True:
                with anyio.CancelScope(deadline=self._begin(tasks, work)):
                    await self._news.wait()

    def _begin(self, tasks: TaskGroup, work: Work) -> float:
        """Begin what can be begun; return when to look again if nothing happens before."""
        now = anyio.current_time()
        while self._later and self._later[0][0] <= now:
            key = heapq.heappop(self._later)[1]
            self._again.discard(key)
            if key in self._active:
                self._active[key] = True
            else:
                self._ready[key] = None
        while self._ready and len(self._active) < self._at_once:
            key = next(iter(self._ready))
            del self._ready[key]
            self._active[key] = False
            tasks.start_soon(self._one, key, work)
        return self._later[0][0] if self._later else math.inf

    async def _one(self, key: str, work: Work) -> None:
        is_done = await work(key)
        has_more = self._active.pop(key)
        if not is_done:
            wait_s = self._failed.setdefault(key, Backoff(self._range, self._rng)).fail()
            heapq.heappush(self._later, (anyio.current_time() + wait_s, key))
        else:
            self._failed.pop(key, None)
            if has_more:
                self._ready[key] = None
        self._news.set()
