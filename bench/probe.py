"""The scheduler's cache in a fresh process, fed by bench/feed.py: ``python -m bench.probe URL PODS EVENTS``.

Prints one JSON object: memory before and after, how long lists and events took, and the longest time for which the
event loop did not get to a task that wanted to run every millisecond.
"""

from __future__ import annotations

import functools
import random
import sys
from dataclasses import dataclass
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskGroup

from bench import feed, procfs
from kube.client import config
from kube.client.api import Api
from kube.client.http import HttpTransport
from kube.client.resources import NODES, PODS
from kube.client.retry import Retry
from kube.watch.reflector import Reflector, Sink
from scheduler.core.cluster import Cluster
from scheduler.core.model.settings import Settings
from scheduler.watch.cache import Cache, NodeSink, PodSink

_TICK_S = 0.001
_WITHIN_S = 300.0


@dataclass(slots=True)
class Ticker:
    """Wants to run every millisecond, and notes how late it was at most."""

    worst_s: float = 0.0

    async def run(self) -> None:
        """Tick until cancelled."""
        before = anyio.current_time()
        while True:
            await anyio.sleep(_TICK_S)
            now = anyio.current_time()
            self.worst_s = max(self.worst_s, now - before - _TICK_S)
            before = now

    def taken_ms(self) -> float:
        """The worst since it was taken last."""
        worst_s, self.worst_s = self.worst_s, 0.0
        return round(worst_s * 1e3, 1)


class _Counting:
    """A sink in front of the cache's that tells when so many events have been taken."""

    def __init__(self, inner: Sink[Any, Any], events: int) -> None:
        self._inner = inner
        self._left = events
        self.first_at = 0.0
        self.last_at = 0.0
        self.done = anyio.Event()
        if not events:
            self.done.set()

    def keep(self, obj: Any) -> Any:
        return self._inner.keep(obj)

    async def replace(self, kept: Any) -> None:
        await self._inner.replace(kept)

    def delete(self, obj: Any) -> None:
        self._inner.delete(obj)

    def upsert(self, obj: Any) -> None:
        self.first_at = self.first_at or anyio.current_time()
        self._inner.upsert(obj)
        self._left -= 1
        if not self._left:
            self.last_at = anyio.current_time()
            self.done.set()


async def _probe(url: str, *, pods: int, events: int) -> dict[str, float]:
    cache, rng = Cache(Cluster(Settings())), random.Random(0)
    before = procfs.memory_mib()
    async with HttpTransport(config.plain(url)) as transport, anyio.create_task_group() as tasks:
        api = Api(transport, timeout_s=_WITHIN_S, retry=Retry(rng))
        ticker, counting = Ticker(), _Counting(PodSink(cache), events)
        tasks.start_soon(ticker.run)
        with anyio.fail_after(_WITHIN_S):
            await tasks.start(Reflector(api, NODES, NodeSink(cache), rng=rng).run)
            figures = await _list(tasks, Reflector(api, PODS, counting, rng=rng), ticker)
            cache.cluster.refresh()
            after = procfs.memory_mib()
            await counting.done.wait()
            await anyio.sleep(0.01)
        figures |= {"events_pause_ms": ticker.taken_ms()} if events else {}
        tasks.cancel_scope.cancel()
    if not all(cache.cluster.pod(feed.uid(number)) for number in range(pods)):
        raise AssertionError("the cache does not hold what was fed")
    figures |= {"start_mib": before["resident_mib"], **after}
    figures["cache_mib"] = round(after["resident_mib"] - before["resident_mib"], 1)
    if events:
        figures["events_per_s"] = round((events - 1) / (counting.last_at - counting.first_at))
    return figures


async def _list(tasks: TaskGroup, reflector: Reflector[Any], ticker: Ticker) -> dict[str, float]:
    ticker.taken_ms()
    started_at = anyio.current_time()
    await tasks.start(reflector.run)
    taken_s = anyio.current_time() - started_at
    await anyio.sleep(2 * _TICK_S)
    return {"list_s": round(taken_s, 2), "list_pause_ms": ticker.taken_ms()}


def main() -> None:
    """Probe and print."""
    url, *numbers = sys.argv[1:]
    pods, events = map(int, numbers)
    sys.stdout.write(
        msgspec.json.encode(anyio.run(functools.partial(_probe, url, pods=pods, events=events))).decode() + "\n"
    )


if __name__ == "__main__":
    main()
