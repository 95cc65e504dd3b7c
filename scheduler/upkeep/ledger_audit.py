"""Counts the ledger again, node by node, all the time: it equals what is known of the objects (invariants.md, S12).

A row that differs would be a bug of ours, and a charge that is lost gives a device away twice. So it is logged as an
error, and the node is counted again, which mends it.
"""

from __future__ import annotations

import logging
from typing import Final

import anyio

from scheduler.telemetry.observing import Observer
from scheduler.watch.cache import Cache

_log: Final = logging.getLogger(__name__)

#: Nodes that are counted at a time (about a millisecond), and the pause after them.
_NODES: Final = 16
_PAUSE_S: Final = 1.0
#: From the start of one round to that of the next, at least: with few nodes, counting them was most of what an idle
#: scheduler did.
_ROUND_S: Final = 10.0


class Recounting:
    """Goes round all nodes, every ten seconds at most. A thousand take a minute."""

    def __init__(self, cache: Cache, observer: Observer) -> None:
        self._cache = cache
        self._observer = observer
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
                self._observer.ledger_differs()
                cluster.count_again(name)
                self._cache.wake.set()
