"""Free GPUs that fit no pod, counted now and then from all that is followed (docs/packing.md).

All nodes and pods have to be counted for it, so it is done in a thread, and for a small part of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import anyio
import anyio.to_thread

from cli.inspection.surveying import unusable_views
from cli.inspection.values import UnusableView
from cli.page.objects import Objects
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest

#: It is counted this often at most, and in this part of the time.
EVERY_S: Final = 5.0
_PART: Final = 20


class Unusable:
    """``found``: as of the last count. ``tell`` is called with it after each count."""

    def __init__(self, objects: Objects, tell: Callable[[Sequence[UnusableView]], None] = lambda _: None) -> None:
        self._objects = objects
        self._tell = tell
        self.found: Sequence[UnusableView] = ()

    async def run(self) -> None:
        """Count until cancelled."""
        while True:
            took_s = 0.0
            if self._knows_all:
                self.found, took_s = await anyio.to_thread.run_sync(_timed, *self._there())
                self._tell(self.found)
            await anyio.sleep(max(EVERY_S, _PART * took_s))

    def count(self) -> None:
        """Count once, while nothing else goes on."""
        if self._knows_all:
            self.found = unusable_views(*self._there())
            self._tell(self.found)

    @property
    def _knows_all(self) -> bool:
        """Whether all pods are followed."""
        return self._objects.namespaces is None

    def _there(self) -> tuple[Sequence[Node], Sequence[Pod], Sequence[BindRequest]]:
        """Objects are never changed, only replaced: what is listed here stays as it is."""
        objects = self._objects
        return tuple(objects.nodes.values()), tuple(objects.pods.values()), tuple(objects.requests.values())


def _timed(
    nodes: Sequence[Node], pods: Sequence[Pod], requests: Sequence[BindRequest]
) -> tuple[Sequence[UnusableView], float]:
    """Count, and return the CPU time that it took as well, in seconds."""
    began = time.thread_time()
    return unusable_views(nodes, pods, requests), time.thread_time() - began
