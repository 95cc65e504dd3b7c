"""Health of GPUs on which a back end can limit nobody (nodeagent/backend.py), as the GpuNode and an Event tell it.

It is told and nothing more: kubelet is not. Programs without a limit go on, and those with one wait for their limit, so
nobody has to leave the GPU.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from kube.client.clock import Clock
from nodeagent.core.telling import ILL
from nodeagent.nodeevents import NodeEvents
from wire import names
from wire.crds.gpunode import CardHealth
from wire.rfc3339 import rfc3339

_log: Final = logging.getLogger(__name__)


class LimitingHealth:
    """By ``cards`` and ``events``; without events none are made."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.events: NodeEvents | None = None
        #: By UUID, of those that are ill.
        self.cards: Mapping[str, CardHealth] = {}

    def take(self, ill: Mapping[str, str]) -> None:
        """Take in which GPUs are ill now, and why, by UUID."""
        before, now = self.cards, rfc3339(self._clock.now_ns())
        self.cards = {uuid: _told(why, before.get(uuid), now) for uuid, why in ill.items()}
        for uuid in before.keys() - ill.keys():
            _log.info("tenants of %s can be limited again", uuid)
        for uuid in sorted(ill.keys() - before.keys()):
            if self.events is not None:
                self.events.warn(names.REASON_MPS_GONE, "Limiting", f"{uuid}: {ill[uuid]}")


def _told(why: str, before: CardHealth | None, now: str) -> CardHealth:
    since = now if before is None else before.since
    return CardHealth(state=ILL, reason=f"{names.REASON_MPS_GONE}: {why}", since=since)
