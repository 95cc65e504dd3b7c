"""How long a node that came from another node pool takes nobody: until what is on its way from there has arrived.

The other scheduler's commits of whole GPUs, CPU and memory are not seen here before their pods are bound. It stops when
it sees the node's label change; then a request takes 11 s at most (kube/client/retry.py). Should it see that later, a
pod may come that the node has no room for: kubelet refuses it, and no device is shared by it (docs/design/pools.md).
Only nodes that this process saw change are held back: a leader that starts can't tell when a label was written.
"""

from __future__ import annotations

import anyio

from scheduler.watch.cache import Cache


class JoiningNodes:
    """Says of nodes that they have settled. A node that is seen to join is looked at after ``settle_s``."""

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
