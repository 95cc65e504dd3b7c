"""What is to be done, by keys: each key once, never twice at the same time, and later after a failure.

A key begins with its namespace: neither a back-off nor a place is shared beyond it.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import anyio
from anyio.abc import TaskGroup

from kube.client.retry import Backoff, BackoffRange
from kube.watch.signal import Signal
from podgrouper.core.projection import Key

#: Does the work of a key; whether it is done. Raises nothing.
Work = Callable[[Key], Awaitable[bool]]

#: A namespace has this part of the places at most: while its work is slow, others go on.
SHARE: Final = 4


class Backlog:
    """Keys with work to do. ``at_once``: the number that are worked on side by side, a quarter of them of a namespace.

    Namespaces take turns, and a namespace that fills its share waits; no other one does.
    """

    def __init__(self, *, at_once: int, backoff: BackoffRange, rng: random.Random) -> None:
        self._at_once = at_once
        self._share = max(1, at_once // SHARE)
        self._range = backoff
        self._rng = rng
        #: By namespace; the one that is next comes first.
        self._ready: OrderedDict[str, dict[Key, None]] = OrderedDict()
        #: (time of the event loop, key): when a key is ready again, if it still is to be then by one of the tables
        #: below: because it has failed, or for another look.
        self._later: list[tuple[float, Key]] = []
        self._retries: dict[Key, float] = {}
        self._again: dict[Key, float] = {}
        #: Keys that have failed.
        self._failed: dict[Key, Backoff] = {}
        #: Keys that are worked on, and are tried again at once if that fails.
        self._edited: set[Key] = set()
        #: Keys that are worked on; True: there is more to do, of which the work under way may not know.
        self._active: dict[Key, bool] = {}
        #: How many of them are of a namespace.
        self._places: Counter[str] = Counter()
        self._news = Signal()

    def __len__(self) -> int:
        """How many keys have work to do."""
        return sum(map(len, self._ready.values())) + len(self._retries) + len(self._again) + len(self._active)

    def add(self, key: Key) -> None:
        """There is work to do. A key that has failed still waits for its time."""
        if key in self._active:
            self._active[key] = True
        elif key not in self._failed:
            self._make_ready(key)
            self._news.set()

    def edited(self, key: Key) -> None:
        """What a key depends on was edited: one that has failed may succeed now, and does not wait for its time."""
        if key in self._active:
            self._active[key] = True
            self._edited.add(key)
        elif self._retries.pop(key, None) is not None:
            self._make_ready(key)
            self._news.set()

    def again(self, key: Key) -> None:
        """Have a key worked on again after the longest wait, and sooner if there is news of it: it has not failed."""
        if key not in self._again:
            self._put_off(key, self._range.most_s, self._again)

    def failures(self, key: Key) -> int:
        """How often in a row the work of a key has failed."""
        return self._failed[key].failures if key in self._failed else 0

    async def run(self, keys: Iterable[Key], work: Work) -> None:
        """Work until cancelled, on these keys first."""
        self._ready, self._later, self._failed, self._active = OrderedDict(), [], {}, {}
        self._retries, self._again, self._edited, self._places = {}, {}, set(), Counter()
        for key in keys:
            self._make_ready(key)
        async with anyio.create_task_group() as tasks:
            while True:
                with anyio.CancelScope(deadline=self._begin(tasks, work)):
                    await self._news.wait()

    def _put_off(self, key: Key, wait_s: float, table: dict[Key, float]) -> None:
        table[key] = anyio.current_time() + wait_s
        heapq.heappush(self._later, (table[key], key))

    def _make_ready(self, key: Key) -> None:
        self._ready.setdefault(key[0], {})[key] = None

    def _begin(self, tasks: TaskGroup, work: Work) -> float:
        """Begin what can be begun; return when to look again if nothing happens before."""
        now = anyio.current_time()
        while self._later and self._later[0][0] <= now:
            when, key = heapq.heappop(self._later)
            table = next((table for table in (self._retries, self._again) if table.get(key) == when), None)
            if table is None:
                continue
            del table[key]
            if key in self._active:
                self._active[key] = True
            else:
                self._make_ready(key)
        while len(self._active) < self._at_once and (next_one := self._next()) is not None:
            self._active[next_one] = False
            self._places[next_one[0]] += 1
            tasks.start_soon(self._one, next_one, work)
        return self._later[0][0] if self._later else math.inf

    def _next(self) -> Key | None:
        """Take the next key of the first namespace that has places left, whose turn is over with it."""
        for namespace, keys in self._ready.items():
            if self._places.get(namespace, 0) < self._share:
                key = next(iter(keys))
                del keys[key]
                if keys:
                    self._ready.move_to_end(namespace)
                else:
                    del self._ready[namespace]
                return key
        return None

    async def _one(self, key: Key, work: Work) -> None:
        is_done = await work(key)
        has_more, was_edited = self._active.pop(key), key in self._edited
        self._edited.discard(key)
        self._places[key[0]] -= 1
        if not self._places[key[0]]:
            del self._places[key[0]]
        if not is_done:
            wait_s = self._failed.setdefault(key, Backoff(self._range, self._rng)).fail()
            if not was_edited:
                self._put_off(key, wait_s, self._retries)
        else:
            self._failed.pop(key, None)
        if was_edited or (is_done and has_more):
            self._make_ready(key)
        self._news.set()
