"""Health of GPUs on which a back end can limit nobody (nodeagent/backend.py), as the GpuNode and an Event report it.

Kubelet does not learn of it. Programs without a limit go on, and those with one wait for their limit, so nobody has to
leave the GPU.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from kube.client.clock import Clock
from nodeagent.core.telling import ILL
from nodeagent.nodeevents import NodeEvents
from wire import names
from wire.crds.gpunode import CardHealth, CardStatus
from wire.rfc3339 import rfc3339

_log: Final = logging.getLogger(__name__)
_PREFIX: Final = f"{names.REASON_MPS_GONE}: "


class LimitingHealth:
    """By ``cards`` and ``events``; without events none are made."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.events: NodeEvents | None = None
        #: By UUID, of those that are ill.
        self.cards: Mapping[str, CardHealth] = {}

    def resume(self, cards: Iterable[CardStatus]) -> dict[str, str]:
        """Take in which GPUs an agent before this one has reported as ill, in the GpuNode; return them, and why.

        They keep their time and get no further Event.
        """
        before = {card.uuid: card.health for card in cards if card.health is not None and _is_ours(card.health)}
        self.cards = {**before, **self.cards}
        return {uuid: health.reason.removeprefix(_PREFIX) for uuid, health in before.items()}

    def take(self, ill: Mapping[str, str]) -> None:
        """Take in which GPUs are ill now, and why, by UUID."""
        before, now = self.cards, rfc3339(self._clock.now_ns())
        self.cards = {uuid: _told(why, before.get(uuid), now) for uuid, why in ill.items()}
        for uuid in before.keys() - ill.keys():
            _log.info("tenants of %s can be limited again", uuid)
        for uuid in sorted(ill.keys() - before.keys()):
            if self.events is not None:
                self.events.warn(names.REASON_MPS_GONE, "Limiting", f"{uuid}: {ill[uuid]}")


def _is_ours(health: CardHealth) -> bool:
    return health.state == ILL and health.reason.startswith(_PREFIX)


def _told(why: str, before: CardHealth | None, now: str) -> CardHealth:
    since = now if before is None else before.since
    return CardHealth(state=ILL, reason=f"{_PREFIX}{why}", since=since)
