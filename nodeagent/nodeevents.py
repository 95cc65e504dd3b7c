"""Events of the agent about its own Node."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from kube.client.resources import NODES
from kube.events import EventRecorder, about
from wire.core import Node, ObjectMeta
from wire.events import WARNING

_log: Final = logging.getLogger(__name__)


class NodeEvents:
    """``node``: its name. ``seen`` is the Node as it was seen last; None before."""

    def __init__(self, events: EventRecorder, *, node: str, seen: Callable[[], Node | None]) -> None:
        self._events = events
        self._node = node
        self._seen = seen

    def warn(self, reason: str, action: str, note: str) -> None:
        """Make a Warning, and log it."""
        _log.warning("%s: %s", reason, note)
        node = self._seen()
        # As kubelet names a Node that it has not read: kubectl describe shows events of either.
        metadata = ObjectMeta(name=self._node, uid=self._node) if node is None else node.metadata
        # Final: between two equal Events the state was another one, so they are not counted as a series.
        self._events.record(
            about(NODES, metadata), reason=reason, action=action, note=note, type=WARNING, is_final=True
        )
