"""Which nodes are searched for a device that a pod names (docs/design/opening.md).

What such a pod opened and doesn't want is kept while it goes on, or kubelet would hand out the same device again.
"""

from __future__ import annotations

import math

import anyio

from binder.watch.view import View
from sharing.attempt import Attempt


class Searching:
    """``keep_s``: for so long after the last attempt of a pod that names devices was seen on a node."""

    def __init__(self, *, view: View, keep_s: float) -> None:
        self._view = view
        self._keep_s = keep_s
        #: Node -> until when what is idle there is kept (event loop's time).
        self._until: dict[str, float] = {}

    def begin(self, attempt: Attempt) -> None:
        """An attempt begins, or is seen at work."""
        pod = self._view.pods.get(attempt.pod_uid)
        if pod is not None and pod.names_devices(attempt.alternative):
            self._until[attempt.node] = anyio.current_time() + self._keep_s

    def sweep(self) -> None:
        """Look over all that are at work: one of them may take long. Forget what is over."""
        now = anyio.current_time()
        self._until = {node: until for node, until in self._until.items() if now < until}
        for attempt in self._view.attempts():
            self.begin(attempt)

    def keeps_until(self, node: str) -> float:
        """Until when what is idle on a node is kept; the past if nobody searches there."""
        return self._until.get(node, -math.inf)
